//! The front door: how long handles live, what paths mean, and that what it leaves is sound.
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::{fs, io, thread};

use platfs::check::{Decision, Issue, Options, Sink, check};
use platfs::device::{Device, MemoryDevice};
use platfs::mkfs::{FsType, Options as Format};
use platfs::{Error, Image, OpenOptions, Timestamp};
use testkit::fsck;
use testkit::scratch::Scratch;

fn image() -> (Image, Arc<MemoryDevice>) {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let storage = Arc::clone(&device) as Arc<dyn Device>;
    (Image::format(storage, &Format::new(FsType::Ext4), &OpenOptions::new()).unwrap(), device)
}

struct Refusing;

impl Sink for Refusing {
    fn issue(&mut self, issue: Issue) -> Decision {
        panic!("{issue:?}");
    }
}

fn assert_sound(device: Arc<MemoryDevice>) {
    check(device, &Options::default(), &mut Refusing).unwrap();
}

#[test]
fn the_last_handle_puts_the_volume_in_order() {
    let (image, device) = image();
    image.create_dir("/a").unwrap();
    let inside = image.at("/a").unwrap();
    let mut file = inside.create_new("file").unwrap();
    // Others hold it: nothing is lost by that.
    assert!(matches!(image.close(), Err(Error::Invalid(why)) if why.contains("still open")));
    file.write_all(b"written behind a refused close").unwrap();
    let raw = inside.metadata("").unwrap();
    assert!(raw.is_dir());
    drop(inside);
    drop(file);
    let raw = platfs::read_superblock(&*device).unwrap();
    assert_eq!(raw.s_state.get() & 1, 1, "marked as closed cleanly");
    assert_sound(Arc::clone(&device));
    let again = Image::on(device, &OpenOptions::new()).unwrap();
    assert_eq!(again.read("/a/file").unwrap(), b"written behind a refused close");
}

#[test]
fn a_file_outlives_its_name_and_goes_with_its_handle() {
    let (image, device) = image();
    let free = |image: &Image| {
        image.sync().unwrap();
        image.volume().superblock().free_blocks_count()
    };
    let before = free(&image);
    let mut file = image.create("/gone").unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    image.remove_file("/gone").unwrap();
    assert!(!image.exists("/gone").unwrap());
    file.seek(SeekFrom::Start(99_999)).unwrap();
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, [7]);
    drop(file);
    image.volume().uses().clear_away().unwrap();
    assert_eq!(free(&image), before);
    image.close().unwrap();
    assert_sound(device);
}

#[test]
fn paths_begin_where_they_are_asked_for_and_stay_inside() {
    let (image, device) = image();
    image.create_dir_all("/srv//data/./deep/").unwrap();
    let data = image.at("srv/data").unwrap();
    data.write("file", "here").unwrap();
    image.write("/file", "at the root").unwrap();
    assert_eq!(data.read("file").unwrap(), b"here");
    assert_eq!(data.read("deep/../file").unwrap(), b"here");
    assert_eq!(data.read("/file").unwrap(), b"at the root");
    // A link out of the image leads to its own root.
    data.symlink("../../../../../file", "up").unwrap();
    data.symlink("/file", "absolute").unwrap();
    assert_eq!(data.read("up").unwrap(), b"at the root");
    assert_eq!(data.read("absolute").unwrap(), b"at the root");
    // Writing goes through links; removing and renaming mean the link.
    data.write("up", "new").unwrap();
    assert_eq!(image.read("/file").unwrap(), b"new");
    data.rename("up", "renamed").unwrap();
    data.remove_file("renamed").unwrap();
    assert!(image.exists("/file").unwrap());
    for path in ["", "/", "/srv/..", "srv/."] {
        assert!(matches!(image.create(path), Err(Error::IsDirectory)), "{path}");
        assert!(matches!(image.create_dir(path), Err(Error::Invalid(_))), "{path}");
    }
    assert!(matches!(image.create_dir_all("/file/below"), Err(Error::NotDirectory)));
    assert!(matches!(image.write("/missing/file", ""), Err(Error::NotFound)));
    drop(data);
    image.close().unwrap();
    assert_sound(device);
}

