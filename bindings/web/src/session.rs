//! A disk, the volume on it that is open, and which question goes where.
//!
//! A question is an object with `ask` and what that takes; the answer is an object, too, with `error` in words if there is
//! none. Files are named by their inodes, because names need not be text.

use std::sync::Arc;

use platfs::device::partitions::{TableError, partitions};
use platfs::device::{Device, Window, backup_superblock, lookalike};
use platfs::journal::Recovery;
use platfs::{InodeNumber, OpenOptions, Volume};
use platfs_forensics::words::human;
use serde_json::{Value, json};

use crate::{browse, look, survey};

/// Memory for metadata of the volume that is open.
const CACHE: u64 = 16 << 20;

/// Takes what a long call reports while it runs: objects in JSON.
pub trait Events {
    /// One of them.
    fn event(&mut self, text: &str);
}

/// Why there is no answer, in words.
pub(crate) type Answer = Result<Value, String>;

/// A disk and the volume on it.
pub struct Session {
    disk: Arc<dyn Device>,
    open: Option<Open>,
}

/// A volume that is open.
pub(crate) struct Open {
    /// It.
    pub(crate) volume: Volume,
}

/// A number of a question.
pub(crate) fn number(question: &Value, key: &str) -> Result<u64, String> {
    question[key].as_u64().ok_or_else(|| format!("the question lacks `{key}`"))
}

/// An inode of a question.
pub(crate) fn inode(question: &Value) -> Result<InodeNumber, String> {
    let number = u32::try_from(number(question, "inode")?).ok().and_then(InodeNumber::new);
    number.ok_or_else(|| "no such inode".to_owned())
}

/// A text of a question.
pub(crate) fn text<'q>(question: &'q Value, key: &str) -> Result<&'q str, String> {
    question[key].as_str().ok_or_else(|| format!("the question lacks `{key}`"))
}

impl Session {
    /// A disk on which nothing is open.
    #[must_use]
    pub fn new(disk: Arc<dyn Device>) -> Self {
        Session { disk, open: None }
    }

    /// Answers a question. What a long one has to say on its way goes to `events`.
    pub fn ask(&mut self, question: &[u8], events: &mut dyn Events) -> String {
        let answer = serde_json::from_slice(question)
            .map_err(|error| format!("the question is no JSON: {error}"))
            .and_then(|question: Value| self.answer(&question, events));
        answer.unwrap_or_else(|error| json!({ "error": error })).to_string()
    }

    fn answer(&mut self, question: &Value, events: &mut dyn Events) -> Answer {
        match text(question, "ask")? {
            "disk" => return Ok(self.look_at_disk()),
            "open" => return self.open(question, events),
            "check" => return look::check(&self.part(question)?, events),
            _ => {}
        }
        let open = self.open.as_ref().ok_or("no volume is open")?;
        match text(question, "ask")? {
            "list" => browse::list(open, question),
            "facts" => browse::facts(open, question),
            "extents" => browse::extents(open, question),
            "places" => browse::places(open, text(question, "path")?),
            "superblock" => survey::superblock(open),
            "groups" => survey::groups(open, question),
            "map" => survey::map(open, events),
            "search" => look::search(open, question, events),
            other => Err(format!("`{other}` is no question")),
        }
    }

    /// Reads of a file; fewer bytes than the buffer has only at its end.
    ///
    /// # Errors
    /// Why it can't, in words.
    pub fn read(&self, inode: u32, offset: u64, buffer: &mut [u8]) -> Result<usize, String> {
        let open = self.open.as_ref().ok_or("no volume is open")?;
        let inode = InodeNumber::new(inode).ok_or("no such inode")?;
        open.volume.read_at(inode, offset, buffer).map_err(|error| error.to_string())
    }

