//! One run: random steps on a volume and on the model.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use platfs::device::{Device, FileDevice};
use platfs::mkfs::Plan;
use platfs::ondisk::inode::Timestamp;
use platfs::ondisk::units::InodeNumber;
use platfs::{
    Allocate, Attributes, DataMode, Error, Kind, NewInode, OpenOptions, Relocation, RelocationGoal, Replace,
    Times, Volume, WriteOptions,
};
use testkit::mount::Mounted;
use testkit::scratch::Scratch;

use super::judge;
use super::model::{Content, Id, Model, Node, ROOT, Xattrs};
use super::profile::Profile;
use super::random::Random;

/// Nodes beyond which more is removed than made.
const CROWD: usize = 120;
/// Steps between two whole comparisons, of a short run and of one over `LONG` steps.
const EPOCHS: [u64; 2] = [150, 1000];
const LONG: u64 = 10_000;
/// One step in this number is followed by a sync and a check of all that is on the device.
const INSPECTED: u64 = 10;
/// Issues that a check reports of a volume only because it is in use.
const IN_USE: [&str; 4] = ["journal-needs-replay", "volume-state", "orphans", "orphans-marked"];

pub struct Run {
    profile: Profile,
    random: Random,
    scratch: Scratch,
    image: PathBuf,
    device: Arc<dyn Device>,
    model: Model,
    volume: Option<Volume>,
    openings: u64,
    step: u64,
}

/// Outcome of a step, without its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done,
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    Invalid,
    Unsupported,
    TooLarge,
}

impl Run {
    pub fn new(profile: &Profile, seed: u64) -> Self {
        let scratch = Scratch::new(profile.name);
        let image = scratch.join("disk.img");
        let file = File::options().read(true).write(true).create_new(true).open(&image).unwrap();
        file.set_len(profile.bytes).unwrap();
        let device: Arc<dyn Device> = Arc::new(FileDevice::new(file).unwrap().without_flush());
        Plan::new(&profile.options, profile.bytes).unwrap().write(&*device).unwrap();
        let mut run = Run {
            profile: profile.clone(),
            random: Random(seed),
            scratch,
            image,
            device,
            model: Model::new(),
            volume: None,
            openings: 0,
            step: 0,
        };
        run.open();
        run
    }

    fn open(&mut self) {
        self.openings += 1;
        let now = Timestamp::from_seconds(1_700_000_000 + self.openings as i64);
        // Nothing delayed, as much as the memory bound holds, and more than that.
        let delay = [64 << 20, 0, 200 << 10][self.openings as usize % 3];
        // Through the journal, where there is one, but for every fourth time.
        let data = [DataMode::Journal, DataMode::Ordered][self.openings as usize % 2];
        let options = OpenOptions::new().write(true).unordered(self.openings % 4 == 3).data(data);
        let options = options.now(now).seed(self.openings).delay(delay);
        self.volume = Some(Volume::open(Arc::clone(&self.device), &options).unwrap());
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().unwrap()
    }

    pub fn play(&mut self, steps: u64) {
        let epoch = EPOCHS[usize::from(steps > LONG)];
        for step in 1..=steps {
            self.step = step;
            self.step();
            if self.random.one_in(INSPECTED) {
                self.volume().sync().unwrap();
                judge::check(&self.device, &IN_USE, step);
            }
            if step.is_multiple_of(epoch) || step == steps {
                judge::compare(self.volume(), &self.model);
                self.volume.take().unwrap().close().unwrap();
                self.judge();
                self.open();
                judge::compare(self.volume(), &self.model);
            }
        }
        self.volume = None;
        self.mount();
        let _ = &self.scratch;
    }

    fn judge(&self) {
        judge::check(&self.device, &[], self.step);
        if testkit::tool::have_tools("model", &["e2fsck"]) {
            let said = testkit::fsck::complaints(&self.image);
            assert!(said.is_empty(), "step {}: e2fsck -fn: {said}", self.step);
        }
    }