/// Slashes at the end of a path, and links that lead nowhere, are as in std::fs.
#[test]
fn paths_mean_what_the_standard_library_has_them_mean() {
    let (image, device) = image();
    image.write("/f", "file").unwrap();
    image.create_dir_all("/d/below").unwrap();
    image.symlink("d", "/l").unwrap();
    image.symlink("f", "/to-file").unwrap();
    for path in ["/f/", "/to-file/"] {
        assert!(matches!(image.read(path), Err(Error::NotDirectory)), "{path}");
        assert!(matches!(image.remove_file(path), Err(Error::NotDirectory)), "{path}");
        assert!(matches!(image.symlink_metadata(path), Err(Error::NotDirectory)), "{path}");
        assert!(matches!(image.rename(path, "/g"), Err(Error::NotDirectory)), "{path}");
    }
    assert!(matches!(image.rename("/l/", "/m"), Err(Error::NotDirectory)));
    assert!(matches!(image.remove_file("/l/"), Err(Error::NotDirectory)));
    assert!(matches!(image.remove_file("/d/"), Err(Error::IsDirectory)));
    // A slash at the end of what a link says counts as well.
    image.symlink("f/", "/slash").unwrap();
    assert!(matches!(image.read("/slash"), Err(Error::NotDirectory)));
    assert!(
        image.symlink_metadata("/l/").unwrap().is_dir() && image.symlink_metadata("/l").unwrap().is_symlink()
    );
    assert!(
        image.create("/x/").is_err()
            && image.create_new("/x/").is_err()
            && image.symlink("f", "/x/").is_err()
    );
    assert!(image.hard_link("/f", "/x/").is_err() && image.rename("/f", "/x/").is_err());
    assert!(!image.exists("/x").unwrap());
    image.rename("/d/", "/e/").unwrap();
    image.rename("/e", "/d").unwrap();
    // A link that leads nowhere is a place for a new file, from the directory that it lies in.
    image.symlink("new", "/d/dangling").unwrap();
    image.symlink("/d/dangling", "/twice").unwrap();
    image.write("/twice", "made").unwrap();
    assert_eq!(image.read("/d/new").unwrap(), b"made");
    image.symlink("nowhere/new", "/lost").unwrap();
    assert!(matches!(image.write("/lost", ""), Err(Error::NotFound)));
    image.symlink("round", "/round").unwrap();
    assert!(matches!(image.write("/round", ""), Err(Error::SymlinkLoop)));
    assert!(matches!(image.create_new("/twice"), Err(Error::Exists)));
    // The link goes, and what it leads to stays.
    image.remove_dir_all("/l").unwrap();
    assert!(image.exists("/d/below").unwrap() && !image.exists("/l").unwrap());
    assert!(matches!(image.remove_dir_all("/f"), Err(Error::NotDirectory)));
    image.close().unwrap();
    assert_sound(device);
}

#[test]
fn a_tree_is_walked_by_name_and_removed_with_its_links() {
    let (image, device) = image();
    image.create_dir_all("/tree/b/c").unwrap();
    for path in ["/tree/a", "/tree/b/c/d", "/tree/z", "/kept"] {
        image.write(path, path).unwrap();
    }
    image.symlink("/kept", "/tree/link").unwrap();
    let walked: Vec<_> = image.walk("/tree").unwrap().map(|entry| entry.unwrap()).collect();
    let paths: Vec<String> = walked.iter().map(|entry| String::from_utf8(entry.path()).unwrap()).collect();
    assert_eq!(paths, ["a", "b", "b/c", "b/c/d", "link", "z"]);
    let mut text = String::new();
    walked[3].open().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "/tree/b/c/d");
    assert!(matches!(walked[4].open(), Err(Error::Invalid(_))));
    assert_eq!(walked[1].enter().unwrap().read_dir("").unwrap().count(), 1);
    drop(walked);
    image.remove_dir_all("/tree").unwrap();
    assert!(!image.exists("/tree").unwrap());
    assert_eq!(image.read("/kept").unwrap(), b"/kept");
    image.close().unwrap();
    assert_sound(device);
}

#[test]
fn threads_share_an_image() {
    let (image, device) = image();
    thread::scope(|scope| {
        for number in 0..4 {
            let image = &image;
            scope.spawn(move || {
                let directory = format!("/d{number}");
                image.create_dir(&directory).unwrap();
                let directory = image.at(&directory).unwrap();
                for file in 0..50 {
                    directory.write(format!("f{file}"), vec![number; 3000]).unwrap();
                }
            });
        }
    });
    assert_eq!(image.walk("/").unwrap().count(), 1 + 4 * 51);
    image.close().unwrap();
    assert_sound(device);
}

#[test]
fn an_image_file_is_written_by_one_at_a_time() {
    let scratch = Scratch::new("front-lock");
    let path = scratch.join("image");
    let now = Timestamp::from_seconds(1_700_000_000);
    let writing = OpenOptions::new().write(true).now(now);
    let image = Image::format_file(&path, 16 << 20, &Format::new(FsType::Ext2), &writing).unwrap();
    image.write("/file", b"contents").unwrap();
    let refused = writing.open(&path).err().unwrap();
    assert_eq!(io::Error::from(refused).kind(), ErrorKind::ResourceBusy);
    image.close().unwrap();
    let image = writing.open(&path).unwrap();
    assert_eq!(image.metadata("/file").unwrap().times.modify, now);
    image.close().unwrap();
    let readers = [Image::open(&path).unwrap(), Image::open(&path).unwrap()];
    for image in &readers {
        assert_eq!(image.read("/file").unwrap(), b"contents");
        assert!(matches!(image.write("/file", b""), Err(Error::ReadOnly)));
    }
    let missing = Image::open(scratch.join("missing")).err().unwrap();
    assert_eq!(io::Error::from(missing).kind(), ErrorKind::NotFound);
    assert!(Image::format_file(&path, 16 << 20, &Format::new(FsType::Ext2), &writing).is_err());
    assert!(fs::metadata(&path).unwrap().len() == 16 << 20);
    if testkit::tool::have_tools("an image by the front door", &["e2fsck"]) {
        fsck::assert_clean(&path);
    }
}

#[test]
fn a_pipe_is_no_image_and_not_waited_for() {
    let scratch = Scratch::new("front-pipe");
    let path = scratch.join("pipe");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let said = Image::open(&path).map(drop).unwrap_err().to_string();
    assert!(said.contains("is a special file"), "{said}");
}
