//! Parts shared by commands that work on a mount through its server: the choice of a mount, the files that they bring,
//! progress and messages.

use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes};
use std::io::{self, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ondisk::inode::Timestamp;
use platfs_host::path;
use serde_json::{Map, Value};

use super::json;
use crate::bulk::defrag::report;
use crate::bulk::{Done, Halt, Watcher};
use crate::clock;
use crate::console::{Console, Failure, Trouble};
use crate::control::client::{self, Found, Outcome};
use crate::control::protocol::{Request, Verb};
use crate::progress::{self, Step};
use crate::text::Shown;
use platfs_serve::refusal::Refusal;

/// Returns true if a path is one of a mount by `plat mount`. An image that lies in one is meant as an image where the other
/// paths lie elsewhere.
pub(super) fn is_meant<'p>(first: &OsStr, rest: impl IntoIterator<Item = &'p OsString>) -> bool {
    let is_mounted = |path: &OsStr| client::is_mounted(Path::new(path));
    is_mounted(first) && rest.into_iter().all(|path| is_mounted(path))
}

/// Does work on a plain image: nobody else has to know.
pub(super) struct Alone;

impl Watcher for Alone {
    fn now(&self) -> Timestamp {
        clock::now()
    }

    fn latest(&self) -> Option<Timestamp> {
        clock::epoch()
    }

    fn go_on(&self, done: &Done) -> Result<(), Halt> {
        show(done);
        Ok(())
    }
}

/// Shows how far work on files is.
pub(super) fn show(done: &Done) {
    progress::show(Step { files: done.files + done.directories, bytes: done.bytes, ..Step::default() });
}

/// A command line that names no more than an image, or paths of which the first is neither that nor in a mount.
pub(super) fn no_path(first: &OsStr) -> Failure {
    let shown = Shown(first.as_bytes());
    Failure::Usage(format!("a path is missing: {shown} lies in no mount of plat, and is taken for an image"))
}

/// Returns true if a directory of a mount by `plat mount` stands in the place of an image.
pub(super) fn is_directory(path: &OsStr) -> bool {
    path::is_directory(path) && client::is_mounted(Path::new(path))
}

/// A path below a directory that stands in the place of an image.
pub(super) fn below(directory: &OsStr, path: &OsStr) -> PathBuf {
    platfs_serve::live::below(Path::new(directory), Path::new(path))
}

/// Makes stable what was changed in a mount through the kernel.
pub(super) fn settle(path: &OsStr) -> Result<(), Failure> {
    let found = directory(path).or_else(|_| name(path))?;
    let stable = rustix::fs::syncfs(found.directory()).and_then(|()| rustix::fs::fsync(found.directory()));
    stable.map_err(|error| host(path, io::Error::from(error)))
}

/// A failure about a path of the host.
pub(super) fn host(path: &OsStr, what: impl std::fmt::Display + 'static) -> Failure {
    Failure::about(Shown(path.as_bytes()), what)
}

/// A directory of a mount.
pub(super) fn directory(path: &OsStr) -> Result<Found, Failure> {
    Found::itself(Path::new(path)).map_err(|error| host(path, error))
}

/// A directory of a mount of which all is to be read, or a name in one.
pub(super) fn tree(path: &OsStr) -> Result<Found, Failure> {
    Found::tree(Path::new(path)).map_err(|error| host(path, error))
}

/// A name in a directory of a mount.
pub(super) fn name(path: &OsStr) -> Result<Found, Failure> {
    Found::name(Path::new(path)).map_err(|error| host(path, error))
}

/// Where something goes that is to have the name of `source`: into `target` if that is a directory, else exactly there.
pub(super) fn target(source: &OsStr, target: &OsStr) -> Result<OsString, Failure> {
    let path = Path::new(target);
    if !path::is_directory(path) {
        return Ok(target.to_owned());
    }
    let name = Path::new(source).file_name().ok_or_else(|| host(source, "has no name for a copy"))?;
    Ok(path.join(name).into_os_string())
}

/// Request to a server.
#[derive(Clone, Copy)]
pub(super) struct Asked<const N: usize> {
    pub(super) verb: Verb,
    pub(super) flags: u32,
    pub(super) numbers: [u64; N],
}

/// Has the server do something, and shows how far it is. What failed there is a failure here; what was done is returned
/// in any case.
pub(super) fn ask(
    console: &mut Console<'_>,
    (verb, flags): (Verb, u32),
    places: &[Found],
    file: Option<&dyn AsFd>,
) -> Result<Done, Failure> {
    let (done, said) = sent(Asked { verb, flags, numbers: [] }, places, file)?;
    said.map_err(|why| Failure::Failed(Trouble::told(why)))?.iter().for_each(|line| console.warn(line));
    Ok(done)
}

/// Has the server do something with what a path names, once the kernel has handed over what was written; the report that
/// its lines are.
pub(super) fn ask_for_report<const N: usize>(
    asked: Asked<N>,
    path: &OsStr,
) -> Result<Map<String, Value>, Failure> {
    let found = if path::is_directory(path) { directory(path)? } else { name(path)? };
    let handed = rustix::fs::syncfs(found.directory());
    // On a full volume what has no room stays where it is: another size may be the remedy.
    let is_remedy = asked.verb == Verb::Resize && handed == Err(rustix::io::Errno::NOSPC);
    if !is_remedy {
        handed.map_err(|error| host(path, io::Error::from(error)))?;
    }
    let lines = sent(asked, &[found], None)?.1.map_err(|why| Failure::Failed(Trouble::told(why)))?;
    report::from_lines(&lines).ok_or_else(|| host(path, "the server's report can't be understood"))
}

