//! Names and whole trees away.
//!
//! A directory goes together with the last of its files, in one update: they need not be taken out of its blocks one by
//! one. Others may add names meanwhile: then it is listed again.

use std::collections::HashSet;

use ondisk::corrupt::Place;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{Error, Pin, Removed};

use super::{Act, Halt, Job, Name};
use platfs_open::paths::joined;

/// Names that are removed in one update at most: others want their turn.
const NAMES: usize = 64;
/// How often a directory is listed again because it got names meanwhile.
const TRIES: u32 = 32;
/// Names of one directory that are held at once.
const LISTED: usize = 1 << 16;

/// Longest path that messages show.
const SHOWN: usize = 4096;

/// How to remove.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Directories, too, with all that is in them.
    pub recursive: bool,
    /// Empty directories, too.
    pub dir: bool,
    /// True if a path that does not exist is no failure.
    pub force: bool,
}

/// A directory that is being emptied.
struct Level<'j> {
    parent: InodeNumber,
    name: Vec<u8>,
    path: Vec<u8>,
    number: InodeNumber,
    /// Held until it is to be removed itself.
    pin: Option<Pin<'j>>,
    files: Vec<Vec<u8>>,
    directories: Vec<(Vec<u8>, InodeNumber)>,
    /// There are more names than were listed.
    more: bool,
    tries: u32,
}

/// Removes a name of a directory, and what is below it where that is asked for.
///
/// # Errors
/// Errors of the volume or the watcher; what was removed before stays removed.
pub fn remove(
    job: &Job<'_>,
    directory: InodeNumber,
    name: &Name,
    path: &[u8],
    options: Options,
) -> Result<(), Halt> {
    let name = name.bytes();
    let parent = job.changeable(path, directory)?;
    let facts = match job.find(directory, name).map_err(Halt::at(path))? {
        None if options.force => return Ok(()),
        // Without its user, or it would outlive its name.
        found => found.map(|held| held.facts).ok_or_else(|| Halt::at(path)(Error::NotFound))?,
    };
    let number = facts.inode;
    if job.who().is_kept_off(&parent, &facts) {
        return Err(Halt::Denied { path: path.to_vec() });
    }
    let done = match facts.file_type {
        FileType::Directory if options.recursive => {
            Removal { job, levels: Vec::new(), above: HashSet::new() }.all(directory, name, path, number)
        }
        FileType::Directory if options.dir => remove_whole(job, directory, name, path, &[]),
        FileType::Directory => Err(Halt::refused(path, "is a directory; --recursive removes it")),
        _ => unlink(job, directory, path, &[name.to_vec()]).map_err(|halt| match halt {
            Halt::At { error, .. } => Halt::at(path)(error),
            halt => halt,
        }),
    };
    job.watcher.touched(directory);
    done
}

/// Takes names from files, in as many updates as it takes.
fn unlink(job: &Job<'_>, directory: InodeNumber, path: &[u8], names: &[Vec<u8>]) -> Result<(), Halt> {
    job.must(path, Act::RemoveFile)?;
    // Somebody may have taken the right to it meanwhile.
    job.changeable(path, directory)?;
    match job.now().bulk().of(job.who()).unlink(directory, names) {
        Ok(removed) => {
            removed.iter().for_each(|removed| gone(job, directory, removed));
            Ok(())
        }
        // Somebody else was faster with one of them, or they are too many for the journal.
        Err(Error::NotFound) if names.len() == 1 => Ok(()),
        Err(Error::NotFound | Error::TooLargeForLog { .. } | Error::NotPermitted(_)) if names.len() > 1 => {
            let (first, rest) = names.split_at(names.len() / 2);
            unlink(job, directory, path, first)?;
            unlink(job, directory, path, rest)
        }
        Err(error) => match names {
            [name] => Err(Halt::at(&below(path, name))(error)),
            _ => Err(Halt::at(path)(error)),
        },
    }
}

fn remove_whole(
    job: &Job<'_>,
    parent: InodeNumber,
    name: &[u8],
    path: &[u8],
    known: &[Vec<u8>],
) -> Result<(), Halt> {
    job.must(path, Act::RemoveDirectory)?;
    if !known.is_empty() {
        job.must(path, Act::RemoveFile)?;
    }
    let directory = job.volume.lookup(parent, name).map_err(Halt::at(path))?;
    let removed = job.now().bulk().of(job.who()).remove_whole(parent, name, known).map_err(Halt::at(path))?;
    if let Some((last, files)) = removed.split_last() {
        files.iter().for_each(|removed| gone(job, directory, removed));
        job.watcher.removed(parent, last);
        job.count(|done| done.directories += 1);
    }
    Ok(())
}

fn gone(job: &Job<'_>, directory: InodeNumber, removed: &Removed) {
    job.watcher.removed(directory, removed);
    job.count(|done| done.files += 1);
}

/// Removes a directory with all below it, without recursion: trees can be deep.
struct Removal<'j> {
    job: &'j Job<'j>,
    levels: Vec<Level<'j>>,
    /// The directories of the levels: one that lies in itself is damage.
    above: HashSet<InodeNumber>,
}

