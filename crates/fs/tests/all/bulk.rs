//! The verbs for many files at once: all or nothing, and e2fsck has nothing to say.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use platfs::device::FileDevice;
use platfs::mkfs::{FsType, Options, Plan};
use platfs::{Attributes, Error, InodeNumber, Kind, NewInode, OpenOptions, Volume, Whole};
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

const ROOT: InodeNumber = InodeNumber::ROOT;

fn volume(scratch: &Scratch, kind: FsType, bytes: u64) -> (std::path::PathBuf, Volume) {
    let path = scratch.join("disk.img");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.set_len(bytes).unwrap();
    let device = FileDevice::new(file).unwrap();
    Plan::new(&Options::new(kind), bytes).unwrap().write(&device).unwrap();
    let volume = Volume::open(Arc::new(device), &OpenOptions::new().write(true)).unwrap();
    (path, volume)
}

fn new(kind: Kind<'static>) -> NewInode<'static> {
    let attributes = Attributes { permissions: 0o644, ..Attributes::default() };
    NewInode { kind, attributes, xattrs: &[] }
}

fn sound(path: &Path, volume: Volume) {
    volume.close().unwrap();
    if tool::find("e2fsck").is_some() {
        fsck::assert_clean(path);
    }
}

fn names(volume: &Volume, directory: InodeNumber) -> Vec<Vec<u8>> {
    volume.read_dir(directory).unwrap().map(|entry| entry.unwrap().name).collect()
}

#[test]
fn files_come_together_with_their_bytes_or_not_at_all() {
    let scratch = Scratch::new("files_come_together");
    for kind in [FsType::Ext2, FsType::Ext3, FsType::Ext4] {
        let (path, volume) = volume(&scratch, kind, 32 << 20);
        let directory = volume.create(ROOT, b"d", &new(Kind::Directory)).unwrap();
        let contents: Vec<Vec<u8>> = (0..40).map(|len| vec![7; len * 311]).collect();
        let given: Vec<Vec<u8>> = (0..40).map(|number| format!("n{number}").into_bytes()).collect();
        let files: Vec<Whole<'_>> = given
            .iter()
            .zip(&contents)
            .map(|(name, data)| Whole { name, new: new(Kind::File), data })
            .chain([Whole { name: b"link", new: new(Kind::Symlink(b"n1")), data: &[] }])
            .collect();
        assert!(volume.bulk().create(directory, &files).unwrap().is_empty());
        for (name, data) in given.iter().zip(&contents) {
            let number = volume.lookup(directory, name).unwrap();
            let mut found = vec![0; 20_000];
            let len = volume.read_at(number, 0, &mut found).unwrap();
            assert!(found[..len] == data[..]);
        }
        // One name that exists keeps all of them away.
        let more = [
            Whole { name: b"fresh", new: new(Kind::File), data: b"x" },
            Whole { name: b"n3", new: new(Kind::File), data: b"x" },
        ];
        let before = names(&volume, directory);
        assert!(matches!(volume.bulk().create(directory, &more), Err(Error::Exists)));
        let twice = [more[0], more[0]];
        assert!(matches!(volume.bulk().create(directory, &twice), Err(Error::Exists)));
        let full = Whole { name: b"large", new: new(Kind::File), data: &vec![1; 40 << 20] };
        assert!(volume.bulk().create(directory, &[more[0], full]).is_err());
        assert_eq!(names(&volume, directory), before);
        let bad = Whole { name: b"a/b", new: new(Kind::File), data: &[] };
        assert!(matches!(volume.bulk().create(directory, &[bad]), Err(Error::Invalid(_))));
        let pipe = Whole { name: b"pipe", new: new(Kind::Fifo), data: b"bytes" };
        assert!(matches!(volume.bulk().create(directory, &[pipe]), Err(Error::Invalid(_))));
        sound(&path, volume);
    }
}

#[test]
fn names_go_together_and_directories_with_what_is_in_them() {
    let scratch = Scratch::new("names_go_together");
    for kind in [FsType::Ext2, FsType::Ext4] {
        let (path, volume) = volume(&scratch, kind, 32 << 20);
        let free = volume.space().free_after_sync();
        let directory = volume.create(ROOT, b"d", &new(Kind::Directory)).unwrap();
        for name in [b"a", b"b", b"c"] {
            let file = Whole { name, new: new(Kind::File), data: &[1; 5000] };
            volume.bulk().create(directory, &[file]).unwrap();
        }
        let a = volume.lookup(directory, b"a").unwrap();
        volume.link(a, ROOT, b"other").unwrap();
        let missing = [b"b".to_vec(), b"z".to_vec()];
        assert!(matches!(volume.bulk().unlink(directory, &missing), Err(Error::NotFound)));
        let removed = volume.bulk().unlink(directory, &missing[..1]).unwrap();
        assert_eq!((removed.len(), removed[0].links), (1, 0));
        // Only with exactly the names that are known.
        let known = names(&volume, directory);
        assert!(matches!(volume.bulk().remove_whole(ROOT, b"d", &known[..1]), Err(Error::NotEmpty)));
        assert!(matches!(volume.bulk().remove_whole(ROOT, b"other", &[]), Err(Error::NotDirectory)));
        let removed = volume.bulk().remove_whole(ROOT, b"d", &known).unwrap();
        assert_eq!(removed.len(), 3);
        let of_a = removed.iter().find(|removed| removed.inode == a).unwrap();
        assert_eq!((of_a.links, volume.metadata(a).unwrap().links), (1, 1));
        assert!(matches!(volume.lookup(ROOT, b"d"), Err(Error::NotFound)));
        volume.unlink(ROOT, b"other").unwrap();
        volume.sync().unwrap();
        assert_eq!(volume.space().free_after_sync(), free);
        sound(&path, volume);
    }
}

#[test]
fn a_directory_that_somebody_uses_is_empty_when_its_name_is_gone() {
    let scratch = Scratch::new("a_directory_that_somebody_uses");
    let (path, volume) = volume(&scratch, FsType::Ext4, 32 << 20);
    let directory = volume.create(ROOT, b"d", &new(Kind::Directory)).unwrap();
    let files = [
        Whole { name: b"a", new: new(Kind::File), data: b"x" },
        Whole { name: b"b", new: new(Kind::File), data: b"y" },
    ];
    volume.bulk().create(directory, &files).unwrap();
    let made = volume.lookup(directory, b"a").unwrap();
    let held = volume.pin(directory).unwrap();
    let file = volume.pin(made).unwrap();
    assert_eq!(volume.bulk().users(directory), 1);
    let known = names(&volume, directory);
    volume.bulk().remove_whole(ROOT, b"d", &known).unwrap();
    assert!(names(&volume, directory).is_empty(), "its names would lead to nothing");
    let mut byte = [0];
    assert_eq!((volume.read_at(made, 0, &mut byte).unwrap(), byte), (1, *b"x"));
    drop((held, file));
    sound(&path, volume);
}

#[test]
fn nothing_comes_into_a_directory_that_was_removed() {
    let scratch = Scratch::new("nothing_comes_into_a_directory");
    for kind in [FsType::Ext2, FsType::Ext4] {
        let (path, volume) = volume(&scratch, kind, 32 << 20);
        let directory = volume.create(ROOT, b"d", &new(Kind::Directory)).unwrap();
        let file = volume.create(ROOT, b"f", &new(Kind::File)).unwrap();
        let held = volume.pin(directory).unwrap();
        volume.rmdir(ROOT, b"d").unwrap();
        let whole = Whole { name: b"a", new: new(Kind::File), data: b"x" };
        let gone = |done: Result<(), Error>| assert!(matches!(done, Err(Error::NotFound)), "{done:?}");
        gone(volume.bulk().create(directory, &[whole]).map(drop));
        gone(volume.create(directory, b"b", &new(Kind::File)).map(drop));
        gone(volume.create(directory, b"c", &new(Kind::Directory)).map(drop));
        let unnamed = volume.create_unnamed(directory, &new(Kind::File)).map(drop);
        assert!(matches!(unnamed, Err(Error::NotPermitted(_))), "as ext4 says it: {unnamed:?}");
        gone(volume.link(file, directory, b"d"));
        gone(volume.rename(ROOT, b"f", directory, b"e", platfs::Replace::Yes));
        drop(held);
        sound(&path, volume);
    }
}

#[test]
fn files_take_the_place_of_others_in_one_update() {
    let scratch = Scratch::new("files_take_the_place");
    for kind in [FsType::Ext2, FsType::Ext4] {
        let (path, volume) = volume(&scratch, kind, 32 << 20);
        let whole = |data| Whole { name: b"a", new: new(Kind::File), data };
        volume.bulk().create(ROOT, &[whole(b"old")]).unwrap();
        let old = volume.lookup(ROOT, b"a").unwrap();
        volume.link(old, ROOT, b"other").unwrap();
        volume.create(ROOT, b"d", &new(Kind::Directory)).unwrap();
        assert!(matches!(volume.bulk().create(ROOT, &[whole(b"new")]), Err(Error::Exists)));
        let bulk = volume.bulk().replacing(true);
        let directory = Whole { name: b"d", ..whole(b"new") };
        assert!(matches!(bulk.create(ROOT, &[whole(b"new"), directory]), Err(Error::IsDirectory)));
        assert_eq!(volume.lookup(ROOT, b"a").unwrap(), old, "all or nothing");
        let replaced = bulk.create(ROOT, &[whole(b"new")]).unwrap();
        assert_eq!((replaced.len(), replaced[0].inode, replaced[0].links), (1, old, 1));
        let now = volume.lookup(ROOT, b"a").unwrap();
        assert!(now != old && volume.metadata(old).unwrap().links == 1);
        // By a file that exists: the last name of the other goes, and with it the file.
        let replaced = bulk.link(now, ROOT, b"other").unwrap().unwrap();
        assert_eq!((replaced.inode, replaced.links), (old, 0));
        assert_eq!(volume.metadata(now).unwrap().links, 2);
        assert_eq!(bulk.link(now, ROOT, b"other").unwrap(), None, "it has that name already");
        assert!(matches!(bulk.link(now, ROOT, b"d"), Err(Error::IsDirectory)));
        assert_eq!(bulk.link(now, ROOT, b"third").unwrap(), None);
        sound(&path, volume);
    }
}

#[test]
fn the_sticky_bit_is_looked_at_within_the_update() {
    let scratch = Scratch::new("the_sticky_bit_is_looked_at");
    let (path, volume) = volume(&scratch, FsType::Ext4, 32 << 20);
    let directory = volume.create(ROOT, b"d", &new(Kind::Directory)).unwrap();
    volume.inode(directory).set_permissions(0o1777).unwrap();
    let owned = |name, uid| {
        let attributes = Attributes { permissions: 0o644, uid, ..Attributes::default() };
        Whole { name, new: NewInode { kind: Kind::File, attributes, xattrs: &[] }, data: b"x" }
    };
    volume.bulk().create(directory, &[owned(b"mine", 7), owned(b"theirs", 8)]).unwrap();
    let me = platfs::rights::Credentials::new(7, 7);
    let bulk = volume.bulk().of(&me);
    let both = [b"mine".to_vec(), b"theirs".to_vec()];
    let kept = |done: Result<(), Error>| assert!(matches!(done, Err(Error::NotPermitted(_))), "{done:?}");
    kept(bulk.unlink(directory, &both).map(drop));
    kept(bulk.remove_whole(ROOT, b"d", &names(&volume, directory)).map(drop));
    kept(bulk.replacing(true).create(directory, &[owned(b"theirs", 7)]).map(drop));
    let mine = volume.lookup(directory, b"mine").unwrap();
    kept(bulk.replacing(true).link(mine, directory, b"theirs").map(drop));
    assert_eq!(names(&volume, directory).len(), 2);
    bulk.unlink(directory, &both[..1]).unwrap();
    sound(&path, volume);
}