    fn mount(&self) {
        if !testkit::mount::have_loop_mount("model") {
            return;
        }
        // Blocks above the page size are for fuse2fs to show.
        match Mounted::read_only(&self.image).or_else(|_| Mounted::fuse2fs(&self.image)) {
            Ok(mounted) => judge::compare_mounted(&self.model, mounted.path()),
            Err(reason) => testkit::tool::skip("model", &reason),
        }
    }

    fn step(&mut self) {
        let crowded = self.model.nodes.len() > CROWD;
        match self.random.below(100) {
            0..12 if !crowded => self.create(),
            0..12 => self.unlink(),
            12..16 if !crowded => self.link(),
            12..16 => self.rmdir(),
            16..22 => self.unlink(),
            22..25 => self.rmdir(),
            25..34 => self.rename(),
            34..60 => self.write(),
            60..67 => self.truncate(),
            67..85 => self.allocate(),
            85..92 => self.xattr(),
            92..94 => self.attributes(),
            94..96 => self.unlink_while_open(),
            96..97 => self.unnamed(),
            97..98 => self.switch(),
            98..99 => self.relocate(),
            _ => self.volume().sync().unwrap(),
        }
    }

    /// Compares what came of a step with what was expected; says whether the model has to follow. A
    /// full volume is expected at any time.
    fn agree<T>(&self, what: &str, done: &platfs::Result<T>, expected: Outcome) -> bool {
        let found = match done {
            Ok(_) => Outcome::Done,
            Err(Error::NotFound) => Outcome::NotFound,
            Err(Error::Exists) => Outcome::Exists,
            Err(Error::NotDirectory) => Outcome::NotDirectory,
            Err(Error::IsDirectory) => Outcome::IsDirectory,
            Err(Error::NotEmpty) => Outcome::NotEmpty,
            Err(Error::Invalid(_)) => Outcome::Invalid,
            Err(Error::Unsupported(_)) => Outcome::Unsupported,
            Err(Error::FileTooLarge(_)) => Outcome::TooLarge,
            Err(Error::NoSpace | Error::NoInodes) if self.profile.name == "tiny" => return false,
            Err(error) => panic!("step {}: {what}: {error}", self.step),
        };
        let words = done.as_ref().err().map(ToString::to_string);
        assert_eq!(found, expected, "step {}: {what}: {words:?}", self.step);
        found == Outcome::Done
    }

    fn name(&mut self) -> Vec<u8> {
        // Few names, so that they meet.
        if self.random.one_in(3) {
            return format!("name{}", self.random.below(12)).into_bytes();
        }
        let length = if self.random.one_in(12) { 255 } else { 1 + self.random.below(60) };
        let bytes = self.random.bytes(length).into_iter();
        let name: Vec<u8> = bytes.map(|byte| if matches!(byte, b'/' | 0) { b'_' } else { byte }).collect();
        if name == b"." || name == b".." { b"dot".to_vec() } else { name }
    }

    fn directory(&mut self) -> Id {
        let all = self.model.all(|content| matches!(content, Content::Directory(_)));
        // Two directories get most names, so that they grow.
        if self.random.one_in(3) { *self.random.pick(&all).unwrap() } else { all[all.len().min(2) - 1] }
    }

    fn file(&mut self) -> Option<Id> {
        let all = self.model.all(|content| matches!(content, Content::File(_)));
        self.random.pick(&all).copied()
    }

    /// A name that exists, and mostly its directory.
    fn existing(&mut self) -> (Id, Vec<u8>) {
        for _ in 0..20 {
            let directory = self.directory();
            let names: Vec<Vec<u8>> = self.model.names(directory).keys().cloned().collect();
            if let Some(name) = self.random.pick(&names) {
                return (directory, name.clone());
            }
        }
        (ROOT, self.name())
    }

    fn new_attributes(&mut self) -> Attributes {
        Attributes {
            permissions: (self.random.next() & 0o7777) as u16,
            uid: self.random.next() as u32,
            gid: self.random.below(70_000) as u32,
            times: Times::all(Timestamp::from_seconds(1_600_000_000)),
        }
    }

    fn inode(&self, id: Id) -> InodeNumber {
        self.model.node(id).inode
    }

