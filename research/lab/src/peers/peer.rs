//! The systems that are compared: what they need, how their volumes are made, and how they are mounted.

use std::path::PathBuf;

use platfs::device::FileDevice;
use platfs::mkfs::{FsType, Options, Plan};

use super::census::Census;
use super::cold;
use super::place::{Mounted, WorkDir};
use super::tool;
use crate::system::{Computer, Directory, Library, Op, Phase, Stream};
use crate::workload::{Outcome, in_real_time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Library,
    Fuse,
    Kernel(&'static str),
    Fuse2fs,
}

const KINDS: &[(&str, Kind)] = &[
    ("library", Kind::Library),
    ("fuse", Kind::Fuse),
    ("ext4", Kind::Kernel("ext4")),
    ("xfs", Kind::Kernel("xfs")),
    ("btrfs", Kind::Kernel("btrfs")),
    ("fuse2fs", Kind::Fuse2fs),
];

/// A system, perhaps with mount options of its own.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// As it was asked for: `ext4`, `ext4:nodelalloc,data=writeback`.
    pub(super) name: String,
    kind: Kind,
    options: String,
    /// The program `plat`.
    plat: Option<PathBuf>,
}

impl Peer {
    /// Reads `NAME` or `NAME:OPTIONS`.
    ///
    /// # Errors
    /// There is none of that name; the message names all.
    pub(super) fn named(name: &str, plat: Option<PathBuf>) -> Result<Peer, String> {
        let (kind, options) = name.split_once(':').unwrap_or((name, ""));
        let names = || KINDS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let found = KINDS.iter().find(|(known, _)| *known == kind);
        let (_, kind) = found.ok_or_else(|| format!("no system is called {kind}; there are {}", names()))?;
        if *kind == Kind::Library && !options.is_empty() {
            return Err(format!("{name}: the library takes no mount options"));
        }
        Ok(Peer { name: name.into(), kind: *kind, options: options.into(), plat })
    }

    /// Why it can't run here.
    pub(super) fn missing(&self) -> Option<String> {
        if self.kind == Kind::Library {
            return None;
        }
        if !tool::can_mount() {
            return Some("needs root".into());
        }
        let (tools, device): (&[&str], _) = match self.kind {
            Kind::Library => (&[], ""),
            Kind::Fuse => (&["umount"], "/dev/fuse"),
            Kind::Fuse2fs => (&["umount", "fuse2fs"], "/dev/fuse"),
            Kind::Kernel("xfs") => {
                (&["umount", "mount", "mkfs.xfs", "filefrag", "xfs_spaceman"], "/dev/loop-control")
            }
            Kind::Kernel("btrfs") => (&["umount", "mount", "mkfs.btrfs", "filefrag"], "/dev/loop-control"),
            Kind::Kernel(_) => (&["umount", "mount"], "/dev/loop-control"),
        };
        let tool = tools.iter().find(|tool| tool::find(tool).is_none());
        if let Some(tool) = tool {
            return Some(format!("{tool} is not installed"));
        }
        if !std::path::Path::new(device).exists() {
            return Some(format!("there is no {device}"));
        }
        match self.kind {
            Kind::Kernel(fs_type) if !kernel_has(fs_type) => Some(format!("this kernel has no {fs_type}")),
            Kind::Fuse if self.plat.is_none() => {
                Some("there is no `plat` beside plat-lab; say --plat PATH".into())
            }
            _ => None,
        }
    }

    /// Makes a volume of a size in bytes. All of the ext family begin with the same.
    ///
    /// # Errors
    /// The message of mkfs.
    pub(super) fn make(&self, place: &WorkDir, size: u64) -> Result<(), String> {
        place.empty_image(size)?;
        let image = place.image();
        match self.kind {
            Kind::Kernel(fs_type @ ("xfs" | "btrfs")) => {
                let quiet = ["-q".as_ref(), "-f".as_ref(), image.as_os_str()];
                tool::run(&format!("mkfs.{fs_type}"), quiet).map(drop)
            }
            _ => {
                let failure = |error: &dyn std::fmt::Display| format!("{}: {error}", image.display());
                let file = std::fs::File::options().read(true).write(true).open(&image);
                let device = FileDevice::new(file.map_err(|error| failure(&error))?)
                    .map_err(|error| failure(&error))?;
                let plan = Plan::new(&Options::new(FsType::Ext4), size).map_err(|error| failure(&error))?;
                plan.write(&device).map_err(|error| failure(&error))
            }
        }
    }

    /// Runs a phase on the volume, from mounting it to unmounting it; the time is that of the calls, with a sync
    /// of all behind them.
    ///
    /// # Errors
    /// It can't be mounted; the first call that failed.
    pub(super) fn run(&self, place: &WorkDir, phase: Phase) -> Result<Outcome, String> {
        if self.kind == Kind::Library {
            let library = Library::<Computer>::on_image(&place.image(), &Computer::mounting())?;
            let done = library.kept(|| synced(&library, phase));
            let closed = library.close();
            return done.and_then(|outcome| closed.map(|()| outcome));
        }
        let mounted = self.mount(place, &self.options)?;
        let done = synced(&Directory::new(mounted.path()), phase);
        let ended = mounted.end();
        done.and_then(|outcome| ended.map(|()| outcome))
    }

    fn mount<'p>(&self, place: &'p WorkDir, options: &str) -> Result<Mounted<'p>, String> {
        let foreground = |more: &'static str| match options {
            "" => vec!["-f"],
            options => vec!["-f", more, options],
        };
        match self.kind {
            Kind::Kernel(fs_type) => Mounted::kernel(place, fs_type, options),
            Kind::Fuse2fs => {
                let program = tool::find("fuse2fs").ok_or("fuse2fs is not installed")?;
                Mounted::served(place, &program, &foreground("-o"))
            }
            Kind::Library | Kind::Fuse => {
                let plat = self.plat.as_ref().ok_or("there is no plat")?;
                let words = foreground("-o");
                let words: Vec<&str> = std::iter::once("mount").chain(words).collect();
                Mounted::served(place, plat, &words)
            }
        }
    }

    /// How things lie on the volume, while it is not mounted.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn census(&self, place: &WorkDir) -> Result<Census, String> {
        match self.kind {
            Kind::Kernel(fs_type @ ("xfs" | "btrfs")) => {
                let mounted = self.mount(place, "ro")?;
                let census = Census::of_mount(&mounted.path(), fs_type == "xfs");
                mounted.end()?;
                census
            }
            _ => Census::of_ext(&place.image()),
        }
    }

    /// How long all of the volume is read with nothing cached, in model time; of ext volumes only.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn cold(&self, place: &WorkDir) -> Result<Vec<(&'static str, f64)>, String> {
        match self.kind {
            Kind::Kernel("xfs" | "btrfs") => Ok(Vec::new()),
            _ => cold::figures(&place.image()),
        }
    }
}

fn synced(system: &dyn crate::system::System, phase: Phase) -> Result<Outcome, String> {
    let mut outcome = in_real_time(system, phase)?;
    let sync: Stream = Box::new(std::iter::once(Op::SyncAll));
    outcome.time += in_real_time(system, Phase::new("sync", vec![sync]))?.time;
    Ok(outcome)
}

fn kernel_has(fs_type: &str) -> bool {
    let listed = || {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        known.lines().any(|line| line.split_whitespace().last() == Some(fs_type))
    };
    // A module may wait to be loaded; where it can't be, the list says so.
    listed() || (tool::run("modprobe", ["-q", fs_type]).is_ok() && listed())
}
