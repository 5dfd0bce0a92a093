//! A disk that is as slow as a test wants: a file system of one file, whose bytes lie in a file elsewhere.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fuse::{
    Access, Attributes, Cached, Caller, Entry, Errno, FileType, FlushPages, GiveWay, Listed, NewNode, Opened,
    ROOT, ReadFlags, Replace, Result, Seek, Service, Session, SetAttr, Statistics, Time, Transport,
    WriteFlags, WritePos,
};

const NAME: &[u8] = b"disk.img";
const NODE: u64 = ROOT + 1;

/// How fast the disk is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Free,
    /// Each request takes so long.
    Each(Duration),
    /// No request is answered.
    Held,
}

struct Disk {
    file: File,
    pace: Mutex<Pace>,
    changed: Condvar,
}

/// The disk, mounted.
pub struct Slow {
    disk: Arc<Disk>,
    directory: PathBuf,
    session: Option<Session>,
}

impl Slow {
    /// Brings a file to a disk that is fast as yet, at a directory that is made.
    pub fn new(file: &Path, directory: &Path) -> Self {
        std::fs::create_dir(directory).unwrap();
        let file = File::options().read(true).write(true).open(file).unwrap();
        let disk = Arc::new(Disk { file, pace: Mutex::new(Pace::Free), changed: Condvar::new() });
        let directory = fuse::mount_point(directory).unwrap();
        let options = fuse::Options {
            source: "slow".into(),
            subtype: "slow".into(),
            read_only: false,
            allow_other: false,
            suid: false,
            dev: false,
            exec: false,
            acl: false,
            own_permissions: false,
            writeback: false,
            transport: Transport::Device,
            give_way: GiveWay::Auto,
            threads: 4,
            time_unit: 1,
        };
        let session = Session::start(Arc::clone(&disk) as Arc<dyn Service>, &directory, &options).unwrap();
        Slow { disk, directory, session: Some(session) }
    }

    /// From now on each request takes so long.
    pub fn each(&self, time: Duration) {
        self.disk.go(Pace::Each(time));
    }

    /// Answers no more, and the kernel knows nothing of it.
    pub fn hold(&self) {
        let file = File::open(self.directory.join("disk.img")).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        self.disk.go(Pace::Held);
    }

    /// Is fast again.
    pub fn release(&self) {
        self.disk.go(Pace::Free);
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.release();
        let _ = fuse::unmount(&self.directory, true);
        if let Some(session) = self.session.take() {
            let _ = session.wait();
        }
    }
}

impl Disk {
    fn go(&self, pace: Pace) {
        *self.pace.lock().unwrap() = pace;
        self.changed.notify_all();
    }

    /// Takes the time that a request takes.
    fn pass(&self) {
        let mut pace = self.pace.lock().unwrap();
        loop {
            pace = match *pace {
                Pace::Free => return,
                Pace::Held => self.changed.wait(pace).unwrap(),
                Pace::Each(time) => {
                    let (pace, waited) = self.changed.wait_timeout(pace, time).unwrap();
                    if waited.timed_out() {
                        return;
                    }
                    pace
                }
            }
        }
    }

    fn known(&self, node: u64) -> Attributes {
        let facts = self.file.metadata().unwrap();
        let time = Time { seconds: 1, nanoseconds: 0 };
        Attributes {
            inode: node,
            file_type: if node == ROOT { FileType::Directory } else { FileType::Regular },
            permissions: 0o700,
            links: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            device: (0, 0),
            size: facts.len(),
            sectors: facts.len() / 512,
            block_size: 4096,
            access: time,
            modify: time,
            change: time,
            birth: None,
        }
    }
}

