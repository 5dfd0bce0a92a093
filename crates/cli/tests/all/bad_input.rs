//! Bad input gives one clear error, the right exit code, and leaves nothing behind.
mod devices;
mod options;

use crate::support::{build, fail, modest_tree, plat};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use testkit::scratch::Scratch;
use testkit::{odd, tool};

/// Far more than anything here takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

/// Names in `directory`.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// `plat build SOURCE` fails, says one of `words`, and leaves an output directory empty.
fn refuses(source: &Path, options: &[&str], words: &[&str]) {
    let scratch = Scratch::new("refused");
    let said = fail(plat(&["build"]).args(options).arg(source).arg(scratch.join("image")));
    // The name of the source is no word of the message.
    let lower = said.replace(&*source.to_string_lossy(), "").to_lowercase();
    assert!(
        words.iter().any(|word| lower.contains(word)),
        "{options:?}: expected one of {words:?} in: {said}"
    );
    assert_eq!(names(scratch.path()), Vec::<String>::new(), "{said}");
}

#[test]
fn sources_that_are_no_sources() {
    let scratch = Scratch::new("bad");
    refuses(&scratch.join("missing"), &[], &["no such file"]);
    let noise = scratch.join("noise");
    fs::write(&noise, vec![0x5a; 100_000]).unwrap();
    refuses(&noise, &[], &["tar"]);
    let image = scratch.join("image");
    assert_eq!(plat(&["build"]).arg(&image).output().unwrap().status.code(), Some(2));
    assert_eq!(plat(&["no-such-command"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn truncated_archives() {
    let scratch = Scratch::new("truncated");
    let tree = modest_tree(&scratch, &odd::Options::modest());
    let archive = scratch.join("whole.tar");
    odd::pack(&tree, &archive);
    let bytes = fs::read(&archive).unwrap();
    let cut = scratch.join("cut.tar");
    for length in [1, 511, 700, 20_000, bytes.len() / 2 + 100, bytes.len() / 2] {
        fs::write(&cut, &bytes[..length]).unwrap();
        refuses(&cut, &[], &["trunc", "end", "short", "tar", "ends"]);
    }
    let packed = tool::run(tool::command("gzip").arg("-c").arg(&archive)).stdout;
    fs::write(&cut, &packed[..packed.len() / 2]).unwrap();
    refuses(&cut, &[], &["trunc", "end", "short", "gzip", "deflate"]);
}

#[test]
fn flipped_bits_of_an_archive() {
    let scratch = Scratch::new("flipped");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    for index in 0..20 {
        fs::write(tree.join(format!("file-{index}")), vec![7; 700]).unwrap();
    }
    let archive = scratch.join("whole.tar");
    odd::pack(&tree, &archive);
    let bytes = fs::read(&archive).unwrap();
    let flipped = scratch.join("flipped.tar");
    let image = scratch.join("image");
    for step in 0..150 {
        let mut damaged = bytes.clone();
        let at = step * 211 % damaged.len();
        damaged[at] ^= 1 << (step % 8);
        fs::write(&flipped, damaged).unwrap();
        // Flips of contents make another file; flips of headers are refused. Neither panics, nor takes its time.
        let output = plat(&["build", "--force"]).arg(&flipped).arg(&image).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "byte {at}: {said}");
        assert!(!said.contains("panicked"), "byte {at}: {said}");
    }
}

#[test]
fn too_small() {
    let scratch = Scratch::new("small");
    let tree = modest_tree(&scratch, &odd::Options::modest());
    refuses(&tree, &["--size", "2M"], &["space", "small", "fit"]);
    refuses(&tree, &["--size", "64K"], &["space", "small", "fit", "inodes"]);
    refuses(&tree, &["-N", "20"], &["inode"]);
}

#[test]
fn more_than_the_format_holds() {
    let scratch = Scratch::new("limits");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    File::create(tree.join("giant")).unwrap().set_len(5 << 40).unwrap();
    refuses(&tree, &["-b", "1024"], &["large", "limit", "most", "big"]);
    fs::remove_file(tree.join("giant")).unwrap();
    std::os::unix::fs::symlink("t".repeat(4000), tree.join("long")).unwrap();
    refuses(&tree, &["-b", "1024"], &["symlink", "target", "long"]);
}

#[test]
fn names_that_are_too_long() {
    let scratch = Scratch::new("long");
    let archive = scratch.join("long.tar");
    // A GNU long name of 300 bytes, as no host file system could have it.
    let mut bytes = header(b"././@LongLink", 301, b'L');
    bytes.extend([vec![b'n'; 300], vec![0; 212]].concat());
    bytes.extend(header(b"short", 0, b'0'));
    bytes.extend(vec![0; 1024]);
    fs::write(&archive, bytes).unwrap();
    refuses(&archive, &[], &["255", "name"]);
}

/// A tar header with the right checksum.
fn header(name: &[u8], size: usize, kind: u8) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name);
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000000\0");
    header[116..124].copy_from_slice(b"0000000\0");
    header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar  \0");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[test]
fn a_huge_size_in_a_header_is_not_believed() {
    let scratch = Scratch::new("huge");
    let archive = scratch.join("huge.tar");
    let mut bytes = header(b"file", 0o77_777_777_777, b'0');
    bytes.extend(vec![0; 2048]);
    fs::write(&archive, bytes).unwrap();
    // One that is believed takes eight gigabytes to read, and as much room in the image.
    let begun = Instant::now();
    refuses(&archive, &[], &["trunc", "end", "short", "tar"]);
    assert!(begun.elapsed() < PATIENCE, "it was believed");
}

#[test]
fn an_existing_output_stays() {
    let scratch = Scratch::new("existing");
    let tree = modest_tree(&scratch, &odd::Options::modest());
    let image = scratch.join("image");
    build(&tree, &image, &["-L", "precious"]);
    let precious = fs::read(&image).unwrap();
    let said = fail(plat(&["build"]).arg(&tree).arg(&image));
    assert!(said.contains("--force"), "{said}");
    assert!(fs::read(&image).unwrap() == precious);
    fail(plat(&["mkfs"]).arg(&image).arg("8M"));
    assert!(fs::read(&image).unwrap() == precious);
    // With --force, but failing: still there.
    fail(plat(&["build", "--force", "--size", "64K"]).arg(&tree).arg(&image));
    assert!(fs::read(&image).unwrap() == precious);
    build(&tree, &image, &["--force"]);
    assert!(fs::read(&image).unwrap() != precious);
}

#[test]
fn no_output_takes_the_place_of_a_file_of_another_kind() {
    let scratch = Scratch::new("another-kind");
    let tree = modest_tree(&scratch, &odd::Options::modest());
    let (image, notes) = (scratch.join("image"), scratch.join("notes.tar"));
    build(&tree, &image, &[]);
    let commands: [(&[&str], &[&Path]); 6] = [
        (&["build", "--force"], &[&tree, &notes]),
        (&["mkfs", "-F"], &[&notes, Path::new("8M")]),
        (&["image", "--metadata", "--force"], &[&image, &notes]),
        (&["snapshot", "--force"], &[&image, &notes]),
        (&["export", "--force"], &[&image, &notes]),
        (&["diff", "--force", "-o"], &[&notes, &image, &image]),
    ];
    for (words, paths) in commands {
        for text in ["my notes\n".to_owned(), "long notes\n".repeat(100_000)] {
            fs::write(&notes, &text).unwrap();
            let said = fail(plat(words).args(paths));
            assert!(said.contains("exists and is no ") && said.contains("`rm "), "{words:?}: {said}");
            assert!(fs::read(&notes).unwrap() == text.as_bytes(), "{words:?}");
        }
        // An empty file is replaced.
        File::create(&notes).unwrap();
        assert!(plat(words).args(paths).output().unwrap().status.success(), "{words:?}");
        // So is a file that an earlier run made.
        let again = plat(words).args(paths).output().unwrap();
        assert!(again.status.success(), "{words:?}: {}", String::from_utf8_lossy(&again.stderr));
        fs::remove_file(&notes).unwrap();
    }
    // Zeros are no contents, and any format of an image is one.
    for start in [&b"QFI\xfb"[..], b"\x3a\xff\x26\xed", b"\x28\xb5\x2f\xfd", &[0]] {
        fs::write(&notes, [start, &[0; 300_000]].concat()).unwrap();
        build(&tree, &notes, &["--force"]);
    }
    // Contents may stand behind many zeros.
    let late = [&vec![0; 300_000][..], b"text"].concat();
    fs::write(&notes, &late).unwrap();
    fail(plat(&["build", "--force"]).arg(&tree).arg(&notes));
    assert!(fs::read(&notes).unwrap() == late);
}

#[test]
fn an_unreadable_file() {
    if tool::administers() {
        // Root reads everything; what it can't read is a name that goes while the tree is read, which a test can't time.
        return;
    }
    let scratch = Scratch::new("unreadable");
    let tree = modest_tree(&scratch, &odd::Options::modest());
    refuses(&tree, &[], &["permission denied"]);
}

#[test]
fn a_signal_leaves_nothing() {
    let scratch = Scratch::new("signal");
    let image = scratch.join("image");
    // Not INT: tests that run in the background may have it ignored, and so would the command.
    for signal in ["TERM", "KILL"] {
        // An archive that goes on for ever: the command is in the middle of it when the signal comes.
        let mut child =
            plat(&["build", "-"]).arg(&image).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut bytes = header(b"endless", 1 << 30, b'0');
        bytes.resize(8 << 20, 9);
        input.write_all(&bytes).unwrap();
        // It has read all but what a pipe holds: it is in the middle of the file.
        tool::run(tool::command("kill").arg(format!("-{signal}")).arg(child.id().to_string()));
        let start = Instant::now();
        // The pipe stays open: it is the signal that ends the command.
        let output = child.wait().unwrap();
        assert!(!output.success());
        assert!(start.elapsed() < PATIENCE, "it goes on");
        drop(input);
        assert_eq!(names(scratch.path()), Vec::<String>::new(), "{signal}");
    }
}
