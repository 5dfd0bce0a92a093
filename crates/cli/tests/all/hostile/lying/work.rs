//! Work on the tree that every base holds: by commands, and through a mount. Damage may end any part of it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use testkit::random::Random;
use testkit::scratch::Scratch;

use super::DATA;

/// A command on an image. Where a path inside ends with a slash, all below belongs to the work, too.
pub struct Work {
    pub command: &'static str,
    pub options: &'static [&'static str],
    /// Words between the image and the paths inside; `HOST/` stands for a directory of the host.
    pub before: &'static [&'static str],
    pub inside: &'static [&'static str],
}

const fn work(
    command: &'static str,
    options: &'static [&'static str],
    before: &'static [&'static str],
    inside: &'static [&'static str],
) -> Work {
    Work { command, options, before, inside }
}

/// Commands, in any order.
pub const COMMANDS: &[Work] = &[
    work("put", &[], &["HOST/small"], &["/a/b/c/new"]),
    work("put", &[], &["HOST/small", "HOST/large"], &["/empty/"]),
    work("put", &["-f"], &["HOST/small"], &["/a/small"]),
    work("put", &["-f"], &["HOST/large"], &["/comb"]),
    work("put", &["-r"], &["HOST/many"], &["/many"]),
    work("put", &[], &["HOST/filler"], &["/filler"]),
    work("put", &[], &["HOST/filler"], &["/a/filler"]),
    work("mkdir", &["-p"], &[], &["/many/one/two", "/empty/three", "/a/b/four"]),
    work("rm", &[], &[], &["/large"]),
    work("rm", &[], &[], &["/comb", "/a/again", "/long-link"]),
    work("rm", &["-r"], &[], &["/a/b/"]),
    work("rm", &["-r"], &[], &["/many/"]),
    work("mv", &[], &[], &["/nothing", "/a/moved"]),
    work("mv", &[], &[], &["/a/b", "/empty/b"]),
    work("mv", &["--exchange"], &[], &["/large", "/a/b/tiny"]),
    work("ln", &[], &[], &["/comb", "/empty/linked"]),
    work("xattr", &["-s", ATTRIBUTE], &[], &["/large", "/a/b/c/other", "/many"]),
    work("chmod", &[], &["700"], &["/many", "/comb", "/a/small"]),
    work("chmod", &["-R"], &["700"], &["/a/"]),
    work("chown", &[], &["5:6"], &["/large", "/pipe"]),
];

/// An attribute that takes a block.
const ATTRIBUTE: &str = concat!(
    "user.work=",
    "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww",
    "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww"
);

/// Sources that commands put into images: a small and a large file, a directory of many, and something that fills.
pub fn sources(scratch: &Scratch, fill: Option<u64>) -> PathBuf {
    let root = scratch.join("host");
    fs::create_dir_all(root.join("many")).unwrap();
    let write = |name: &str, len: u64| fs::write(root.join(name), vec![DATA; len as usize]).unwrap();
    write("small", 3000);
    write("large", 250_000);
    write("filler", fill.unwrap_or(1 << 20));
    for index in 0..60 {
        write(&format!("many/file-{index}"), index * 100);
    }
    root
}

/// Changes a file as programs do that have it open.
fn change(path: &Path, random: &mut Random) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).append(random.one_in(3)).open(path)?;
    for at in [0, 9000, 40_000, 300_000] {
        let _ = file.write_all_at(&[DATA; 5000], at);
    }
    if random.one_in(2) {
        let _ = file.sync_all();
    }
    let _ = rustix::fs::fsetxattr(&file, c"user.work", &[DATA; 700], rustix::fs::XattrFlags::empty());
    if random.one_in(3) {
        file.set_len(10)?;
    }
    file.set_permissions(Permissions::from_mode(0o640))
}

/// Works on some of the tree of a mount; the paths.
pub fn through(root: &Path, random: &mut Random, fill: Option<u64>) -> Vec<&'static str> {
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    let mut paths = vec!["/a/b/c", "/many", "/empty", "/a", "/nothing"];
    for name in ["/large", "/comb", "/a/small", "/a/b/c/other"] {
        if random.one_in(3) {
            paths.push(name);
            let _ = change(&at(name), random);
        }
    }
    for directory in &paths[..3] {
        for index in 0..4 {
            let _ = fs::write(at(directory).join(format!("new-{index}")), [DATA; 3000]);
            let _ = fs::create_dir(at(directory).join(format!("dir-{index}")));
        }
    }
    if let Some(name) =
        random.pick(&["/large", "/comb", "/a/b/tiny", "/a/b/c/other"]).filter(|_| random.one_in(2))
    {
        paths.push(name);
        let _ = fs::remove_file(at(name));
    }
    let _ = fs::rename(at("/nothing"), at("/a/moved"));
    let file = fill.and_then(|size| Some((File::create(at("/filler")).ok()?, size)));
    let piece = vec![DATA; 1 << 20];
    if let Some((file, size)) = file {
        let _ = (0..size).step_by(piece.len()).try_for_each(|at| file.write_all_at(&piece, at));
    }
    paths
}
