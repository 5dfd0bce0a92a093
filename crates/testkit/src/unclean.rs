//! Images as a crash leaves them: taken from below a mount of the kernel that is being worked on, with changes
//! in the journal.
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use crate::mount::Mounted;
use crate::random::Random;
use crate::scratch::Scratch;
use crate::tool;
use rustix::fs::XattrFlags;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

/// A kind of volume, and how it is mounted.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// For messages.
    pub name: &'static str,
    /// Options for mke2fs.
    pub mke2fs: &'static [&'static str],
    /// Options for mount(8), beside `loop`.
    pub mount: &'static str,
}

/// Kinds that differ in what the journal looks like.
pub const KINDS: &[Kind] = &[
    Kind { name: "ext3-1k", mke2fs: &["-t", "ext3", "-b", "1024", "-J", "size=1"], mount: "data=ordered" },
    Kind {
        name: "ext4-4k-csum3-64bit",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "64bit,metadata_csum", "-J", "size=4"],
        mount: "data=ordered",
    },
    Kind {
        name: "ext4-1k-csum3-data",
        mke2fs: &["-t", "ext4", "-b", "1024", "-O", "metadata_csum", "-J", "size=1"],
        mount: "data=journal,nodelalloc",
    },
    Kind {
        name: "ext4-4k-narrow-writeback",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "^64bit,^metadata_csum", "-J", "size=4"],
        mount: "data=writeback",
    },
    Kind {
        name: "ext4-2k-csum1",
        mke2fs: &["-t", "ext4", "-b", "2048", "-O", "^64bit,^metadata_csum", "-J", "size=2"],
        mount: "data=ordered,journal_checksum",
    },
    Kind {
        name: "ext4-1k-csum1-async",
        mke2fs: &["-t", "ext4", "-b", "1024", "-O", "64bit,^metadata_csum", "-J", "size=1"],
        mount: "data=writeback,journal_async_commit",
    },
];

/// A volume that is being worked on through a mount of the kernel.
pub struct UncleanVolume {
    image: PathBuf,
    mounted: Mounted,
    random: Random,
    made: u64,
}

/// Attempts to find the image still. The kernel writes in bursts.
const TRIES: u32 = 50;

impl UncleanVolume {
    /// Makes a volume in `scratch` and mounts it.
    ///
    /// # Errors
    /// As [`Mounted::kernel`].
    ///
    /// # Panics
    /// When mke2fs fails.
    pub fn new(scratch: &Scratch, kind: &Kind, seed: u64) -> Result<Self, String> {
        let image = scratch.join(format!("{}.img", kind.name));
        tool::run(tool::command("mke2fs").args(["-q", "-F"]).args(kind.mke2fs).arg(&image).arg("24M"));
        let options = format!("loop,rw,acl,user_xattr,commit=1,{}", kind.mount);
        let mounted = Mounted::kernel(&image, &options)?;
        Ok(UncleanVolume { image, mounted, random: Random(seed), made: 0 })
    }

    /// `steps` random changes. What fails because of earlier ones (a full volume, a name that is gone) is passed over.
    pub fn work(&mut self, steps: u64) {
        for _ in 0..steps {
            let _ = self.step();
        }
    }

    /// One of a few places: names are used again and again.
    fn place(&mut self) -> PathBuf {
        let root = self.mounted.path().to_owned();
        let directory = self.random.below(6);
        let name = self.random.below(40);
        root.join(format!("dir{directory}")).join(format!("name-{name:03}"))
    }

    fn step(&mut self) -> io::Result<()> {
        self.made += 1;
        let (path, other) = (self.place(), self.place());
        match self.random.below(16) {
            0..=3 => {
                if let Some(directory) = path.parent() {
                    // It exists most of the time.
                    let _ = fs::create_dir(directory);
                }
                let len = self.random.below(40_000);
                fs::write(&path, self.contents(len))
            }
            4 => {
                let file = OpenOptions::new().append(true).open(&path)?;
                let at = file.metadata()?.len();
                let len = self.random.below(9_000);
                file.write_all_at(&self.contents(len), at)
            }
            5 => OpenOptions::new().write(true).open(&path)?.set_len(self.random.below(20_000)),
            6 | 7 => fs::remove_file(&path),
            8 => fs::rename(&path, &other),
            9 => fs::hard_link(&path, &other),
            // A directory and its blocks go, and come back as something else.
            10 => fs::remove_dir_all(path.parent().unwrap_or(&path)),
            11 => symlink(link_target(&mut self.random), &path),
            12 => {
                let len = self.random.below(900);
                let value = self.random.bytes(len);
                Ok(rustix::fs::setxattr(&path, "user.value", &value, XattrFlags::empty())?)
            }
            13 | 14 => File::open(&path)?.sync_all(),
            _ => {
                rustix::fs::syncfs(File::open(self.mounted.path())?)?;
                Ok(())
            }
        }
    }

    /// Bytes of which now and then a block begins like one of the journal.
    fn contents(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = self.random.bytes(len);
        if self.random.one_in(3) {
            for block in bytes.chunks_mut(1024).filter(|block| block.len() >= 4) {
                block[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
            }
        }
        bytes
    }

    /// A copy of the image as it is at one moment: it did not change between two readings. `None` if it
    /// never stood still.
    ///
    /// # Panics
    /// When it can't be copied.
    pub fn snapshot(&self, to: &Path) -> Option<()> {
        let read = || fs::read(&self.image).unwrap_or_else(|e| panic!("{}: {e}", self.image.display()));
        let mut before = read();
        for _ in 0..TRIES {
            let now = read();
            if now == before {
                fs::write(to, now).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
                return Some(());
            }
            before = now;
        }
        None
    }
}

/// A target that takes a block, which begins like one of the journal at times: such a block is metadata.
fn link_target(random: &mut Random) -> PathBuf {
    let mut target = if random.one_in(2) { vec![0xC0, 0x3B, 0x39, 0x98] } else { Vec::new() };
    target.extend((0..100).map(|_| b'a' + random.below(26) as u8));
    PathBuf::from(std::ffi::OsString::from_vec(target))
}
