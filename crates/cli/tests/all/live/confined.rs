//! Calls that the kernel refuses a confined program are refused by the commands that work through the server, too; what they
//! allow, these do.
//!
//! Each kind of confinement holds for two places that are alike. In one, programs of the system try what the commands then
//! do in the other.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use testkit::fsck::assert_clean;
use testkit::scratch::Scratch;
use testkit::tool;

use super::rights::reachable;
use super::{have, volume};
use crate::support::{plat, succeed};

/// A way to confine a program.
struct Kind {
    name: &'static str,
    /// Owner and group of the places, and their modes.
    owner: (&'static str, &'static str),
    /// Done by root in a mount namespace of its own.
    setup: &'static str,
    /// Command that starts the programs.
    launch: &'static str,
    /// They may administer the volume, and reach its root directory.
    administers: bool,
    /// They reach the server.
    connects: bool,
    /// Owners and modes of single files say no: where nothing is to be done with a file, nobody asks them.
    by_file: bool,
}

/// Files that a root directory `$J` needs to run programs.
macro_rules! jail {
    () => {
        "mkdir -p $J/host $J/usr $J/plat $J/dev
        for d in bin sbin lib lib64; do
            if [ -L /$d ]; then cp -P /$d $J/$d; elif [ -d /$d ]; then mkdir $J/$d; mount --bind /$d $J/$d; fi
        done
        mount --bind /usr $J/usr; mount --bind $H $J/host; mount --bind ${PLAT%/*} $J/plat"
    };
}

const USER: &str = "setpriv --reuid 1001 --regid 1001 --clear-groups";
const PLAIN: Kind = Kind {
    name: "",
    owner: ("0:0", "u=rwX,go=rX"),
    setup: "",
    launch: "",
    administers: true,
    connects: true,
    by_file: false,
};

const KINDS: [Kind; 16] = [
    Kind { name: "none", ..PLAIN },
    Kind { name: "read-only bind", setup: "mount --bind $M $M; mount -o remount,bind,ro $M", ..PLAIN },
    Kind {
        name: "hidden by a mount",
        owner: ("1001:1001", "u=rwX,go=rX"),
        setup: "mkdir -p $H/none; chmod 0 $H/none; touch $H/none-file; chmod 0 $H/none-file
            for w in k p; do
                for d in src/sub gone/sub dst/sub; do mount --bind $H/none $K/$w/$d; done
                mount --bind $H/none-file $K/$w/dst/put
            done",
        launch: USER,
        administers: false,
        ..PLAIN
    },
    Kind { name: "Landlock, reading only", launch: "/usr/bin/python3 $H/confine.py read $H", ..PLAIN },
    Kind { name: "Landlock, nothing", launch: "/usr/bin/python3 $H/confine.py none $H", ..PLAIN },
    Kind { name: "Landlock, making only", launch: "/usr/bin/python3 $H/confine.py make $H", ..PLAIN },
    Kind {
        name: "Landlock, the places only",
        launch: "/usr/bin/python3 $H/confine.py places $H",
        administers: false,
        ..PLAIN
    },
    Kind {
        name: "chroot",
        setup: concat!("J=$K; ", jail!(), "; echo known > $J/known; mount --bind /dev $J/dev"),
        launch: "chroot $K env M=/ K=/ H=/host PLAT=/plat/plat TMPDIR=/host",
        administers: false,
        ..PLAIN
    },
    Kind {
        name: "user namespace",
        launch: "setpriv --reuid 1001 --regid 1001 --clear-groups unshare -U -r",
        administers: false,
        by_file: true,
        ..PLAIN
    },
    Kind {
        name: "user namespace, own files",
        owner: ("1001:1001", "u=rwX,go=rX"),
        launch: "setpriv --reuid 1001 --regid 1001 --clear-groups unshare -U -r",
        administers: false,
        ..PLAIN
    },
    Kind {
        name: "ProtectSystem",
        setup: "mount --bind $M $M; mount -o remount,bind,ro $M
            for w in k p; do mount --bind $K/$w/dst $K/$w/dst; mount -o remount,bind,rw $K/$w/dst; done",
        ..PLAIN
    },
    Kind { name: "nosuid", setup: "mount --bind $M $M; mount -o remount,bind,nosuid $M", ..PLAIN },
    Kind {
        name: "other group",
        owner: ("0:77", "u=rwX,g=rX,o="),
        launch: "setpriv --reuid 1003 --regid 1003 --groups 77",
        administers: false,
        by_file: true,
        ..PLAIN
    },
    Kind {
        name: "no capability",
        owner: ("1001:1001", "u=rwX,go=rX"),
        launch: "setpriv --bounding-set=-all --inh-caps=-all",
        administers: false,
        by_file: true,
        ..PLAIN
    },
    Kind {
        name: "seccomp without socket",
        launch: "/usr/bin/python3 $H/confine.py socket $H",
        connects: false,
        ..PLAIN
    },
    Kind { name: "seccomp without removing", launch: "/usr/bin/python3 $H/confine.py remove $H", ..PLAIN },
];

/// Confines itself and becomes another program; 77 where the kernel can't do it.
const CONFINE: &str = r#"
import ctypes, os, platform, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
kind, host, command = sys.argv[1], sys.argv[2], sys.argv[3:]
def must(done):
    if done < 0: raise OSError(ctypes.get_errno(), kind)
    return done
def bytes_of(packed): return ctypes.create_string_buffer(packed, len(packed))
must(libc.prctl(38, 1, 0, 0, 0))
calls = {'socket': {'x86_64': [41], 'aarch64': [198]}, 'remove': {'x86_64': [84, 87, 263], 'aarch64': [35]}}
if kind in calls:
    calls = calls[kind].get(platform.machine())
    if calls is None: sys.exit(77)
    code = [(0x20, 0, 0, 0)]
    for call in calls: code += [(0x15, 0, 1, call), (0x06, 0, 0, 0x50000 | 1)]
    code = b''.join(struct.pack('HBBI', *line) for line in code + [(0x06, 0, 0, 0x7fff0000)])
    code, count = bytes_of(code), len(code) // 8
    program = bytes_of(struct.pack('HxxxxxxP', count, ctypes.addressof(code)))
    must(libc.prctl(22, 2, program, 0, 0))
else:
    abi = libc.syscall(444, None, ctypes.c_size_t(0), 1)
    if abi < 1: sys.exit(77)
    count = {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)
    every, read = (1 << count) - 1, 1 | 4 | 8
    rules = must(libc.syscall(444, bytes_of(struct.pack('Q', every)), ctypes.c_size_t(8), 0))
    def allow(path, rights):
        if not os.path.exists(path): return
        place = os.open(path, os.O_PATH)
        must(libc.syscall(445, rules, 1, bytes_of(struct.pack('<Qi', rights, place)), 0))
    mount = os.environ['M']
    if kind in ('none', 'places'):
        names = ['/usr', '/lib', '/lib64', '/bin', '/sbin', '/etc', '/proc', '/dev', '/root', host]
        for path in names + [os.path.dirname(os.environ['PLAT'])]: allow(path, read)
    else: allow('/', read)
    if kind == 'places': allow(os.environ['K'], every)
    # All but removing.
    if kind == 'make': allow(mount, every & ~(1 << 4 | 1 << 5))
    allow(host, every)
    allow('/dev/null', 2 | 4)
    must(libc.syscall(446, rules, 0))
os.execvp(command[0], command)
"#;

/// Commands, one line each; and before each what other programs do for the same.
const TRIES: &str = r#"
X=$K/$W
try() { name=$1; shift; "$@" > /dev/null 2> $H/out/said; echo "$name $? $(tr '\n' ' ' < $H/out/said)"; }
opens() { : >> "$1"; }
if [ $W = k ]; then
    try export sh -c "tar -C $X/src -cf - . | cat > $H/out/k.tar && tar -C $X/src -cf /dev/null ."
    try import tar -C $X/dst -xf $H/t.tar
    try copy cp -r $X/src $X/dst/copy
    try put cp $H/file $X/dst/put
    try defrag sh -c ": >> $X/src/sub/g"
    try convert sh -c ": >> $X/src/sub/g"
    try snapshot cat $M/known
    try tune sh -c ": >> $M/known"
    try resize sh -c ": >> $M/known"
    try remove rm -r $X/gone
else
    try export $PLAT export $X/src $H/out/p.tar
    try import $PLAT import -q $X/dst $H/t.tar
    try copy $PLAT cp -r $X/src $X/dst/copy
    try put $PLAT put $X/dst $H/file put
    try defrag $PLAT defrag -q $X/src
    try convert $PLAT convert -q --to ext3 $X src
    try snapshot $PLAT snapshot $M $H/out/snapshot
    try tune $PLAT tune -L confined $M
    try resize $PLAT resize $M
    try remove $PLAT rm -r $X/gone
fi
"#;
const VERBS: [&str; 10] =
    ["export", "import", "copy", "put", "defrag", "convert", "snapshot", "tune", "resize", "remove"];

/// The places of a kind below a directory: one for the programs of the system, one for the commands.
fn prepare(below: &Path, kind: &Kind) {
    for place in ["k", "p"] {
        let place = below.join(place);
        for directory in ["src/sub", "dst/sub", "gone/sub"] {
            fs::create_dir_all(place.join(directory)).unwrap();
        }
        for file in ["src/f", "src/sub/g", "gone/f", "gone/sub/h"] {
            fs::write(place.join(file), file.repeat(2000)).unwrap();
        }
        if kind.name == "hidden by a mount" {
            fs::write(place.join("dst/put"), "old").unwrap();
        }
    }
    tool::run(tool::command("chown").args(["-R", kind.owner.0]).arg(below));
    tool::run(tool::command("chmod").args(["-R", kind.owner.1]).arg(below));
}

/// Returns true if a verb has left its trace in a place.
fn is_done(verb: &str, place: &Path, out: &Path, label: &str) -> bool {
    let has = |name: &str| place.join(name).exists();
    match verb {
        "import" => has("dst/new") && has("dst/sub/new"),
        "copy" => has("dst/copy/sub/g"),
        "put" => fs::read(place.join("dst/put")).is_ok_and(|found| found == b"file"),
        "remove" => !has("gone"),
        "export" => fs::metadata(out.join("p.tar")).is_ok_and(|facts| facts.len() > 0),
        "snapshot" => out.join("snapshot").exists(),
        _ => label == "confined",
    }
}

/// Nothing of a verb is to be seen.
fn is_untouched(verb: &str, place: &Path, out: &Path, label: &str) -> bool {
    let has = |name: &str| place.join(name).exists();
    match verb {
        "remove" => has("gone/f") && has("gone/sub/h"),
        "import" => !has("dst/new") && !has("dst/sub/new"),
        "copy" => !has("dst/copy"),
        "defrag" | "convert" | "resize" => true,
        _ => !is_done(verb, place, out, label),
    }
}

struct Stage {
    _scratch: Scratch,
    image: PathBuf,
    mount: PathBuf,
    host: PathBuf,
}

impl Stage {
    fn new(test: &str) -> Self {
        let scratch = Scratch::new(test);
        reachable(&scratch);
        let image = volume(&scratch, "-t ext4 -b 4096", "64M");
        let (mount, host) = (scratch.join("mount"), scratch.join("host"));
        for directory in [&mount, &host, &host.join("out"), &host.join("tree"), &host.join("tree/sub")] {
            fs::create_dir(directory).unwrap();
        }
        for name in ["tree/new", "tree/sub/new", "confine.py", "tries.sh", "file"] {
            fs::write(host.join(name), "file").unwrap();
        }
        fs::write(host.join("confine.py"), CONFINE).unwrap();
        fs::write(host.join("tries.sh"), TRIES).unwrap();
        // Without the directories, whose times and modes a program of others can't set.
        let mut tar = tool::command("tar");
        tool::run(
            tar.arg("-C").arg(host.join("tree")).arg("-cf").arg(host.join("t.tar")).args(["new", "sub/new"]),
        );
        for open in [&host, &host.join("out")] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
        }
        succeed(plat(&["mount", "-o", "rw,allow_other"]).arg(&image).arg(&mount));
        fs::write(mount.join("known"), "known").unwrap();
        Stage { _scratch: scratch, image, mount, host }
    }

    /// The label, as `FS_IOC_GETFSLABEL` shows it.
    fn label(&self) -> String {
        let label = fuse::ask::<0x8100_9431, 256>(File::open(&self.mount).unwrap()).unwrap();
        String::from_utf8_lossy(&label).trim_end_matches('\0').to_owned()
    }

    /// Results of each verb in a place; `None` where the kernel has no such confinement.
    fn tries(&self, kind: &Kind, below: &Path, place: &str) -> Option<BTreeMap<String, (i32, String)>> {
        let out = self.host.join("out");
        fs::remove_dir_all(&out).unwrap();
        fs::create_dir(&out).unwrap();
        fs::set_permissions(&out, fs::Permissions::from_mode(0o777)).unwrap();
        let script = format!("set -e; {}\nset +e; exec {} sh -c '. $H/tries.sh'", kind.setup, kind.launch);
        let mut command = tool::command("unshare");
        command.args(["-m", "sh", "-c", &script]);
        command.env("M", &self.mount).env("K", below).env("H", &self.host).env("W", place);
        let plat = env!("CARGO_BIN_EXE_plat");
        let done = command.env("PLAT", plat).env("TMPDIR", &self.host).output().unwrap();
        if done.status.code() == Some(77) {
            return None;
        }
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let line = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let verb = words.next()?.to_owned();
            Some((verb, (words.next()?.parse().ok()?, words.next().unwrap_or_default().to_owned())))
        };
        let all: BTreeMap<_, _> = said.lines().filter_map(line).collect();
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(all.len(), VERBS.len(), "{}: {said} {errors}", kind.name);
        Some(all)
    }

    /// Compares the verbs of a kind; false if the kernel has no such confinement.
    fn judge(&self, number: usize, kind: &Kind) -> bool {
        let below = self.mount.join(format!("kind{number}"));
        prepare(&below, kind);
        succeed(plat(&["tune", "-L", "before"]).arg(&self.mount));
        let Some(kernel) = self.tries(kind, &below, "k") else { return false };
        let ours = self.tries(kind, &below, "p").unwrap();
        let (out, place, label) = (self.host.join("out"), below.join("p"), self.label());
        for verb in VERBS {
            let is_about_all = matches!(verb, "snapshot" | "tune" | "resize");
            let is_allowed = kernel[verb].0 == 0 && kind.connects && (kind.administers || !is_about_all);
            let said = format!("{}, {verb}: the kernel {:?}, plat {:?}", kind.name, kernel[verb], ours[verb]);
            println!("{said}");
            let may_have_nothing_to_do = verb == "defrag" && kind.by_file;
            assert!((ours[verb].0 == 0) == is_allowed || may_have_nothing_to_do && !is_allowed, "{said}");
            assert!([0, 1, 2].contains(&ours[verb].0), "{said}");
            if is_allowed && !matches!(verb, "defrag" | "convert" | "resize") {
                assert!(is_done(verb, &place, &out, &label), "{said}");
            } else if !is_allowed {
                assert!(is_untouched(verb, &place, &out, &label), "{said}");
            }
        }
        true
    }
}

impl Drop for Stage {
    /// After a failure.
    fn drop(&mut self) {
        let _ = tool::command("fusermount3").arg("-uqz").arg(&self.mount).output();
    }
}

#[test]
fn a_confined_program_may_no_more_through_the_server_than_by_the_kernels_calls() {
    let test = "a_confined_program_may_no_more_through_the_server_than_by_the_kernels_calls";
    let tools = ["setpriv", "unshare", "chroot", "python3", "mount"];
    if !have(test) || !tool::have_tools(test, &tools) {
        return;
    }
    let stage = Stage::new(test);
    let mut lacking = Vec::new();
    for (number, kind) in KINDS.iter().enumerate() {
        if !stage.judge(number, kind) {
            lacking.push(kind.name);
        }
    }
    if !lacking.is_empty() {
        tool::skip(
            test,
            &format!("{} of {} kinds: this kernel has no {lacking:?}", lacking.len(), KINDS.len()),
        );
    }
    succeed(plat(&["umount"]).arg(&stage.mount));
    assert_clean(&stage.image);
}

/// A program may keep a directory open that lies outside of its root directory. The kernel does not show it the mounts that
/// lie there, so that nothing is done there.
#[test]
fn what_lies_outside_of_the_root_directory_is_left_alone() {
    let test = "what_lies_outside_of_the_root_directory_is_left_alone";
    if !have(test) || !tool::have_tools(test, &["unshare", "python3", "mount"]) {
        return;
    }
    let stage = Stage::new(test);
    let removing = r#"
import os
outside = os.open(os.environ['M'] + '/outside', os.O_RDONLY)
os.chroot(os.environ['M'] + '/jail')
def remove(directory, name):
    child = os.fork()
    if child == 0:
        os.fchdir(directory)
        os.execv('/plat/plat', ['plat', 'rm', '-r', name])
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(remove(outside, 'x'), remove(os.open('/in', os.O_RDONLY), 'x'))
"#;
    let script = concat!(
        "set -e; J=$M/jail; ",
        jail!(),
        "; mkdir -p $J/in/x $M/outside/x; exec /usr/bin/python3 -c \"$R\""
    );
    let mut command = tool::command("unshare");
    command.args(["-m", "sh", "-c", script]).env("M", &stage.mount).env("H", &stage.host);
    let done = tool::run(command.env("PLAT", env!("CARGO_BIN_EXE_plat")).env("R", removing));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "1 0", "{said}");
    assert!(said.contains("none that the program sees"), "{said}");
    assert!(stage.mount.join("outside/x").exists() && !stage.mount.join("jail/in/x").exists());
    succeed(plat(&["umount"]).arg(&stage.mount));
}

/// Ids of a mount are mapped by the kernel where a file system agrees; this one does not.
#[test]
fn the_kernel_maps_no_ids_of_a_mount() {
    let test = "the_kernel_maps_no_ids_of_a_mount";
    if !have(test) || !tool::have_tools(test, &["python3"]) {
        return;
    }
    let script = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def must(done):
    if done < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done
ready, go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    must(libc.unshare(0x10000000))
    os.write(ready[1], b'x'); os.read(go[0], 1); os._exit(0)
os.read(ready[0], 1)
for name in ['uid_map', 'gid_map']: open(f'/proc/{child}/{name}', 'w').write('0 100000 65536')
users = os.open(f'/proc/{child}/ns/user', os.O_RDONLY)
def mapped(path):
    copy = libc.syscall(428, -100, path.encode(), 1)
    if copy < 0: return 'none'
    attributes = ctypes.create_string_buffer(struct.pack('QQQQ', 0x100000, 0, 0, users), 32)
    done = libc.syscall(442, copy, b'', 0x1000, attributes, ctypes.c_size_t(32))
    return 'mapped' if done == 0 else os.strerror(ctypes.get_errno())
print(mapped(sys.argv[1]))
os.write(go[1], b'x'); os.waitpid(child, 0)
"#;
    let stage = Stage::new(test);
    let done = tool::run(tool::command("python3").arg("-c").arg(script).arg(&stage.mount));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    succeed(plat(&["umount"]).arg(&stage.mount));
    match said.trim() {
        "none" => tool::skip(test, "this kernel maps no ids of mounts"),
        said => assert_eq!(said, "Invalid argument"),
    }
}