    fn create(&mut self) {
        let (directory, name, attributes) = (self.directory(), self.name(), self.new_attributes());
        let length = 1 + self.random.below(300);
        let target: Vec<u8> = self.random.bytes(length).into_iter().map(|byte| byte | 1).collect();
        let xattrs =
            if self.random.one_in(6) { vec![(b"user.new".to_vec(), self.random.bytes(20))] } else { vec![] };
        let (kind, content) = match self.random.below(10) {
            0..2 => (Kind::Directory, Content::Directory(Default::default())),
            2 => (Kind::Symlink(&target[..]), Content::Link(target.clone())),
            3 => (Kind::Fifo, Content::Fifo),
            _ => (Kind::File, Content::File(Vec::new())),
        };
        let new = NewInode { kind, attributes, xattrs: &xattrs };
        let done = self.volume().create(self.inode(directory), &name, &new);
        let exists = self.model.names(directory).contains_key(&name);
        if self.agree("create", &done, if exists { Outcome::Exists } else { Outcome::Done }) {
            let node = Node {
                inode: done.unwrap(),
                content,
                permissions: attributes.permissions,
                owner: (attributes.uid, attributes.gid),
                xattrs: xattrs.into_iter().collect::<Xattrs>(),
                parent: directory,
            };
            self.model.add(directory, &name, node);
        }
    }

    fn link(&mut self) {
        let all: Vec<Id> = self.model.nodes.keys().copied().collect();
        let (id, directory, name) = (*self.random.pick(&all).unwrap(), self.directory(), self.name());
        let done = self.volume().link(self.inode(id), self.inode(directory), &name);
        let expected = match () {
            // As in Linux: a name that is taken comes first.
            () if self.model.names(directory).contains_key(&name) => Outcome::Exists,
            () if self.model.is_directory(id) => Outcome::IsDirectory,
            () => Outcome::Done,
        };
        if self.agree("link", &done, expected) {
            self.model.names_mut(directory).insert(name, id);
        }
    }

    fn unlink(&mut self) {
        let (directory, mut name) = self.existing();
        if self.random.one_in(20) {
            name = self.name();
        }
        let done = self.volume().unlink(self.inode(directory), &name);
        let found = self.model.names(directory).get(&name).copied();
        let expected = match found {
            None => Outcome::NotFound,
            Some(id) if self.model.is_directory(id) => Outcome::IsDirectory,
            Some(_) => Outcome::Done,
        };
        if self.agree("unlink", &done, expected) {
            self.model.names_mut(directory).remove(&name);
            self.model.drop_if_unnamed(found.unwrap(), false);
        }
    }

    fn rmdir(&mut self) {
        let empty =
            self.model.all(|content| matches!(content, Content::Directory(names) if names.is_empty()));
        let (mut directory, mut name) = self.existing();
        if let Some(id) = self.random.pick(&empty).copied().filter(|id| *id != ROOT) {
            directory = self.model.node(id).parent;
            let named = self.model.names(directory).iter().find(|(_, child)| **child == id);
            name = named.unwrap().0.clone();
        }
        let done = self.volume().rmdir(self.inode(directory), &name);
        let found = self.model.names(directory).get(&name).copied();
        let expected = match found {
            None => Outcome::NotFound,
            Some(id) if !self.model.is_directory(id) => Outcome::NotDirectory,
            Some(id) if !self.model.names(id).is_empty() => Outcome::NotEmpty,
            Some(_) => Outcome::Done,
        };
        if self.agree("rmdir", &done, expected) {
            self.model.names_mut(directory).remove(&name);
            self.model.nodes.remove(&found.unwrap());
        }
    }

