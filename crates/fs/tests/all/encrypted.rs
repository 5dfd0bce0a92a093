//! Files that the kernel encrypted are read with their key, and without it shown as the kernel shows them then.
#![cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::device::FileDevice;
use platfs::{Error, Key, OpenOptions, Volume};
use testkit::mount::{Mounted, have_loop_mount};
use testkit::scratch::Scratch;
use testkit::tool;

/// Adds keys, makes trees of each policy, and prints what is in them, with the key and after it was removed: path, kind,
/// contents in hexadecimal.
const MAKE: &str = r#"
import fcntl, os, struct, sys
ADD, REMOVE, SET = 0xC0506617, 0xC0406618, 0x800C6613
root, how = sys.argv[1], sys.argv[2]
key = bytes(range(64))
descriptor = bytes(range(1, 9))

def on(path, number, arg):
    fd = os.open(path, os.O_RDONLY)
    fcntl.ioctl(fd, number, arg)
    os.close(fd)
    return arg

def add(spec):
    arg = bytearray(spec + struct.pack('<II32s', len(key), 0, b'') + key)
    return bytes(on(root, ADD, arg)[8:24])

def make(name, policy):
    top = root + '/' + name
    os.mkdir(top)
    on(top, SET, policy)
    for count in (1, 2, 15, 16, 17, 31, 32, 33, 100, 142, 143, 144, 150, 200, 255):
        open(top + '/' + 'n' * count, 'w').write('contents of %d\n' % count)
    os.mkdir(top + '/sub')
    for number in range(150):
        open(top + '/sub/a file with number %d' % number, 'w').write(str(number) * 50)
    for size in (1, 15, 16, 1023, 1024, 4095, 4096, 4097, 70000):
        open(top + '/size-%d' % size, 'wb').write(bytes((at * 7 + size) & 255 for at in range(size)))
    with open(top + '/holes', 'wb') as file:
        for at in (5000, 90000, 300000):
            file.seek(at)
            file.write(b'data')
        file.truncate(400000)
    for count in (1, 20, 58, 59, 60, 61, 200, 900):
        os.symlink('t' * count, top + '/link-%d' % count)

def show(known):
    for top, directories, files in os.walk(root):
        if 'lost+found' in top:
            continue
        for name in directories + files:
            path = os.path.join(top, name)
            shown = os.fsencode(os.path.relpath(path, root)).hex()
            if os.path.islink(path):
                print(known, shown, 'l', os.fsencode(os.readlink(path)).hex())
            elif os.path.isdir(path):
                print(known, shown, 'd', '')
            elif known == 'without':
                print(known, shown, 'f', '')
            else:
                print(known, shown, 'f', open(path, 'rb').read().hex())

if how == 'make':
    identifier = add(struct.pack('<II32s', 2, 0, b''))
    add(struct.pack('<II32s', 1, 0, descriptor))
    for padding in (0, 3):
        make('two-%d' % padding, struct.pack('<BBBBB3s16s', 2, 1, 4, padding, 0, b'', identifier))
    make('one', struct.pack('<BBBB8s', 0, 1, 4, 2, descriptor))
    make('numbers', struct.pack('<BBBBB3s16s', 2, 1, 4, 3 | 8, 0, b'', identifier))
    os.sync()
    show('with')
else:
    show('without')
"#;

fn kernels(root: &Path, how: &str) -> BTreeSet<String> {
    let output = tool::run(tool::command("python3").args(["-c", MAKE]).arg(root).arg(how));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn ours(image: &Path, keys: &[Key]) -> BTreeSet<String> {
    let device = Arc::new(FileDevice::new(File::open(image).unwrap()).unwrap());
    let volume = Volume::open(device, &OpenOptions::new().keys(keys)).unwrap();
    let known = if keys.is_empty() { "without" } else { "with" };
    let mut found = BTreeSet::new();
    let mut left = vec![(InodeNumber::ROOT, Vec::new())];
    while let Some((directory, above)) = left.pop() {
        for entry in volume.read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(volume.lookup(directory, &entry.name).unwrap(), entry.inode, "{}", hex(&entry.name));
            let path = [&above[..], &entry.name].concat();
            if path == b"lost+found" {
                found.insert(format!("{known} {} d ", hex(&path)));
                continue;
            }
            let (kind, contents) = match volume.metadata(entry.inode).unwrap().file_type {
                FileType::Directory => {
                    left.push((entry.inode, [&path[..], b"/"].concat()));
                    ('d', Vec::new())
                }
                FileType::Symlink => ('l', volume.read_link(entry.inode).unwrap()),
                _ => ('f', contents(&volume, entry.inode, keys.is_empty())),
            };
            found.insert(format!("{known} {} {kind} {}", hex(&path), hex(&contents)));
        }
    }
    found
}

