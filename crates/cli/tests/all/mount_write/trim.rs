//! `fstrim` of a mount: the image gives back what is not in use, and nothing else of it changes.

use super::*;

/// Runs `fstrim`; bytes that it names, or what it says.
fn fstrim(place: &Path, arguments: &[&str]) -> Result<u64, String> {
    let output = tool::command("fstrim").arg("-v").args(arguments).arg(place).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let bytes = said.split_once('(').and_then(|(_, rest)| rest.split_once(" bytes"));
    Ok(bytes.unwrap_or_else(|| panic!("{said}")).0.parse().unwrap())
}

#[test]
fn free_space_is_given_back_to_the_image() {
    let test = "free_space_is_given_back_to_the_image";
    if !have(test, &["mke2fs", "e2fsck", "fstrim", "setpriv"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = ext4(&scratch);
    let used = || fs::metadata(&image).unwrap().blocks() << 9;
    let mounted = Mounted::new(&image, &["-o", "rw,allow_other"]).unwrap();
    let (kept, gone) = (mounted.path().join("kept"), mounted.path().join("gone"));
    for path in [&kept, &gone] {
        fs::write(path, vec![7; 8 << 20]).unwrap();
        File::open(path).unwrap().sync_all().unwrap();
    }
    fs::remove_file(&gone).unwrap();
    let before = used();
    // Once the kernel has forgotten the file, and a commit is made, all of it can go.
    let least = fs::metadata(&kept).unwrap().len() - (1 << 20);
    let begun = Instant::now();
    while used() + least > before {
        File::open(mounted.path()).unwrap().sync_all().unwrap();
        let trimmed = fstrim(mounted.path(), &[]).unwrap();
        assert!(trimmed > 1 << 20, "{trimmed}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{before} {}", used());
    }
    let all = fstrim(mounted.path(), &[]).unwrap();
    assert!(fstrim(mounted.path(), &["-o", "1M", "-l", "9M"]).unwrap() <= 9 << 20);
    assert!(fstrim(mounted.path(), &["-m", "1M"]).unwrap() <= all);
    let said = crate::support::succeed(&mut crate::support::plat(&[
        "trim",
        "--json",
        mounted.path().to_str().unwrap(),
    ]))
    .stdout;
    let ours: serde_json::Value = serde_json::from_slice(&said).unwrap();
    // Files that grow have space set aside for a moment.
    assert!(ours["bytes"].as_u64().unwrap().abs_diff(all) < 1 << 20, "{ours} {all}");
    let wrong = fstrim(mounted.path(), &["-o", "1T"]).unwrap_err();
    assert!(wrong.contains("Invalid argument"), "{wrong}");
    // A place that others reach.
    let place = Path::new("/tmp").join(format!("plat-trim-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    tool::run(tool::command("mount").arg("--bind").arg(mounted.path()).arg(&place));
    let mut other = tool::command("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "fstrim"]).arg(&place);
    let other = other.output();
    tool::run(tool::command("umount").arg(&place));
    fs::remove_dir(&place).unwrap();
    let other = String::from_utf8(other.unwrap().stderr).unwrap();
    assert!(other.contains("FITRIM") && other.contains("not permitted"), "{other}");
    assert!(fs::read(&kept).unwrap().iter().all(|byte| *byte == 7));
    mounted.unmount();
    assert_clean(&image);
    let mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    let refused = fstrim(mounted.path(), &[]).unwrap_err();
    assert!(refused.contains("Read-only file system"), "{refused}");
    assert!(fs::read(mounted.path().join("kept")).unwrap().iter().all(|byte| *byte == 7));
    mounted.unmount();
}
