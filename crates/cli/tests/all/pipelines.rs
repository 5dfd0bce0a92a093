//! Ten pipelines of public guides that end in an image, whole: by the guides' own tools up to `plat`, and behind it. What
//! the kernel shows of each image is what the guide's system is: names, modes, owners, times, contents, attributes,
//! capabilities, devices and links.
//!
//! A small system stands for the guides' ones. `PLATFS_ROOTFS` names an archive of a real one: `scripts/pipelines.sh` makes
//! that by mmdebstrap, and runs these tests on it. What a guide needs and is not installed skips its test by name.

#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::support::build;
use testkit::mount::{Mounted, have_loop_mount};
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same};
use testkit::{fsck, odd, tool};

/// A user without rights, as builders are.
const NOBODY: &str = "65534";

fn have(test: &str, tools: &[&str]) -> bool {
    tool::have_root(test)
        && have_loop_mount(test)
        && tool::have_tools(test, &["e2fsck", "tar", "setpriv", "sh"])
        && tool::have_tools(test, tools)
}

/// A system as a guide has it before the image is made.
struct System {
    scratch: Scratch,
    /// Its archive, with attributes.
    archive: PathBuf,
    /// Unpacked by GNU tar as root.
    tree: PathBuf,
}

impl System {
    fn new(test: &str) -> Self {
        let scratch = Scratch::new(test);
        fs::set_permissions(scratch.join(""), fs::Permissions::from_mode(0o777)).unwrap();
        let archive = scratch.join("system.tar");
        match std::env::var_os("PLATFS_ROOTFS") {
            Some(real) => drop(fs::copy(real, &archive).unwrap()),
            None => {
                let made = scratch.join("made");
                fs::create_dir(&made).unwrap();
                odd::make(&made, &odd::Options::modest());
                odd::pack(&made, &archive);
            }
        }
        let tree = scratch.join("tree");
        fs::create_dir(&tree).unwrap();
        let system = System { scratch, archive, tree };
        system.sh("tar --xattrs --xattrs-include='*' --acls --numeric-owner -xpf system.tar -C tree");
        system
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    fn commands(&self, command: &mut Command, script: &str) -> String {
        command
            .current_dir(self.path(""))
            .env("PLAT", env!("CARGO_BIN_EXE_plat"))
            .env_remove("SOURCE_DATE_EPOCH");
        command.env("LC_ALL", "C").args(["-euc", script]);
        String::from_utf8_lossy(&tool::run(command).stdout).into_owned()
    }

    /// Runs commands of a guide where the system is; `$PLAT` is the command.
    fn sh(&self, script: &str) -> String {
        self.commands(&mut tool::command("sh"), script)
    }

    /// Runs a script as a builder without rights.
    fn sh_as_nobody(&self, script: &str) -> String {
        let mut command = tool::command("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "sh"]);
        self.commands(&mut command, script)
    }

    fn expected(&self) -> Snapshot {
        Snapshot::of(&self.tree).unwrap()
    }

    /// The kernel shows the system in an image, `offset` bytes into a file.
    fn is_in(&self, name: &str, offset: u64) {
        self.is_in_but_for(name, offset, Rules::default());
    }

    fn is_in_but_for(&self, name: &str, offset: u64, rules: Rules) {
        let image = self.path(name);
        if offset == 0 {
            fsck::assert_clean(&image);
        }
        let mounted = Mounted::kernel(&image, &format!("loop,ro,offset={offset}")).unwrap();
        // Every volume of plat has it.
        self.shows(&mounted, &[b"lost+found"], rules);
    }

    /// The tree in the image is the archive's, but for its root, of which the archive says nothing.
    fn is_in_but_for_the_root(&self, name: &str) {
        let image = self.path(name);
        fsck::assert_clean(&image);
        let mounted = Mounted::read_only(&image).unwrap();
        self.shows(&mounted, &[b"", b".", b"lost+found"], Rules::default());
    }

    /// The kernel shows the archive's tree in a mount, but for these names.
    fn shows(&self, mounted: &Mounted, but: &[&[u8]], rules: Rules) {
        let (mut shown, mut expected) = (Snapshot::of(mounted.path()).unwrap(), self.expected());
        for name in but {
            shown.entries.remove(*name);
            expected.entries.remove(*name);
        }
        assert_same(&expected, &shown, &Rules { sockets: false, ..rules });
    }
}

/// mmdebstrap and its guide: an archive in a pipe, by a user without rights, `df` with room to work.
#[test]
fn a_bootstrapped_system_comes_through_a_pipe() {
    let test = "a_bootstrapped_system_comes_through_a_pipe";
    if !have(test, &["cat"]) {
        return;
    }
    let system = System::new(test);
    system.sh_as_nobody("cat system.tar | $PLAT build -q --size auto+64M - a.img");
    system.is_in("a.img", 0);
    system.sh_as_nobody("gzip -c system.tar | $PLAT build -q --size auto+20% - b.img");
    system.is_in("b.img", 0);
    let available = |name: &str| {
        let mounted = Mounted::read_only(&system.path(name)).unwrap();
        let facts = rustix::fs::statvfs(mounted.path()).unwrap();
        (facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize)
    };
    let (bytes, _) = available("a.img");
    assert!((64 << 20..72 << 20).contains(&bytes), "{bytes}");
    let (bytes, all) = available("b.img");
    assert!((all / 5..all / 4 + (8 << 20)).contains(&bytes), "{bytes} of {all}");
    // The same of volumes that are there, smaller and larger.
    for (size, least, most) in
        [("auto+30M", 30 << 20, 62 << 20), ("auto+300M", 300 << 20, 332 << 20), ("auto+50%", 0, 1 << 40)]
    {
        system.sh(&format!("$PLAT resize a.img {size} >/dev/null"));
        system.is_in("a.img", 0);
        let (bytes, all) = available("a.img");
        assert!((least..most).contains(&bytes), "{size}: {bytes}");
        // A last group has to be worth its tables.
        let is_half = bytes >= all / 2 && all < 2 * (all - bytes) + (128 << 20);
        assert!(size != "auto+50%" || is_half, "{bytes} of {all}");
    }
}

/// `docker export | plat build`: names without `./`, no entry of the root, hard links to earlier names.
#[test]
fn an_exported_container_is_its_image() {
    let test = "an_exported_container_is_its_image";
    if !have(test, &["find"]) {
        return;
    }
    let system = System::new(test);
    system.sh(
        "cd tree; find . -mindepth 1 ! -type s -printf '%P\\0' | LC_ALL=C sort -z | tar --null --no-recursion -T - \
         --xattrs --xattrs-include='*' --acls --format=posix --sparse -cf ../exported.tar",
    );
    system.sh_as_nobody("cat exported.tar | $PLAT build -q - a.img");
    // The archive says nothing about the root.
    system.sh("chmod 755 tree; chown 0:0 tree; setfattr -h -x user.none tree 2>/dev/null || true");
    system.is_in_but_for_the_root("a.img");
}

/// `wsl --import` takes a packed archive into a virtual disk.
#[test]
fn a_packed_system_becomes_a_virtual_disk() {
    let test = "a_packed_system_becomes_a_virtual_disk";
    if !have(test, &["gzip", "xz", "qemu-img"]) {
        return;
    }
    let system = System::new(test);
    system.sh_as_nobody("gzip -c system.tar >system.tgz; xz -0c system.tar >system.txz");
    system.sh_as_nobody("$PLAT build -q system.tgz a.vhd; qemu-img convert -f vpc -O raw a.vhd a.img");
    system.sh_as_nobody("$PLAT build -q system.txz a.qcow2; qemu-img convert -f qcow2 -O raw a.qcow2 b.img");
    system.is_in("a.img", 0);
    system.is_in("b.img", 0);
}

/// Buildroot: owners and devices of its target directory exist under fakeroot only.
#[test]
fn a_system_of_fakeroot_is_root_s() {
    let test = "a_system_of_fakeroot_is_root_s";
    if !have(test, &["fakeroot"]) {
        return;
    }
    let system = System::new(test);
    system.sh_as_nobody(
        "mkdir target out; echo root >target/shadow; mkdir target/dev; echo run >target/su; \
         printf '%s\\n' 'chown -R 0:0 target' 'chmod 4755 target/su' 'chmod 600 target/shadow' \
         'mknod -m 622 target/dev/console c 5 1' 'chown 5:6 target/su' 'chmod 4755 target/su' \
         'touch -hd @1600000000 target/su target/shadow target/dev target' \
         'tar --numeric-owner -C target -cf out/rootfs.tar .' >make.sh; fakeroot -- sh -e make.sh",
    );
    system.sh("rm -rf tree; mkdir tree; tar --numeric-owner -xpf out/rootfs.tar -C tree");
    system.sh_as_nobody("$PLAT build -q --size 32M -E root_owner=0:0 out/rootfs.tar a.img");
    system.is_in("a.img", 0);
    // Its table of devices, without fakeroot.
    system.sh_as_nobody(
        "printf '%s\\n' '/dev/console c 622 0 0 5 1 0 0 -' '/su f 4755 5 6 - - - - -' \
         '/shadow f 600 0 0 - - - - -' >table; $PLAT build -q --size 32M --owner 0:0 --pseudo table target b.img",
    );
    let rules = Rules { times: false, ..Rules::default() };
    system.is_in_but_for("b.img", 0, rules);
}

/// Nix: the same bytes from whoever builds, cut to the least and given room behind.
#[test]
fn a_closure_gives_the_same_image_anywhere() {
    let test = "a_closure_gives_the_same_image_anywhere";
    if !have(test, &["find", "cp"]) {
        return;
    }
    let system = System::new(test);
    system.sh("find tree -exec touch -hd @1 {} +");
    // Another directory, made in another order: the host lists it in another order where it lists by age.
    system.sh(
        "mkdir -p again/tree; cd tree; \
         find . ! -type d -print0 | LC_ALL=C sort -rz | xargs -0 cp -a --parents -t ../again/tree; cp -a . ../again/tree; \
         cd ..; find again/tree -exec touch -hd @1 {} +",
    );
    system.sh("export SOURCE_DATE_EPOCH=1; $PLAT build -q --reproducible tree a.img; \
         $PLAT build -q --reproducible again/tree b.img; cmp a.img b.img; \
         $PLAT resize -M a.img >/dev/null; $PLAT resize -M b.img >/dev/null; cmp a.img b.img; \
         $PLAT resize a.img $(($(stat -c %s a.img) + 16777216)) >/dev/null");
    system.is_in("a.img", 0);
}

/// Yocto: an archive that pseudo makes, in a partition as wic lays it out.
#[test]
fn a_system_of_pseudo_lies_in_a_partition() {
    let test = "a_system_of_pseudo_lies_in_a_partition";
    if !have(test, &["pseudo", "sfdisk", "dd"]) {
        return;
    }
    let system = System::new(test);
    system.sh_as_nobody(
        "mkdir state target; export PSEUDO_PREFIX=/usr PSEUDO_LOCALSTATEDIR=$PWD/state PSEUDO_PASSWD=/; \
         echo a >target/init; mkdir target/dev; printf '%s\\n' 'chown -R 0:0 target' 'chown 3:4 target/init' \
         'chmod 2755 target/init' 'mknod -m 666 target/dev/null c 1 3' \
         'touch -hd @1600000000 target/init target/dev target' \
         'tar --numeric-owner -C target -cf rootfs.tar .' >make.sh; pseudo sh -e make.sh",
    );
    system.sh("rm -rf tree; mkdir tree; tar --numeric-owner -xpf rootfs.tar -C tree");
    system.sh_as_nobody(
        "truncate -s 96M disk.img; printf 'label: gpt\\nstart=2048,size=65536\\nstart=67584,name=root\\n' | sfdisk -q disk.img; \
         $PLAT build -q --force rootfs.tar disk.img@part2; $PLAT check -fn disk.img@part:root >/dev/null",
    );
    system.is_in("disk.img", 67584 * 512);
}

/// genimage takes the image as a partition of its disk.
#[test]
fn genimage_takes_the_image_into_a_disk() {
    let test = "genimage_takes_the_image_into_a_disk";
    if !have(test, &["genimage", "dd"]) {
        return;
    }
    let system = System::new(test);
    system.sh_as_nobody(
        "mkdir in root; $PLAT build -q -E root_owner=0:0,root_perms=0755 system.tar in/root.ext4; printf '%s\\n' \
         'image disk.img { hdimage { } partition root { offset = 4M partition-type = 0x83 image = \"root.ext4\" } }' >genimage.cfg; \
         genimage --rootpath root --tmppath gtmp --inputpath in --outputpath out --config genimage.cfg",
    );
    system.sh("chmod 755 tree; chown 0:0 tree");
    system.sh_as_nobody("$PLAT check -fn out/disk.img@part1 >/dev/null");
    system.is_in("out/disk.img", 4 << 20);
}

/// Kata and Firecracker: an empty volume that is filled, entry by entry, and a disk whose partition begins at 3 MiB.
#[test]
fn a_guest_s_root_is_filled_piece_by_piece() {
    let test = "a_guest_s_root_is_filled_piece_by_piece";
    if !have(test, &["sfdisk", "dd"]) {
        return;
    }
    let system = System::new(test);
    let size = fs::metadata(&system.archive).unwrap().len().saturating_mul(2).max(128 << 20) >> 20;
    let script = "$PLAT mkfs -q a.img SIZEM; cd tree; for each in * .[!.]*; do [ -e \"$each\" ] || [ -L \"$each\" ] || continue; \
                  case $each in lost+found) ;; *) $PLAT put -a ../a.img \"./$each\" / ;; esac; done";
    system.sh(&script.replace("SIZE", &size.to_string()));
    system.sh("$PLAT mkfs -q b.img SIZEM; cat system.tar | $PLAT import -q b.img -"
        .replace("SIZE", &size.to_string())
        .as_str());
    // Nothing was said about the root itself.
    system.sh("chmod 755 tree; chown 0:0 tree");
    for image in ["a.img", "b.img"] {
        system.is_in_but_for_the_root(image);
    }
    system.sh(&format!(
        "truncate -s {}M disk.img; printf 'label: dos\\nstart=6144\\n' | sfdisk -q disk.img; \
         $PLAT build -q --force --size auto+16M system.tar disk.img@part1",
        size + 64
    ));
    system.is_in("disk.img", 3 << 20);
}

/// OpenWrt: kernel and root one behind the other in one file, packed.
#[test]
fn a_combined_image_of_a_router_holds_its_root() {
    let test = "a_combined_image_of_a_router_holds_its_root";
    if !have(test, &["sfdisk", "dd", "gzip"]) {
        return;
    }
    let system = System::new(test);
    system.sh_as_nobody(
        "$PLAT build -q -b 4096 -L rootfs --size auto+10M system.tar root.ext4; \
         size=$(($(stat -c %s root.ext4) / 512)); truncate -s $((33792 * 512 + $(stat -c %s root.ext4))) combined.img; \
         printf \"label: dos\\nstart=512,size=32768,type=83,bootable\\nstart=33792,size=$size,type=83\\n\" | sfdisk -q combined.img; \
         head -c 16777216 /dev/urandom | dd of=combined.img bs=512 seek=512 conv=notrunc status=none; \
         dd if=root.ext4 of=combined.img bs=512 seek=33792 conv=notrunc status=none; gzip -1 combined.img; \
         gunzip combined.img.gz; $PLAT check -fn combined.img@part2 >/dev/null; \
         test \"$($PLAT info combined.img@part2 | grep -c rootfs)\" -ge 1",
    );
    system.is_in("combined.img", 33792 * 512);
}

/// Android: a sparse image as fastboot takes it.
#[test]
fn a_sparse_image_of_android_unpacks_to_the_volume() {
    let test = "a_sparse_image_of_android_unpacks_to_the_volume";
    if !have(test, &["simg2img"]) {
        return;
    }
    let system = System::new(test);
    system
        .sh_as_nobody("$PLAT build -q -b 4096 -L system system.tar system.simg; simg2img system.simg a.img");
    system.is_in("a.img", 0);
    // The same from the directory, as root.
    build(&system.tree, &system.path("direct.img"), &["-b", "4096"]);
    system.is_in("direct.img", 0);
}