/// In pieces of odd lengths. Without a key there is nothing.
fn contents(volume: &Volume, inode: InodeNumber, is_locked: bool) -> Vec<u8> {
    let (mut all, mut room) = (Vec::new(), [0; 3001]);
    loop {
        match volume.read_at(inode, all.len() as u64, &mut room) {
            Ok(0) => break,
            Ok(count) => all.extend(&room[..count]),
            Err(Error::Locked) if is_locked => {
                assert!(matches!(volume.open_file(inode), Err(Error::Locked)));
                return Vec::new();
            }
            Err(error) => panic!("inode {inode}: {error}"),
        }
    }
    assert!(!is_locked);
    all
}

fn agrees(test: &str, options: &[&str]) {
    let has_feature = Path::new("/sys/fs/ext4/features/encryption").exists();
    if !have_loop_mount(test) || !tool::have_tools(test, &["mke2fs", "python3"]) {
        return;
    }
    if !has_feature {
        return tool::skip(test, "this kernel has no encryption");
    }
    let scratch = Scratch::new(test);
    let image = scratch.join("image");
    tool::run(tool::command("mke2fs").args(["-q", "-F"]).args(options).arg(&image).arg("64M"));
    let mounted = Mounted::kernel(&image, "loop,rw").unwrap();
    let with = kernels(mounted.path(), "make");
    drop(mounted);
    let mounted = Mounted::kernel(&image, "loop,ro").unwrap();
    let without = kernels(mounted.path(), "show");
    drop(mounted);
    let master: Vec<u8> = (0..64).collect();
    let key = Key::new(&master).unwrap().with_descriptor([1, 2, 3, 4, 5, 6, 7, 8]);
    let other = Key::new(&[7; 64]).unwrap();
    for (theirs, keys) in [(&with, vec![other.clone(), key]), (&without, Vec::new())] {
        let ours = ours(&image, &keys);
        let only_theirs: Vec<_> = theirs.difference(&ours).take(3).collect();
        let only_ours: Vec<_> = ours.difference(theirs).take(3).collect();
        assert!(
            theirs.len() > 600 && only_theirs.is_empty() && only_ours.is_empty(),
            "{only_theirs:?}\n{only_ours:?}"
        );
    }
    // A key that is not the right one is as none.
    let device = Arc::new(FileDevice::new(File::open(&image).unwrap()).unwrap());
    let volume = Volume::open(device, &OpenOptions::new().keys(&[other])).unwrap();
    let locked = volume.resolve(b"/two-0").unwrap();
    assert!(volume.inode(locked).is_locked().unwrap());
    assert!(matches!(volume.lookup(locked, b"not a name without a key"), Err(Error::NotFound)));
}

#[test]
fn what_the_kernel_encrypted_in_small_blocks() {
    agrees(
        "what_the_kernel_encrypted_in_small_blocks",
        &["-t", "ext4", "-b", "1024", "-O", "encrypt,stable_inodes"],
    );
}

#[test]
fn what_the_kernel_encrypted_in_large_blocks() {
    agrees(
        "what_the_kernel_encrypted_in_large_blocks",
        &["-t", "ext4", "-b", "4096", "-O", "encrypt,stable_inodes"],
    );
}

#[test]
fn contexts_in_blocks_of_attributes() {
    agrees(
        "contexts_in_blocks_of_attributes",
        &["-t", "ext4", "-I", "128", "-b", "4096", "-O", "encrypt,stable_inodes"],
    );
}

#[test]
fn keys_have_16_to_64_bytes() {
    assert!(Key::new(&[1; 15]).is_err() && Key::new(&[1; 65]).is_err());
    assert!(Key::new(&[1; 16]).is_ok() && Key::new(&[1; 64]).is_ok());
    // Nothing of a key is shown.
    assert!(!format!("{:?}", Key::new(&[0x41; 32]).unwrap()).contains("4141"));
}
