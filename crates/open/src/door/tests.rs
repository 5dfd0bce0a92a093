use super::*;
use std::fs;

/// A disk of 4 MiB with two partitions of 1 MiB, by an MBR.
fn disk(directory: &Path) -> PathBuf {
    let path = directory.join("disk.img");
    let mut bytes = vec![0; 4 << 20];
    for (at, first) in [(446, 2048_u32), (462, 4096)] {
        bytes[at + 4] = 0x83;
        bytes[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
        bytes[at + 12..at + 16].copy_from_slice(&2048_u32.to_le_bytes());
    }
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    fs::write(&path, bytes).unwrap();
    path
}

fn part(disk: &Path, part: &str) -> std::ffi::OsString {
    let mut name = disk.as_os_str().to_owned();
    name.push(part);
    name
}

fn refused(name: &OsStr) -> bool {
    matches!(Alone::open(name), Err(ImageError::InUse(User::Program)))
}

#[test]
fn readers_share_and_others_do_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = file.path().as_os_str();
    let first = share(name).unwrap();
    let second = share(name).unwrap();
    assert!(refused(name) && writer_of(name).is_none() && !is_free(file.path()).unwrap());
    assert!(replace(file.path()).is_err());
    drop((first, second));
    assert!(is_free(file.path()).unwrap());
    let alone = Alone::open(name).unwrap();
    assert!(share(name).is_err() && refused(name) && !is_free(file.path()).unwrap());
    assert_eq!(writer_of(name), Some(User::Program));
    drop(alone);
    drop(replace(file.path()).unwrap());
    Alone::open(name).unwrap();
}

#[test]
fn parts_exclude_what_they_meet_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(directory.path());
    let [one, two, whole, from] = ["@part1", "@part2", "", "@0x180000"].map(|name| part(&disk, name));
    let first = Alone::open(&one).unwrap().into_device().unwrap();
    let second = Alone::open(&two).unwrap();
    assert!(refused(&one) && refused(&two) && refused(&whole) && refused(&from));
    drop(second);
    assert!(refused(&whole) && refused(&from), "it begins inside the first");
    Alone::open(&two).unwrap();
    drop(first);
    // From a byte on it is all that follows, however the file grows.
    let rest = Alone::open(&from).unwrap();
    assert!(refused(&one) && refused(&two) && refused(&whole) && refused(&part(&disk, "@3M")));
    drop(rest);
    let all = Alone::open(&whole).unwrap();
    assert!(refused(&one) && refused(&two) && refused(&from) && replace(&disk).is_err());
    drop(all);
    let reader = share(&one).unwrap();
    assert!(refused(&one) && refused(&whole) && Alone::open(&two).is_ok());
    drop(reader);
}

#[test]
fn other_names_of_a_file_are_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(directory.path());
    let [hard, soft] = ["hard", "soft"].map(|name| directory.path().join(name));
    fs::hard_link(&disk, &hard).unwrap();
    std::os::unix::fs::symlink("disk.img", &soft).unwrap();
    let held = Alone::open(&part(&hard, "@part1")).unwrap();
    assert!(refused(disk.as_os_str()) && refused(soft.as_os_str()) && refused(&part(&soft, "@part1")));
    assert!(replace(&disk).is_err() && Alone::open(&part(&soft, "@part2")).is_ok());
    drop(held);
}

/// As by a process that inherited the open file, and has not yet begun its own program.
#[test]
fn a_lock_that_ends_at_once_is_no_writer() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(directory.path());
    let ours = Alone::open(disk.as_os_str()).unwrap();
    assert_eq!(writer_of(disk.as_os_str()), Some(User::Program));
    let ends = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(ours);
    });
    assert_eq!(writer_of(disk.as_os_str()), None);
    ends.join().unwrap();
}

#[test]
fn programs_that_lock_whole_files_are_respected() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(directory.path());
    let theirs = File::open(&disk).unwrap();
    rustix::fs::flock(&theirs, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(refused(disk.as_os_str()) && refused(&part(&disk, "@part1")) && share(disk.as_os_str()).is_err());
    drop(theirs);
    let ours = Alone::open(&part(&disk, "@part1")).unwrap();
    let theirs = File::open(&disk).unwrap();
    assert!(rustix::fs::flock(&theirs, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err());
    drop(ours);
}

#[test]
fn messages_name_the_user_and_the_remedy() {
    let mount = |kind: &str, read_only| User::Mount { directory: "/m".into(), kind: kind.into(), read_only };
    let cases = [
        (mount("ext4", false), "the kernel has it mounted on /m; `umount /m` frees it"),
        (mount("ext4", true), "the kernel has it mounted read-only on /m; `umount /m` frees it"),
        (mount("fuse.plat", false), "plat has it mounted on /m; `plat umount /m` frees it"),
        (mount("fuse.fuse2fs", false), "fuse.fuse2fs has it mounted on /m; `umount /m` frees it"),
        (User::Loop("/dev/loop7".into()), "/dev/loop7 stands on it; `losetup -d /dev/loop7` frees it"),
    ];
    for (user, expected) in cases {
        assert_eq!(user.to_string(), expected);
    }
    let holders = vec!["dm-0".to_owned()];
    let user = User::Claimed { device: "/dev/sda".into(), holders };
    assert_eq!(user.to_string(), "/dev/sda is part of dm-0; take that apart first");
}