    fn rename(&mut self) {
        let (from, name) = self.existing();
        let (mut to, mut new_name) = (self.directory(), self.name());
        if self.random.one_in(2) {
            (to, new_name) = self.existing();
        }
        let replace = match self.random.below(6) {
            0 => Replace::No,
            1 | 2 => Replace::Exchange,
            _ => Replace::Yes,
        };
        let done = self.volume().rename(self.inode(from), &name, self.inode(to), &new_name, replace);
        let child = self.model.names(from).get(&name).copied();
        let other = self.model.names(to).get(&new_name).copied();
        let expected = self.rename_outcome(child, to, other, from, replace);
        if !self.agree("rename", &done, expected) || child == other {
            return;
        }
        let child = child.unwrap();
        self.model.names_mut(from).remove(&name);
        self.model.names_mut(to).insert(new_name, child);
        self.model.node_mut(child).parent = to;
        match (other, replace) {
            (Some(other), Replace::Exchange) => {
                self.model.names_mut(from).insert(name, other);
                self.model.node_mut(other).parent = from;
            }
            (Some(other), _) => self.model.drop_if_unnamed(other, false),
            (None, _) => {}
        }
    }

    fn rename_outcome(
        &self,
        child: Option<Id>,
        to: Id,
        other: Option<Id>,
        from: Id,
        replace: Replace,
    ) -> Outcome {
        let model = &self.model;
        let into_itself = |id: Id, directory: Id| model.is_directory(id) && model.is_below(directory, id);
        match (child, other) {
            (None, _) => Outcome::NotFound,
            (_, None) if replace == Replace::Exchange => Outcome::NotFound,
            (_, Some(_)) if replace == Replace::No => Outcome::Exists,
            (Some(child), Some(other)) if child == other => Outcome::Done,
            (Some(child), _) if into_itself(child, to) => Outcome::Invalid,
            (Some(_), Some(other)) if replace == Replace::Exchange && into_itself(other, from) => {
                Outcome::Invalid
            }
            (Some(_), Some(_)) if replace == Replace::Exchange => Outcome::Done,
            (Some(child), Some(other)) => match (model.is_directory(child), model.is_directory(other)) {
                (true, false) => Outcome::NotDirectory,
                (false, true) => Outcome::IsDirectory,
                (true, true) if !model.names(other).is_empty() => Outcome::NotEmpty,
                _ => Outcome::Done,
            },
            _ => Outcome::Done,
        }
    }

    fn offset(&mut self) -> u64 {
        let offset = self.random.below(self.profile.longest);
        if self.random.one_in(3) { offset / self.profile.block * self.profile.block } else { offset }
    }

    fn write(&mut self) {
        let Some(id) = self.file() else { return };
        let size = self.model.bytes_mut(id).len() as u64;
        let offset = if self.random.one_in(2) { size.min(self.profile.longest) } else { self.offset() };
        let longest = if self.random.one_in(4) { 30 * self.profile.block } else { 2 * self.profile.block };
        let length = 1 + self.random.below(longest.min(self.profile.longest));
        let length = if self.random.one_in(4) { 1 + length % 60 } else { length };
        let data = self.random.bytes(length);
        let announced = if self.random.one_in(2) { offset + length } else { 0 };
        let inode = self.inode(id);
        let done = if self.random.one_in(3) {
            self.volume().writer(inode, announced).unwrap().write_all_at(offset, &data)
        } else {
            self.volume().write_at(inode, offset, &data, WriteOptions::default())
        };
        if self.agree("write", &done, Outcome::Done) {
            let bytes = self.model.bytes_mut(id);
            let end = (offset + length) as usize;
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(&data);
        } else {
            // Data in blocks that the file had already may have changed, its size not.
            let mut read = vec![0; size as usize + 1];
            let count = self.volume().read_at(inode, 0, &mut read).unwrap();
            assert_eq!(count as u64, size);
            read.truncate(count);
            *self.model.bytes_mut(id) = read;
        }
        self.check(id);
    }

    fn check(&self, id: Id) {
        let node = self.model.node(id);
        if let Content::File(bytes) = &node.content {
            judge::file(self.volume(), node, bytes);
        }
    }

    fn truncate(&mut self) {
        let Some(id) = self.file() else { return };
        let size = if self.random.one_in(4) { self.random.below(200) } else { self.offset() };
        let done = self.volume().truncate(self.inode(id), size);
        if self.agree("truncate", &done, Outcome::Done) {
            self.model.bytes_mut(id).resize(size as usize, 0);
        }
        self.check(id);
    }