impl<'j> Removal<'j> {
    fn all(mut self, parent: InodeNumber, name: &[u8], path: &[u8], number: InodeNumber) -> Result<(), Halt> {
        self.enter(parent, name, path.to_vec(), number)?;
        while let Some(level) = self.levels.last_mut() {
            let next = level.directories.pop();
            match next {
                Some((name, number)) => {
                    let (parent, path) = (level.number, below(&level.path, &name));
                    self.enter(parent, &name, path, number)?;
                }
                None => self.empty()?,
            }
            self.job.go_on()?;
        }
        Ok(())
    }

    fn enter(
        &mut self,
        parent: InodeNumber,
        name: &[u8],
        path: Vec<u8>,
        number: InodeNumber,
    ) -> Result<(), Halt> {
        let volume = self.job.volume;
        let failed = Halt::at(&path);
        let Ok(pin) = volume.pin(number) else { return Ok(()) };
        // Somebody may have removed or moved it since it was listed.
        if !matches!(volume.lookup(parent, name), Ok(found) if found == number) {
            return Ok(());
        }
        let up = volume.lookup(number, b"..").map_err(&failed)?;
        if self.above.contains(&number)
            || up != parent && volume.lookup(parent, name).is_ok_and(|found| found == number)
        {
            let problem = format!("calls inode {up} its parent, and stands in inode {parent}");
            return Err(failed(Error::corrupt(Place::Directory(number), problem)));
        }
        let mut level = Level {
            parent,
            name: name.to_vec(),
            path: path.clone(),
            number,
            pin: Some(pin),
            files: Vec::new(),
            directories: Vec::new(),
            more: false,
            tries: 0,
        };
        self.list(&mut level)?;
        self.above.insert(number);
        self.levels.push(level);
        Ok(())
    }

    /// Lists what is in a directory, as far as the actor may remove it.
    fn list(&self, level: &mut Level<'_>) -> Result<(), Halt> {
        let failed = Halt::at(&level.path);
        let volume = self.job.volume;
        self.job.listable(&level.path, level.number)?;
        level.files.clear();
        level.directories.clear();
        level.more = false;
        let mut count = 0;
        for entry in volume.read_dir(level.number).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            count += 1;
            if count > LISTED {
                level.more = true;
                break;
            }
            let file_type = match volume.entry_type(&entry) {
                // Somebody else was faster.
                Err(_) if !matches!(volume.lookup(level.number, &entry.name), Ok(found) if found == entry.inode) =>
                {
                    continue;
                }
                known => known.map_err(&failed)?,
            };
            match file_type {
                FileType::Directory => level.directories.push((entry.name, entry.inode)),
                _ => level.files.push(entry.name),
            }
        }
        if count > 0 {
            self.job.changeable(&level.path, level.number)?;
        }
        Ok(())
    }

    /// Removes the files of the directory that the work is in, and at last the directory.
    fn empty(&mut self) -> Result<(), Halt> {
        let Some(mut level) = self.levels.pop() else { return Ok(()) };
        self.above.remove(&level.number);
        while level.files.len() > NAMES || level.more && !level.files.is_empty() {
            let batch = level.files.split_off(level.files.len().saturating_sub(NAMES));
            unlink(self.job, level.number, &level.path, &batch)?;
            self.job.go_on()?;
        }
        if level.more {
            return self.again(level);
        }
        // With a user it would live on without its name.
        level.pin = None;
        match remove_whole(self.job, level.parent, &level.name, &level.path, &level.files) {
            // Moved or removed by somebody else.
            Err(Halt::At { error: Error::NotFound, .. }) => Ok(()),
            Err(Halt::At { error: Error::NotEmpty, .. }) if level.tries < TRIES => {
                level.tries += 1;
                self.again(level)
            }
            // Too many for the journal, or some can't be removed: one by one it shows which.
            Err(Halt::At { error: Error::TooLargeForLog { .. } | Error::NotPermitted(_), .. })
                if !level.files.is_empty() =>
            {
                let names = std::mem::take(&mut level.files);
                unlink(self.job, level.number, &level.path, &names)?;
                self.again(level)
            }
            done => {
                self.job.watcher.touched(level.parent);
                done
            }
        }
    }

    /// Lists a directory again, if it is still there.
    fn again(&mut self, mut level: Level<'j>) -> Result<(), Halt> {
        let volume = self.job.volume;
        let Ok(pin) = volume.pin(level.number) else { return Ok(()) };
        level.pin = Some(pin);
        if !matches!(volume.lookup(level.parent, &level.name), Ok(found) if found == level.number) {
            return Ok(());
        }
        self.list(&mut level)?;
        self.above.insert(level.number);
        self.levels.push(level);
        Ok(())
    }
}

/// A path for messages, one name further; of a very long one only its end, since trees can be deep.
fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.len() + name.len() < SHOWN { joined(path, name) } else { joined(b"...", name) }
}
