//! Operations that the flags *immutable* and *append only* forbid, and those that take the special bits and the
//! capabilities of a file: each verb of the library beside the same call on the kernel's ext4, which says what is
//! right.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use super::{ROOT, new, on_disk, volume};
use platfs::mkfs::FsType;
use platfs::ondisk::inode::{InodeFlags, Timestamp};
use platfs::ondisk::units::InodeNumber;
use platfs::{Allocate, AttributeChange, Error, Kind, Replace, Volume, WriteOptions};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, IFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    Uid, XattrFlags,
};
use testkit::mount::{Mounted, have_loop_mount};
use testkit::scratch::Scratch;

/// Contents of the file.
const CONTENTS: &[u8] = &[1; 16 << 10];
const SIZE: u64 = CONTENTS.len() as u64;
const BLOCK: u64 = 4 << 10;

/// Our side of a case: a directory with `file`, `empty` (a directory) and `other`, and beside it `elsewhere`.
struct Ours<'v> {
    volume: &'v Volume,
    top: InodeNumber,
    directory: InodeNumber,
    file: InodeNumber,
    other: InodeNumber,
}

/// The kernel's: the same below a path. The file is open for writing since before it was flagged.
struct Theirs<'p> {
    top: &'p Path,
    opened: &'p File,
}

impl Theirs<'_> {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.top.join(name)
    }
}