    fn allocate(&mut self) {
        let Some(id) = self.file() else { return };
        let mode = *self
            .random
            .pick(&[
                Allocate::Extend,
                Allocate::KeepSize,
                Allocate::PunchHole,
                Allocate::PunchHole,
                Allocate::ZeroRange,
                Allocate::ZeroRangeKeepSize,
                Allocate::CollapseRange,
                Allocate::InsertRange,
            ])
            .unwrap();
        let (mut offset, mut len) = (self.offset(), 1 + self.random.below(20 * self.profile.block));
        if self.random.one_in(8) {
            len = 1 + self.random.below(self.profile.longest);
        }
        if matches!(mode, Allocate::CollapseRange | Allocate::InsertRange) && !self.random.one_in(8) {
            let size = self.model.bytes_mut(id).len() as u64;
            offset = self.random.below(size.max(1));
            offset -= offset % self.profile.cluster;
            len = len.next_multiple_of(self.profile.cluster);
        }
        let done = self.volume().allocate(self.inode(id), mode, offset, len);
        let expected = self.allocate_outcome(id, mode, offset, len);
        if self.agree(&format!("{mode:?} {offset}+{len}"), &done, expected) {
            apply(self.model.bytes_mut(id), mode, offset as usize, len as usize);
        }
        self.check(id);
    }

    fn allocate_outcome(&mut self, id: Id, mode: Allocate, offset: u64, len: u64) -> Outcome {
        let size = self.model.bytes_mut(id).len() as u64;
        let units = offset.is_multiple_of(self.profile.cluster) && len.is_multiple_of(self.profile.cluster);
        let mapped_by_extents = self.by_extents(id);
        match mode {
            Allocate::PunchHole => Outcome::Done,
            _ if !mapped_by_extents => Outcome::Unsupported,
            Allocate::CollapseRange if !units || offset + len >= size => Outcome::Invalid,
            Allocate::InsertRange if !units || offset >= size => Outcome::Invalid,
            _ => Outcome::Done,
        }
    }

    fn by_extents(&self, id: Id) -> bool {
        use platfs::ondisk::inode::InodeFlags;
        self.volume()
            .metadata(self.inode(id))
            .unwrap()
            .flags
            .intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
    }

    fn xattr(&mut self) {
        let all: Vec<Id> = self.model.nodes.keys().copied().collect();
        let id = *self.random.pick(&all).unwrap();
        // Those of users are for files and directories.
        let is_special = !matches!(self.model.node(id).content, Content::File(_) | Content::Directory(_));
        let namespace = if is_special { "trusted" } else { "user" };
        let key = format!("{namespace}.{}", self.random.below(4)).into_bytes();
        let inode = self.inode(id);
        if self.random.one_in(3) {
            let done = self.volume().inode(inode).remove_xattr(&key);
            let known = self.model.node(id).xattrs.contains_key(&key);
            if self.agree("remove_xattr", &done, if known { Outcome::Done } else { Outcome::NotFound }) {
                self.model.node_mut(id).xattrs.remove(&key);
            }
            return;
        }
        let large = self.profile.name == "value_inodes" && self.random.one_in(4);
        let length = if large { 5000 } else { self.random.below(150) };
        let value = if self.random.one_in(2) { vec![7; length as usize] } else { self.random.bytes(length) };
        let done = self.volume().inode(inode).set_xattr(&key, &value);
        if matches!(done, Err(Error::XattrsTooLarge(_))) {
            return;
        }
        if self.agree("set_xattr", &done, Outcome::Done) {
            self.model.node_mut(id).xattrs.insert(key, value);
        }
    }

    fn attributes(&mut self) {
        let all: Vec<Id> = self.model.nodes.keys().copied().filter(|id| *id != ROOT).collect();
        let Some(id) = self.random.pick(&all).copied() else { return };
        let attributes = self.new_attributes();
        let done = self.volume().inode(self.inode(id)).set_attributes(&attributes);
        if self.agree("set_attributes", &done, Outcome::Done) {
            let node = self.model.node_mut(id);
            node.permissions = attributes.permissions;
            node.owner = (attributes.uid, attributes.gid);
        }
    }

