//! `plat image --metadata`: checkers say the same of it, and no contents and names are in it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use crate::plat::plat;
use testkit::fsck::complaints;
use testkit::images;
use testkit::images::golden;
use testkit::scratch::Scratch;
use testkit::tool;

/// Verdict of e2fsck, without the name of the image.
fn verdict(image: &Path) -> String {
    complaints(image).replace(image.to_str().unwrap(), "IMAGE")
}

fn holds(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

#[test]
fn checkers_say_the_same_of_metadata_alone() {
    let test = "checkers_say_the_same_of_metadata_alone";
    let scratch = Scratch::new(test);
    let mut judged = 0;
    for recipe in images::all() {
        let Some(image) = golden(test, recipe.name) else { continue };
        for how in ["image --metadata", "image --metadata --scramble"] {
            let out = scratch.join("out.img");
            let ran = plat(&format!("{how} --force"), &image, &[out.as_os_str()]);
            if ran.err.contains("ignore case") {
                assert!(recipe.name.contains("casefold") && how.ends_with("--scramble"), "{}", ran.err);
                continue;
            }
            assert_eq!(ran.code, std::process::ExitCode::SUCCESS, "{}: {}", recipe.name, ran.err);
            // Of one that waits for replay it is what comes after that.
            let clean = if recipe.name.contains("unclean") { String::new() } else { verdict(&image) };
            assert_eq!(verdict(&out), clean, "{} {how}", recipe.name);
            assert_eq!(fs::metadata(&out).unwrap().len() >> 10, fs::metadata(&image).unwrap().len() >> 10);
            judged += 1;
        }
    }
    println!("{judged} images of metadata");
}

#[test]
fn contents_values_and_names_are_gone() {
    let test = "contents_values_and_names_are_gone";
    if !tool::have_tools(test, &["mke2fs", "e2fsck", "setfattr"]) {
        return;
    }
    for options in [&["-b", "1024"][..], &["-O", "inline_data", "-I", "256"]] {
        let scratch = Scratch::new(test);
        let (tree, image) = (scratch.join("tree"), scratch.join("disk.img"));
        fs::create_dir_all(tree.join("secret-directory")).unwrap();
        for index in 0..700 {
            fs::write(tree.join(format!("secret-directory/secret-name-{index}")), "secret-contents").unwrap();
        }
        fs::write(tree.join("large"), b"secret-contents ".repeat(9000)).unwrap();
        symlink("secret-target", tree.join("short")).unwrap();
        symlink("secret-target/".repeat(20), tree.join("long")).unwrap();
        let large = tree.join("large");
        let mut setfattr = tool::command("setfattr");
        tool::run(setfattr.args(["-n", "user.a", "-v", "secret-value"]).arg(&large));
        // A value that takes a block of its own.
        let mut setfattr = tool::command("setfattr");
        tool::run(setfattr.args(["-n", "user.b", "-v"]).arg("secret-value".repeat(40)).arg(&large));
        tool::run(
            tool::command("mke2fs")
                .args(["-q", "-F", "-t", "ext4", "-L", "secret-label"])
                .args(options)
                .arg("-d")
                .arg(&tree)
                .arg(&image)
                .arg("64M"),
        );
        // It indexes directories.
        let _ = tool::command("e2fsck").args(["-fyD"]).arg(&image).output().unwrap();
        assert!(holds(&fs::read(&image).unwrap(), b"secret-"));
        let (out, hidden, packed) =
            (scratch.join("out.img"), scratch.join("hidden.img"), scratch.join("out.img.zst"));
        plat("image --metadata", &image, &[out.as_os_str()]).fine();
        plat("image --metadata --scramble", &image, &[hidden.as_os_str()]).fine();
        plat("image --metadata", &image, &[packed.as_os_str()]).fine();
        let (all, hidden_bytes) = (fs::read(&out).unwrap(), fs::read(&hidden).unwrap());
        assert!(
            !holds(&all, b"secret-contents") && !holds(&all, b"secret-value") && holds(&all, b"secret-name")
        );
        assert!(!holds(&hidden_bytes, b"secret-"), "{options:?}");
        assert_eq!((verdict(&out), verdict(&hidden)), (String::new(), String::new()), "{options:?}");
        assert!(
            fs::metadata(&out).unwrap().blocks() << 9 < 8 << 20,
            "{}",
            fs::metadata(&out).unwrap().blocks()
        );
        // A hidden name may begin with a dot.
        let names = |image: &Path| {
            let all = plat("ls -aR --json", image, &[]).fine();
            serde_json::from_slice::<serde_json::Value>(&all).unwrap().as_array().unwrap().len()
        };
        assert_eq!(names(&hidden), names(&image), "{options:?}");
        if tool::find("zstd").is_some() {
            let plain = tool::run(tool::command("zstd").args(["-dc"]).arg(&packed)).stdout;
            assert!(plain == all, "{options:?}: it is the same packed");
        }
        assert!(plat("image --metadata", &image, &[out.as_os_str()]).failed().contains("exists"));
        let usage = plat("image", &image, &[OsStr::new("x")]);
        assert_eq!(usage.code, std::process::ExitCode::from(2));
    }
}
