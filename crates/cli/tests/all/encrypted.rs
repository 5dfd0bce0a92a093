//! Encrypted files by the command line: with a key they are read, without it names are shown and contents refused.

use crate::support::mounted::{Mounted, have_fuse};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::mount;
use testkit::scratch::Scratch;
use testkit::tool;

/// Makes an encrypted directory in the kernel's mount.
const MAKE: &str = r#"
import fcntl, os, struct, sys
root, key = sys.argv[1], bytes(range(64))
fd = os.open(root, os.O_RDONLY)
arg = bytearray(struct.pack('<II32s', 2, 0, b'') + struct.pack('<II32s', len(key), 0, b'') + key)
fcntl.ioctl(fd, 0xC0506617, arg)
os.mkdir(root + '/secret')
top = os.open(root + '/secret', os.O_RDONLY)
fcntl.ioctl(top, 0x800C6613, struct.pack('<BBBBB3s16s', 2, 1, 4, 3, 0, b'', bytes(arg[8:24])))
open(root + '/secret/letter', 'w').write('dear reader\n' * 1000)
os.symlink('letter', root + '/secret/link')
"#;

fn plat(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plat")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// An image with an encrypted directory; its key in a file.
fn made(test: &str, scratch: &Scratch) -> Option<(PathBuf, PathBuf)> {
    let has_feature = Path::new("/sys/fs/ext4/features/encryption").exists();
    if !mount::have_loop_mount(test) || !tool::have_tools(test, &["mke2fs", "python3"]) {
        return None;
    }
    if !has_feature {
        tool::skip(test, "this kernel has no encryption");
        return None;
    }
    let (image, key) = (scratch.join("image"), scratch.join("key"));
    tool::run(
        tool::command("mke2fs").args(["-q", "-F", "-t", "ext4", "-O", "encrypt"]).arg(&image).arg("32M"),
    );
    let mounted = mount::Mounted::kernel(&image, "loop,rw").unwrap();
    tool::run(tool::command("python3").args(["-c", MAKE]).arg(mounted.path()));
    drop(mounted);
    fs::write(&key, (0..64).collect::<Vec<u8>>()).unwrap();
    Some((image, key))
}

#[test]
fn commands_read_with_a_key() {
    let scratch = Scratch::new("commands_read_with_a_key");
    let Some((image, key)) = made("commands_read_with_a_key", &scratch) else { return };
    let (image, key) = (image.to_str().unwrap(), key.to_str().unwrap());
    let letter = "dear reader\n".repeat(1000);
    assert_eq!(said(&plat(&["ls", "--key", key, image, "/secret"])), "letter\nlink\n");
    assert_eq!(said(&plat(&["cat", "--key", key, image, "/secret/link"])), letter);
    let hex = (0..64).fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let spelled = plat(&["cat", "--key", &hex, image, "/secret/letter"]);
    assert_eq!(said(&spelled), letter);
    let warning = String::from_utf8_lossy(&spelled.stderr);
    assert!(warning.contains("other users see its digits") && !warning.contains(&hex[..32]), "{warning}");
    let out = scratch.join("out");
    said(&plat(&["export", "--key", key, image, out.to_str().unwrap()]));
    assert_eq!(fs::read_to_string(out.join("secret/letter")).unwrap(), letter);

    let names = said(&plat(&["ls", image, "/secret"]));
    assert!(names.lines().count() == 2 && !names.contains("letter"), "{names}");
    // The target of the link is shown in the form of a name, and leads nowhere.
    let refused: Vec<String> = names
        .lines()
        .map(|name| plat(&["cat", image, &format!("/secret/{name}")]))
        .inspect(|refused| assert!(!refused.status.success() && refused.stdout.is_empty()))
        .map(|refused| String::from_utf8_lossy(&refused.stderr).into_owned())
        .collect();
    let about_the_key = |why: &&String| why.contains("encrypted, and its key is not known");
    assert_eq!(refused.iter().filter(about_the_key).count(), 1, "{refused:?}");
    let short = plat(&["ls", "--key", "00ff", image]);
    assert!(String::from_utf8_lossy(&short.stderr).contains("16 to 64 bytes"));
}

/// Mounts as an ordinary user, for whom a node stands in where `/dev/fuse` is for root only; says whether a program of the
/// same user opens the server's memory and its environment, if `strace` can follow it, what the
/// words of its command are, and what comes out through its control channel.
const LOOK: &str = r#"mknod -m 666 "$1/fuse" c 10 229; mount --bind "$1/fuse" /dev/fuse; cd "$1"
nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
$nobody "$2" mount -f -o "$3" image m 2>log & server=$!
until grep -q " $1/m " /proc/self/mountinfo; do kill -0 $server || { cat log >&2; exit 1; }; sleep 0.05; done
for file in mem environ; do
    if $nobody sh -c "exec 3< /proc/$server/$file" 2>refused; then echo open; else echo shut; fi
done
: >told; $nobody strace -qq -o /dev/null -p $server 2>told & tracer=$!
until [ -s told ] || grep -q 'TracerPid:.*[1-9]' /proc/$server/status; do
    [ -s told ] || kill -0 $tracer || { sleep 0.2; [ -s told ] || { echo 'no tracer' >&2; exit 1; }; }
    sleep 0.05
done
if [ -s told ]; then echo refused; else echo followed; fi
kill $tracer 2>/dev/null || true; wait $tracer || true
tr '\0' ' ' < /proc/$server/cmdline; echo
$nobody "$2" export m/secret - | tar -xOf - | sed 1q
$nobody "$2" umount m; wait $server"#;

#[test]
fn nobody_else_of_the_same_user_looks_into_a_server_with_keys() {
    let test = "nobody_else_of_the_same_user_looks_into_a_server_with_keys";
    let tools = ["setpriv", "strace", "unshare", "tar"];
    if !have_fuse(test) || !tool::have_root(test) || !tool::have_tools(test, &tools) {
        return;
    }
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    if yama.is_ok_and(|scope| scope.trim() != "0") {
        tool::skip(test, "needs kernel.yama.ptrace_scope=0");
        return;
    }
    let scratch = Scratch::new(test);
    let Some((image, key)) = made(test, &scratch) else { return };
    let binary = scratch.join("plat");
    fs::copy(env!("CARGO_BIN_EXE_plat"), &binary).unwrap();
    fs::create_dir(scratch.join("m")).unwrap();
    for path in [scratch.path(), &image, &key, &binary, &scratch.join("m")] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let look = |option: &str| {
        let mut command = tool::command("unshare");
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.args(["-m", "sh", "-ec", LOOK, "sh"]).arg(scratch.path()).arg(&binary).arg(option);
        let output = said(&command.output().unwrap());
        fs::remove_file(scratch.join("fuse")).unwrap();
        output.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let plain = look("ro");
    assert_eq!(plain[..3], ["open", "open", "followed"], "this test sees what can be seen");
    let hidden = look(&format!("ro,key={}", key.display()));
    assert_eq!(hidden[..3], ["shut", "shut", "refused"]);
    assert!(hidden[3].contains("key=/") && hidden[4] == "dear reader", "{hidden:?}");

    // A key that its words would show is refused, and named nowhere.
    let hex = (0..64).fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let refused = Mounted::new(&image, &["-o", &format!("ro,key={hex}")]).err().unwrap();
    assert!(refused.contains("takes a file") && !refused.contains(&hex[..32]), "{refused}");
}

#[test]
fn a_mount_for_reading_takes_a_key() {
    let test = "a_mount_for_reading_takes_a_key";
    let scratch = Scratch::new(test);
    if !have_fuse(test) {
        return;
    }
    let Some((image, key)) = made(test, &scratch) else { return };
    let option = format!("ro,key={}", key.display());
    let mounted = Mounted::new(&image, &["-o", &option]).unwrap();
    let letter = fs::read_to_string(mounted.path().join("secret/letter")).unwrap();
    assert_eq!(letter, "dear reader\n".repeat(1000));
    assert_eq!(fs::read_link(mounted.path().join("secret/link")).unwrap(), Path::new("letter"));
    mounted.unmount();
    let refused = Mounted::new(&image, &["-o", &option.replace("ro,", "rw,")]).err().unwrap();
    assert!(refused.contains("keys are for reading"), "{refused}");
    let mounted = Mounted::new(&image, &["-o", "ro"]).unwrap();
    for entry in fs::read_dir(mounted.path().join("secret")).unwrap() {
        let path = entry.unwrap().path();
        let read = fs::read(&path);
        assert!(path.is_symlink() || read.unwrap_err().raw_os_error() == Some(126), "{}", path.display());
    }
    mounted.unmount();
}