    /// A file that is open lives on without a name, and can be read, written and synced.
    fn unlink_while_open(&mut self) {
        let (directory, name) = self.existing();
        let Some(id) = self.model.names(directory).get(&name).copied() else { return };
        if !matches!(self.model.node(id).content, Content::File(_)) {
            return;
        }
        let volume = self.volume.take().unwrap();
        {
            let file = volume.open_file(self.inode(id)).unwrap();
            volume.unlink(self.inode(directory), &name).unwrap();
            self.model.names_mut(directory).remove(&name);
            let mut read = vec![1; self.model.bytes_mut(id).len() + 1];
            let count = file.read_at(0, &mut read).unwrap();
            assert!(read[..count] == self.model.bytes_mut(id)[..], "an open file without a name");
            if self.random.one_in(2) {
                volume.sync().unwrap();
            }
        }
        self.model.drop_if_unnamed(id, false);
        self.volume = Some(volume);
    }

    fn unnamed(&mut self) {
        let (directory, name, attributes) = (self.directory(), self.name(), self.new_attributes());
        let new = NewInode { kind: Kind::File, attributes, xattrs: &[] };
        let volume = self.volume.take().unwrap();
        let inode = self.inode(directory);
        let keeps = self.random.one_in(2);
        let (done, number) = match volume.create_unnamed(inode, &new) {
            Ok((number, _pin)) if keeps => {
                if self.random.one_in(2) {
                    volume.sync().unwrap();
                }
                (volume.link(number, inode, &name), Some(number))
            }
            Ok(_) => (Err(Error::NotFound), None),
            Err(error) => (Err(error), None),
        };
        self.volume = Some(volume);
        let exists = self.model.names(directory).contains_key(&name);
        let expected = match () {
            () if number.is_none() => Outcome::NotFound,
            () if exists => Outcome::Exists,
            () => Outcome::Done,
        };
        if self.agree("link of a file without a name", &done, expected) {
            let node = Node {
                inode: number.unwrap(),
                content: Content::File(Vec::new()),
                permissions: attributes.permissions,
                owner: (attributes.uid, attributes.gid),
                xattrs: Xattrs::new(),
                parent: directory,
            };
            self.model.add(directory, &name, node);
        }
    }

    /// From extents to block pointers and back.
    fn switch(&mut self) {
        let Some(id) = self.file() else { return };
        if !self.profile.extents {
            return;
        }
        let to_extents = self.random.one_in(2);
        match self.volume().set_mapping(self.inode(id), to_extents) {
            // Clusters, or space that was never written.
            Err(Error::Unsupported(_)) if !to_extents => {}
            done => {
                self.agree("set_mapping", &done, Outcome::Done);
            }
        }
        self.check(id);
    }

    fn relocate(&mut self) {
        let Some(id) = self.file() else { return };
        let goal = [
            RelocationGoal::Wholeness,
            RelocationGoal::Front,
            RelocationGoal::Outside { start: 0, end: 2000 },
        ];
        let wish = Relocation {
            most_pieces: 1 + self.random.below(5),
            goal: *self.random.pick(&goal).unwrap(),
            directory: None,
        };
        let done = self.volume().inode(self.inode(id)).relocate(&wish, &|_| {});
        self.agree("relocate", &done, Outcome::Done);
        self.check(id);
    }
}

fn apply(bytes: &mut Vec<u8>, mode: Allocate, offset: usize, len: usize) {
    let end = offset + len;
    match mode {
        Allocate::Extend => bytes.resize(bytes.len().max(end), 0),
        Allocate::KeepSize => {}
        Allocate::PunchHole | Allocate::ZeroRange | Allocate::ZeroRangeKeepSize => {
            if mode == Allocate::ZeroRange {
                bytes.resize(bytes.len().max(end), 0);
            }
            let size = bytes.len();
            bytes[offset.min(size)..end.min(size)].fill(0);
        }
        Allocate::CollapseRange => {
            bytes.drain(offset..end);
        }
        Allocate::InsertRange => {
            bytes.splice(offset..offset, std::iter::repeat_n(0, len));
        }
    }
}