type OnOurs = fn(&Ours<'_>) -> platfs::Result<()>;
type OnTheirs = fn(&Theirs<'_>) -> io::Result<()>;
type Row = (&'static str, OnOurs, OnTheirs);

fn allocate(ours: &Ours<'_>, mode: Allocate) -> platfs::Result<()> {
    ours.volume.allocate(ours.file, mode, 0, BLOCK)
}

fn fallocate(theirs: &Theirs<'_>, mode: FallocateFlags) -> io::Result<()> {
    Ok(rustix::fs::fallocate(theirs.opened, mode, 0, BLOCK)?)
}

fn set_time(path: &Path, time: i64) -> io::Result<()> {
    let at = Timespec { tv_sec: time, tv_nsec: if time == 0 { rustix::fs::UTIME_NOW } else { 0 } };
    let times = Timestamps { last_access: at, last_modification: at };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?)
}

fn rename(theirs: &Theirs<'_>, from: &str, to: &str, flags: RenameFlags) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(CWD, theirs.path(from), CWD, theirs.path(to), flags)?)
}

fn change(ours: &Ours<'_>, change: AttributeChange) -> platfs::Result<()> {
    ours.volume.inode(ours.file).change(&change).map(drop)
}

const AT: Timestamp = Timestamp { seconds: 5, nanoseconds: 0 };

/// Operations on the file, and on the directory through the file's name.
const TO_THE_FILE: &[Row] = &[
    (
        "overwrite",
        |o| o.volume.write_at(o.file, 0, b"new", WriteOptions::default()),
        |t| OpenOptions::new().write(true).open(t.path("d/file"))?.write_all_at(b"new", 0),
    ),
    (
        "append",
        |o| {
            o.volume.inode(o.file).may_open(true)?;
            o.volume.write_at(o.file, SIZE, b"new", WriteOptions::default())
        },
        |t| OpenOptions::new().append(true).open(t.path("d/file"))?.write_all(b"new"),
    ),
    (
        "append by a writer",
        |o| o.volume.writer(o.file, 0)?.write_all_at(SIZE, b"new"),
        |t| OpenOptions::new().append(true).open(t.path("d/file"))?.write_all(b"new"),
    ),
    (
        "open",
        |o| o.volume.inode(o.file).may_open(false),
        |t| OpenOptions::new().write(true).open(t.path("d/file")).map(drop),
    ),
    ("truncate", |o| o.volume.truncate(o.file, 3), |t| t.opened.set_len(3)),
    ("lengthen", |o| o.volume.extend(o.file, SIZE + 3), |t| t.opened.set_len(SIZE + 3)),
    ("allocate", |o| allocate(o, Allocate::Extend), |t| fallocate(t, FallocateFlags::empty())),
    ("keep size", |o| allocate(o, Allocate::KeepSize), |t| fallocate(t, FallocateFlags::KEEP_SIZE)),
    (
        "punch",
        |o| allocate(o, Allocate::PunchHole),
        |t| fallocate(t, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
    ),
    ("zero", |o| allocate(o, Allocate::ZeroRange), |t| fallocate(t, FallocateFlags::ZERO_RANGE)),
    ("collapse", |o| allocate(o, Allocate::CollapseRange), |t| fallocate(t, FallocateFlags::COLLAPSE_RANGE)),
    ("insert", |o| allocate(o, Allocate::InsertRange), |t| fallocate(t, FallocateFlags::INSERT_RANGE)),
    (
        "chmod",
        |o| o.volume.inode(o.file).set_permissions(0o600),
        |t| fs::set_permissions(t.path("d/file"), PermissionsExt::from_mode(0o600)),
    ),
    (
        "chmod in a change",
        |o| change(o, AttributeChange { permissions: Some(0o600), ..AttributeChange::default() }),
        |t| fs::set_permissions(t.path("d/file"), PermissionsExt::from_mode(0o600)),
    ),
    (
        "chown",
        |o| o.volume.inode(o.file).set_owner(Some(7), None),
        |t| std::os::unix::fs::chown(t.path("d/file"), Some(7), None),
    ),
    (
        "set times",
        |o| o.volume.inode(o.file).set_times(Some(AT), Some(AT)),
        |t| set_time(&t.path("d/file"), AT.seconds),
    ),
    (
        "touch",
        |o| {
            let now = Some(o.volume.now());
            let times = AttributeChange { access: now, modify: now, ..AttributeChange::default() };
            change(o, AttributeChange { touch: true, ..times })
        },
        |t| set_time(&t.path("d/file"), 0),
    ),
    (
        "set an attribute",
        |o| o.volume.inode(o.file).set_xattr(b"user.new", b"v"),
        |t| Ok(rustix::fs::setxattr(t.path("d/file"), "user.new", b"v", XattrFlags::empty())?),
    ),
    (
        "remove an attribute",
        |o| o.volume.inode(o.file).remove_xattr(b"user.old"),
        |t| Ok(rustix::fs::removexattr(t.path("d/file"), "user.old")?),
    ),
    ("link", |o| o.volume.link(o.file, o.top, b"more"), |t| fs::hard_link(t.path("d/file"), t.path("more"))),
    ("unlink", |o| o.volume.unlink(o.directory, b"file"), |t| fs::remove_file(t.path("d/file"))),
    (
        "move away",
        |o| o.volume.rename(o.directory, b"file", o.top, b"moved", Replace::Yes),
        |t| fs::rename(t.path("d/file"), t.path("moved")),
    ),
    (
        "replace",
        |o| o.volume.rename(o.directory, b"other", o.directory, b"file", Replace::Yes),
        |t| fs::rename(t.path("d/other"), t.path("d/file")),
    ),
    (
        "exchange",
        |o| o.volume.rename(o.directory, b"other", o.directory, b"file", Replace::Exchange),
        |t| rename(t, "d/other", "d/file", RenameFlags::EXCHANGE),
    ),
    (
        "leave a whiteout",
        |o| {
            let (from, to) = ((o.directory, &b"file"[..]), (o.top, &b"moved"[..]));
            o.volume.rename_with_whiteout(from, to, Replace::Yes, platfs::Attributes::default())
        },
        |t| rename(t, "d/file", "moved", RenameFlags::WHITEOUT),
    ),
    (
        "set another flag",
        |o| {
            let flags = o.volume.metadata(o.file)?.flags;
            o.volume.inode(o.file).set_flags(flags | InodeFlags::NODUMP)
        },
        |t| {
            let flags = rustix::fs::ioctl_getflags(t.opened)?;
            Ok(rustix::fs::ioctl_setflags(t.opened, flags | IFlags::NODUMP)?)
        },
    ),
];

fn make(o: &Ours<'_>, name: &[u8], kind: Kind<'_>) -> platfs::Result<()> {
    o.volume.create(o.directory, name, &new(kind)).map(drop)
}

/// Operations on the directory.
const TO_THE_DIRECTORY: &[Row] = &[
    ("create", |o| make(o, b"new", Kind::File), |t| File::create_new(t.path("d/new")).map(drop)),
    ("mkdir", |o| make(o, b"new", Kind::Directory), |t| fs::create_dir(t.path("d/new"))),
    ("symlink", |o| make(o, b"new", Kind::Symlink(b"x")), |t| symlink("x", t.path("d/new"))),
    (
        "mknod",
        |o| make(o, b"new", Kind::CharDevice(1, 3)),
        |t| {
            let device = rustix::fs::makedev(1, 3);
            Ok(rustix::fs::mknodat(CWD, t.path("d/new"), FileType::CharacterDevice, Mode::empty(), device)?)
        },
    ),
    (
        "a file without a name",
        |o| o.volume.create_unnamed(o.directory, &new(Kind::File)).map(drop),
        |t| {
            let flags = OFlags::TMPFILE | OFlags::RDWR;
            rustix::fs::open(t.path("d"), flags, Mode::RUSR).map(drop).map_err(io::Error::from)
        },
    ),
    (
        "link into",
        |o| o.volume.link(o.other, o.directory, b"new"),
        |t| fs::hard_link(t.path("d/other"), t.path("d/new")),
    ),
    (
        "write to a file in it",
        |o| o.volume.write_at(o.file, 0, b"new", WriteOptions::default()),
        |t| OpenOptions::new().write(true).open(t.path("d/file"))?.write_all_at(b"new", 0),
    ),
    ("unlink", |o| o.volume.unlink(o.directory, b"file"), |t| fs::remove_file(t.path("d/file"))),
    ("rmdir", |o| o.volume.rmdir(o.directory, b"empty"), |t| fs::remove_dir(t.path("d/empty"))),
    ("rmdir of itself", |o| o.volume.rmdir(o.top, b"bare"), |t| fs::remove_dir(t.path("bare"))),
    (
        "move inside",
        |o| o.volume.rename(o.directory, b"file", o.directory, b"new", Replace::Yes),
        |t| fs::rename(t.path("d/file"), t.path("d/new")),
    ),
    (
        "move in",
        |o| o.volume.rename(o.top, b"elsewhere", o.directory, b"new", Replace::Yes),
        |t| fs::rename(t.path("elsewhere"), t.path("d/new")),
    ),
    (
        "move in over another",
        |o| o.volume.rename(o.top, b"elsewhere", o.directory, b"file", Replace::Yes),
        |t| fs::rename(t.path("elsewhere"), t.path("d/file")),
    ),
    (
        "move out",
        |o| o.volume.rename(o.directory, b"file", o.top, b"new", Replace::Yes),
        |t| fs::rename(t.path("d/file"), t.path("new")),
    ),
    (
        "move itself",
        |o| o.volume.rename(o.top, b"d", o.top, b"new", Replace::Yes),
        |t| fs::rename(t.path("d"), t.path("new")),
    ),
    (
        "chmod",
        |o| o.volume.inode(o.directory).set_permissions(0o700),
        |t| fs::set_permissions(t.path("d"), PermissionsExt::from_mode(0o700)),
    ),
];

/// The number of the error; none where it was done.
fn of_theirs(done: io::Result<()>) -> Option<i32> {
    done.err().map(|error| error.raw_os_error().unwrap_or(0))
}

fn of_ours(done: platfs::Result<()>) -> Option<i32> {
    match done {
        Ok(()) => None,
        Err(Error::NotPermitted(_)) => Some(rustix::io::Errno::PERM.raw_os_error()),
        Err(error) => panic!("{error}"),
    }
}

fn run_ours(volume: &Volume, name: &str, on_file: bool, flag: InodeFlags, verb: OnOurs) -> Option<i32> {
    let make = |parent, name: &str, kind| volume.create(parent, name.as_bytes(), &new(kind)).unwrap();
    let top = make(ROOT, name, Kind::Directory);
    let directory = make(top, "d", Kind::Directory);
    let bare = make(top, "bare", Kind::Directory);
    let (file, other) = (make(directory, "file", Kind::File), make(directory, "other", Kind::File));
    make(directory, "empty", Kind::Directory);
    make(top, "elsewhere", Kind::File);
    volume.writer(file, SIZE).unwrap().write_all_at(0, CONTENTS).unwrap();
    volume.inode(file).set_xattr(b"user.old", b"v").unwrap();
    for inode in if on_file { vec![file] } else { vec![directory, bare] } {
        let flags = volume.metadata(inode).unwrap().flags;
        volume.inode(inode).set_flags(flags | flag).unwrap();
    }
    of_ours(verb(&Ours { volume, top, directory, file, other }))
}

fn flag_theirs(path: &Path, flag: IFlags) {
    let file = File::open(path).unwrap();
    let flags = rustix::fs::ioctl_getflags(&file).unwrap();
    rustix::fs::ioctl_setflags(&file, flags | flag).unwrap();
}

fn run_theirs(root: &Path, name: &str, on_file: bool, flag: IFlags, verb: OnTheirs) -> Option<i32> {
    let top = root.join(name);
    for directory in ["", "d", "d/empty", "bare"] {
        fs::create_dir(top.join(directory)).unwrap();
    }
    fs::write(top.join("d/file"), CONTENTS).unwrap();
    fs::write(top.join("d/other"), "").unwrap();
    fs::write(top.join("elsewhere"), "").unwrap();
    rustix::fs::setxattr(top.join("d/file"), "user.old", b"v", XattrFlags::empty()).unwrap();
    let opened = OpenOptions::new().read(true).write(true).open(top.join("d/file")).unwrap();
    for place in if on_file { &["d/file"][..] } else { &["d", "bare"] } {
        flag_theirs(&top.join(place), flag);
    }
    of_theirs(verb(&Theirs { top: &top, opened: &opened }))
}

#[test]
fn flags_forbid_what_they_forbid_in_the_kernel() {
    let test = "flags_forbid_what_they_forbid_in_the_kernel";
    if !have_loop_mount(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = scratch.join("theirs.img");
    drop(on_disk(&image, FsType::Ext4, ""));
    let kernel = Mounted::read_write(&image).unwrap();
    let volume = volume("");
    let states = [
        ("plain", IFlags::empty(), InodeFlags::empty()),
        ("append", IFlags::APPEND, InodeFlags::APPEND),
        ("immutable", IFlags::IMMUTABLE, InodeFlags::IMMUTABLE),
    ];
    let (mut cases, mut refused, mut differ) = (0, 0, Vec::new());
    for (rows, on_file) in [(TO_THE_FILE, true), (TO_THE_DIRECTORY, false)] {
        for (verb, ours, theirs) in rows {
            for (state, their_flag, our_flag) in states {
                let name = format!("{} {state} {verb}", if on_file { "file" } else { "directory" });
                let expected = run_theirs(kernel.path(), &name, on_file, their_flag, *theirs);
                let found = run_ours(&volume, &name, on_file, our_flag, *ours);
                if expected != found {
                    differ.push(format!("{name}: the kernel {expected:?}, here {found:?}"));
                }
                (cases, refused) = (cases + 1, refused + usize::from(expected.is_some()));
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(
        refused > 40 && refused < cases - 40,
        "{refused} of {cases} were refused: the table says something"
    );
}

const NAME: &str = "security.capability";

/// Capability of a program, in the form that setcap writes.
fn capability() -> Vec<u8> {
    let mut value = 0x0200_0001_u32.to_le_bytes().to_vec();
    value.extend([0, 0x20, 0, 0].iter().chain(&[0; 12]));
    value
}

#[test]
fn new_contents_and_owners_take_capabilities_as_in_the_kernel() {
    let test = "new_contents_and_owners_take_capabilities_as_in_the_kernel";
    if !have_loop_mount(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = scratch.join("theirs.img");
    drop(on_disk(&image, FsType::Ext4, ""));
    let kernel = Mounted::read_write(&image).unwrap();
    let volume = volume("");
    let verbs =
        ["overwrite", "append by a writer", "truncate", "lengthen", "allocate", "punch", "zero", "chown"];
    let kept = ["chmod", "set times", "link", "move away", "set an attribute"];
    for verb in verbs.iter().chain(&kept) {
        let (_, ours, theirs) = TO_THE_FILE.iter().find(|row| row.0 == *verb).unwrap();
        let top = kernel.path().join(verb);
        fs::create_dir_all(top.join("d")).unwrap();
        let path = top.join("d/file");
        fs::write(&path, CONTENTS).unwrap();
        let opened = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        rustix::fs::setxattr(&path, NAME, &capability(), XattrFlags::empty()).unwrap();
        theirs(&Theirs { top: &top, opened: &opened }).unwrap();
        let expected = rustix::fs::fgetxattr(&opened, NAME, &mut [0_u8; 64][..]).is_ok();

        let top = volume.create(ROOT, verb.as_bytes(), &new(Kind::Directory)).unwrap();
        let directory = volume.create(top, b"d", &new(Kind::Directory)).unwrap();
        let file = volume.create(directory, b"file", &new(Kind::File)).unwrap();
        volume.writer(file, SIZE).unwrap().write_all_at(0, CONTENTS).unwrap();
        volume.inode(file).set_xattr(NAME.as_bytes(), &capability()).unwrap();
        ours(&Ours { volume: &volume, top, directory, file, other: file }).unwrap();
        let found = volume.inode(file).xattr(NAME.as_bytes()).unwrap().is_some();
        assert_eq!((found, expected), (expected, kept.contains(verb)), "{verb}");
    }
}

#[test]
fn special_bits_go_with_the_owner_of_each_type_as_in_the_kernel() {
    let test = "special_bits_go_with_the_owner_of_each_type_as_in_the_kernel";
    if !have_loop_mount(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = scratch.join("theirs.img");
    drop(on_disk(&image, FsType::Ext4, ""));
    let kernel = Mounted::read_write(&image).unwrap();
    let volume = volume("");
    let types = [
        (FileType::RegularFile, Kind::File),
        (FileType::Fifo, Kind::Fifo),
        (FileType::Socket, Kind::Socket),
        (FileType::CharacterDevice, Kind::CharDevice(1, 3)),
        (FileType::BlockDevice, Kind::BlockDevice(7, 0)),
        (FileType::Directory, Kind::Directory),
    ];
    for (at, (file_type, kind)) in types.into_iter().enumerate() {
        for mode in [0o7777_u16, 0o6755, 0o6745, 0o2644, 0o4644] {
            for (uid, gid) in [(Some(7), None), (None, Some(8)), (Some(7), Some(8))] {
                let name = format!("{at}-{mode:o}-{uid:?}-{gid:?}");
                let path = kernel.path().join(&name);
                match file_type {
                    FileType::Directory => fs::create_dir(&path).unwrap(),
                    file_type => {
                        let device = rustix::fs::makedev(1, 3);
                        rustix::fs::mknodat(CWD, &path, file_type, Mode::empty(), device).unwrap();
                    }
                }
                fs::set_permissions(&path, PermissionsExt::from_mode(mode.into())).unwrap();
                let (user, group) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                rustix::fs::chown(&path, user, group).unwrap();
                let expected = fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777;

                let by_owner = volume.create(ROOT, name.as_bytes(), &new(kind)).unwrap();
                volume.inode(by_owner).set_permissions(mode).unwrap();
                volume.inode(by_owner).set_owner(uid, gid).unwrap();
                let found = volume.metadata(by_owner).unwrap().permissions;
                assert_eq!(u32::from(found), expected, "{name}");
                volume.inode(by_owner).set_permissions(mode).unwrap();
                let change = AttributeChange { uid, gid, ..AttributeChange::default() };
                volume.inode(by_owner).change(&change).unwrap();
                assert_eq!(u32::from(volume.metadata(by_owner).unwrap().permissions), expected, "{name}");
            }
        }
    }
}

#[test]
fn owners_attributes_and_capabilities_that_make_no_sense_are_refused() {
    let volume = volume("");
    let pipe = volume.create(ROOT, b"pipe", &new(Kind::Fifo)).unwrap();
    let link = volume.create(ROOT, b"link", &new(Kind::Symlink(b"x"))).unwrap();
    let file = volume.create(ROOT, b"file", &new(Kind::File)).unwrap();
    for inode in [pipe, link] {
        assert!(matches!(volume.inode(inode).set_xattr(b"user.a", b"b"), Err(Error::NotPermitted(_))));
        volume.inode(inode).set_xattr(b"trusted.a", b"b").unwrap();
    }
    let nobody = Some(u32::MAX);
    assert!(matches!(volume.inode(file).set_owner(nobody, None), Err(Error::Invalid(_))));
    assert!(matches!(volume.inode(file).set_owner(None, nobody), Err(Error::Invalid(_))));
    let change = AttributeChange { uid: nobody, ..AttributeChange::default() };
    assert!(matches!(volume.inode(file).change(&change), Err(Error::Invalid(_))));
    let refused = volume.inode(file).set_xattr(b"security.capability", b"abc");
    assert!(matches!(refused, Err(Error::Invalid(text)) if text.contains("setcap")));
    volume.inode(file).set_xattr(b"security.capability", &capability()).unwrap();
}

#[test]
fn bytes_that_were_taken_before_are_kept_whatever_the_flags_say_now() {
    let volume = volume("");
    let file = volume.create(ROOT, b"file", &new(Kind::File)).unwrap();
    volume.inode(file).set_xattr(b"security.capability", &capability()).unwrap();
    let flags = volume.metadata(file).unwrap().flags;
    volume.inode(file).set_flags(flags | InodeFlags::IMMUTABLE).unwrap();
    let taken = WriteOptions { taken: true, keep_times: true, ..WriteOptions::default() };
    assert!(volume.write_at(file, 0, b"bytes", WriteOptions::default()).is_err());
    volume.write_at(file, 0, b"bytes", taken).unwrap();
    let mut found = [0; 5];
    assert_eq!(volume.read_at(file, 0, &mut found).unwrap(), 5);
    assert_eq!(&found, b"bytes");
    assert!(volume.inode(file).xattr(b"security.capability").unwrap().is_some(), "it came after the bytes");
}