fn sent<const N: usize>(
    asked: Asked<N>,
    places: &[Found],
    file: Option<&dyn AsFd>,
) -> Result<(Done, Result<Vec<String>, Refusal>), Failure> {
    let Asked { verb, flags, numbers } = asked;
    let request = Request { verb, flags, places: Vec::new(), numbers: numbers.to_vec() };
    let asked = client::ask(request, places, file, &mut |done| show(done));
    let subject = places.first().map(|found| found.shown().to_owned()).unwrap_or_default();
    let Outcome { done, said } = asked.map_err(|error| host(OsStr::from_bytes(&subject), error))?;
    Ok((done, said))
}

/// Says what was done: nothing, or as JSON.
pub(super) fn say(console: &mut Console<'_>, as_json: bool, done: &Done) -> Result<(), Failure> {
    if done.attributes_left_out > 0 {
        console.warn(format!(
            "{} attributes are left out: the mount does not show them, or only an administrator may set them",
            done.attributes_left_out
        ));
    }
    if as_json {
        let mut object = Map::new();
        for (name, count) in [
            ("files", done.files),
            ("directories", done.directories),
            ("bytes", done.bytes),
            ("attributes_left_out", done.attributes_left_out),
        ] {
            object.insert(name.to_owned(), Value::from(count));
        }
        json::print(console.out, object)?;
    }
    Ok(())
}

/// Reports a result on a line, for commands that bring much.
#[cfg(feature = "archives")]
pub(super) fn say_at_length(
    console: &mut Console<'_>,
    as_json: bool,
    subject: &OsStr,
    done: &Done,
) -> Result<(), Failure> {
    say(console, as_json, done)?;
    if !as_json {
        let Done { files, directories, bytes, .. } = done;
        let (subject, bytes) = (Shown(subject.as_bytes()), crate::size::human(*bytes));
        writeln!(console.summary(), "{subject}: {files} files with {bytes}, {directories} directories")?;
    }
    Ok(())
}

/// A file without a name, which is gone when it is closed: in `TMPDIR`, or where files may be large.
fn unnamed() -> Result<File, Failure> {
    let above = std::env::var_os("TMPDIR").filter(|above| !above.is_empty());
    let above = above.unwrap_or_else(|| OsString::from("/var/tmp"));
    tempfile::tempfile_in(&above).map_err(|error| host(&above, error))
}

/// Returns true if a file lies in a mount. The server of that one does not take it: it would wait for itself.
pub(super) fn lies_in(mount: &Found, file: &dyn AsFd) -> io::Result<bool> {
    let device = |file: BorrowedFd<'_>| rustix::fs::fstat(file).map(|facts| facts.st_dev);
    Ok(device(file.as_fd())? == device(mount.directory().as_fd())?)
}

/// Has the server do something with the bytes of a file, or with those of a copy where the file lies in its mount; with what
/// it says at the end.
pub(super) fn ask_with(
    (verb, flags): (Verb, u32),
    place: Found,
    file: &File,
) -> Result<(Done, Vec<String>), Failure> {
    let failed = |error: io::Error| host(OsStr::from_bytes(place.shown()), error);
    let copy = if lies_in(&place, file).map_err(failed)? { Some(copied(file)?) } else { None };
    let file = copy.as_ref().unwrap_or(file);
    let (done, said) = sent(Asked { verb, flags, numbers: [] }, &[place], Some(file as &dyn AsFd))?;
    Ok((done, said.map_err(|why| Failure::Failed(Trouble::told(why)))?))
}

/// A copy of a file, with its permissions and times.
fn copied(mut file: &File) -> Result<File, Failure> {
    let mut copy = unnamed()?;
    let mut copying = || {
        let facts = file.metadata()?;
        file.rewind()?;
        io::copy(&mut file, &mut copy)?;
        copy.set_permissions(facts.permissions())?;
        let times = FileTimes::new().set_accessed(facts.accessed()?).set_modified(facts.modified()?);
        copy.set_times(times)
    };
    copying().map_err(|error| Failure::Failed(format!("copying what is to be brought: {error}").into()))?;
    Ok(copy)
}

/// A snapshot of a mount in a file without a name.
pub(super) fn snapshot(console: &mut Console<'_>, place: &OsStr) -> Result<File, Failure> {
    let file = unnamed()?;
    let found = directory(place)?;
    hand_over(&found, place)?;
    ask(console, (Verb::Snapshot, 0), &[found], Some(&file as &dyn AsFd))?;
    Ok(file)
}

/// Adds up what several requests did.
pub(super) fn add(sum: &mut Done, done: &Done) {
    sum.files += done.files;
    sum.directories += done.directories;
    sum.bytes += done.bytes;
    sum.attributes_left_out += done.attributes_left_out;
}

/// Has the kernel hand over what programs wrote into a mount, so that its server sees it.
pub(super) fn hand_over(found: &Found, path: &OsStr) -> Result<(), Failure> {
    rustix::fs::syncfs(found.directory()).map_err(|error| host(path, io::Error::from(error)))
}