    /// Describes the disk: a volume by itself, partitions, or what else it looks like.
    fn look_at_disk(&self) -> Value {
        let size = self.disk.size();
        let mut about = json!({ "size": size, "shown": human(size), "parts": [], "volume": false });
        let Err(error) = platfs::read_superblock(&*self.disk) else {
            about["volume"] = true.into();
            return about;
        };
        let may_be_volume = |device: &dyn Device| {
            platfs::read_superblock(device).is_ok() || backup_superblock(device).is_some()
        };
        match partitions(&*self.disk) {
            Ok(parts) if !parts.is_empty() => {
                let parts = parts.iter().map(|part| {
                    // The part of it that is on the disk; a partition that lies wholly behind the end has its own size, and
                    // holds no volume.
                    let size = part.size_on(&*self.disk).unwrap_or(part.size);
                    let window = Window::new(Arc::clone(&self.disk), part.start, size).ok();
                    let volume = window.is_some_and(|window| may_be_volume(&window));
                    json!({ "number": part.number, "start": part.start, "size": size,
                            "shown": human(size), "name": part.name, "volume": volume })
                });
                about["parts"] = parts.collect();
            }
            Err(TableError::Broken(why)) => about["problem"] = format!("partition table: {why}").into(),
            // Its opening fails, and offers the ways that are left.
            _ if may_be_volume(&*self.disk) => about["volume"] = true.into(),
            _ => {
                let hint = lookalike(&*self.disk, "the image");
                let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                about["problem"] = format!("no ext2, ext3 or ext4 volume ({error}){hint}").into();
            }
        }
        about
    }

    /// The part of the disk that a question means.
    fn part(&self, question: &Value) -> Result<Arc<dyn Device>, String> {
        let (start, size) = (number(question, "start")?, number(question, "size")?);
        if (start, size) == (0, self.disk.size()) {
            return Ok(Arc::clone(&self.disk));
        }
        let window = Window::new(Arc::clone(&self.disk), start, size).map_err(|error| error.to_string())?;
        Ok(Arc::new(window))
    }

    /// Opens a volume as it will be after replay of its journal, in memory, or as far as it can be read; with `repaired`
    /// as a repair leaves it, in memory, too.
    fn open(&mut self, question: &Value, events: &mut dyn Events) -> Answer {
        self.open = None;
        let mut device = self.part(question)?;
        let is_repaired = question["repaired"] == true;
        if is_repaired {
            device = look::repaired(&device, events)?;
        }
        let (volume, warning) = opened(&device).map_err(|error| unreadable(&*device, &error))?;
        let raw = volume.superblock();
        let answer = json!({
            "label": String::from_utf8_lossy(raw.label()),
            "root": InodeNumber::ROOT.get(),
            "block_size": volume.format().geometry.block_size.bytes(),
            "replayed": volume.recovery().map(ToString::to_string),
            "repaired": is_repaired,
            "warning": warning,
        });
        self.open = Some(Open { volume });
        Ok(answer)
    }
}

/// A volume, and what is missing of it. One with a damaged journal or descriptors is opened without what these say, as by
/// the commands that read.
fn opened(device: &Arc<dyn Device>) -> platfs::Result<(Volume, Option<String>)> {
    let so = |noload, lenient| {
        let options = OpenOptions::new().cache(CACHE).noload(noload).lenient(lenient);
        Volume::open(Arc::clone(device), &options)
    };
    let whole = so(false, false).and_then(|volume| volume.verify_descriptors().map(|()| volume));
    let why = match whole {
        Ok(volume) => {
            let missing = volume.recovery().and_then(Recovery::missing);
            let missing = missing.map(|missing| format!("{missing}; what follows is without what that says"));
            return Ok((volume, missing));
        }
        Err(error) => error,
    };
    let ways = [
        (true, false, "what follows is without what its journal holds"),
        (false, true, "what follows is what is there of it"),
        (true, true, "what follows is what is there of it, without what its journal holds"),
    ];
    for (noload, lenient, told) in ways {
        let Ok(volume) = so(noload, lenient) else { continue };
        if lenient || volume.needs_recovery() && volume.verify_descriptors().is_ok() {
            return Ok((volume, Some(format!("{why}; {told}"))));
        }
    }
    Err(why)
}

/// Why a volume can't be opened, and what lies there instead.
fn unreadable(device: &dyn Device, error: &platfs::Error) -> String {
    if platfs::read_superblock(device).is_ok() {
        return format!("the volume can't be read: {error}; the check says more");
    }
    let hint = lookalike(device, "the image").map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("no ext2, ext3 or ext4 volume ({error}){hint}")
}