fn host(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl Service for Disk {
    fn lookup(&self, _: u64, name: &[u8]) -> Result<Entry> {
        let node = match name {
            NAME => NODE,
            b"." | b".." => ROOT,
            _ => return Err(Errno::NOENT),
        };
        Ok(Entry { node, generation: 0, attributes: self.known(node) })
    }

    fn forget(&self, _: u64, _: u64) {}

    fn attributes(&self, node: u64) -> Result<Attributes> {
        Ok(self.known(node))
    }

    fn open(&self, _: u64, _: Access) -> Result<Opened> {
        Ok(Opened::default())
    }

    fn read(&self, _: u64, offset: u64, buffer: &mut [u8], _: ReadFlags) -> Result<usize> {
        self.pass();
        let mut read = 0;
        while read < buffer.len() {
            match self.file.read_at(&mut buffer[read..], offset + read as u64).map_err(host)? {
                0 => break,
                more => read += more,
            }
        }
        Ok(read)
    }

    fn write(&self, _: u64, offset: u64, data: &[u8], _: WriteFlags) -> Result<Cached> {
        self.pass();
        self.file.write_all_at(data, offset).map_err(host)?;
        Ok(Cached::Valid)
    }

    fn sync(&self, _: u64, _: bool) -> Result<Cached> {
        self.pass();
        Ok(Cached::Valid)
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn change(&self, _: Caller, node: u64, change: &SetAttr) -> Result<(Attributes, Cached)> {
        if let Some(size) = change.size {
            self.file.set_len(size).map_err(host)?;
        }
        Ok((self.known(node), Cached::Valid))
    }

    fn statistics(&self, _: u64) -> Result<Statistics> {
        Ok(Statistics::default())
    }

    fn list(&self, _: u64, position: u64, _: bool, take: &mut dyn FnMut(&Listed<'_>) -> bool) -> Result<()> {
        if position == 0 {
            take(&Listed { name: NAME, inode: NODE, file_type: FileType::Regular, next: 1, entry: None });
        }
        Ok(())
    }

    fn read_link(&self, _: u64) -> Result<Vec<u8>> {
        Err(Errno::INVAL)
    }

    fn xattr(&self, _: u64, _: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::NOSYS)
    }

    fn xattr_names(&self, _: Caller, _: u64) -> Result<Vec<Vec<u8>>> {
        Err(Errno::NOSYS)
    }

    fn seek(&self, _: u64, _: u64, _: Seek, _: Option<FlushPages<'_>>) -> Result<u64> {
        Err(Errno::NOSYS)
    }

    fn control(&self, _: Caller, _: u64, _: u32, _: &[u8], _: usize) -> Result<Vec<u8>> {
        Err(Errno::NOTTY)
    }

    fn create(&self, _: Caller, _: u64, _: &[u8], _: &NewNode<'_>) -> Result<Entry> {
        Err(Errno::PERM)
    }

    fn create_unnamed(&self, _: Caller, _: u64, _: &NewNode<'_>) -> Result<Entry> {
        Err(Errno::OPNOTSUPP)
    }

    fn link(&self, _: Caller, _: u64, _: u64, _: &[u8]) -> Result<Entry> {
        Err(Errno::PERM)
    }

    fn unlink(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(Errno::PERM)
    }

    fn remove_directory(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(Errno::PERM)
    }

    fn rename(&self, _: Caller, _: (u64, &[u8]), _: (u64, &[u8]), _: Replace) -> Result<()> {
        Err(Errno::PERM)
    }

    fn allocate(&self, _: Caller, _: u64, mode: u32, (start, len): (u64, u64)) -> Result<Cached> {
        self.pass();
        let mode = rustix::fs::FallocateFlags::from_bits_retain(mode);
        rustix::fs::fallocate(&self.file, mode, start, len)?;
        Ok(Cached::Valid)
    }

    fn copy(&self, _: Caller, _: (u64, u64), _: WritePos, _: u64) -> Result<(u64, Cached)> {
        Err(Errno::NOSYS)
    }

    fn set_xattr(&self, _: Caller, _: u64, _: &[u8], _: &[u8], _: u32) -> Result<()> {
        Err(Errno::NOSYS)
    }

    fn remove_xattr(&self, _: Caller, _: u64, _: &[u8]) -> Result<()> {
        Err(Errno::NOSYS)
    }
}
