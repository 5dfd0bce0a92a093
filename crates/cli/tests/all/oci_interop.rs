//! Images by umoci and skopeo: what they unpack is what we read.

use crate::trees::{ALL, Clock, Rules, assert_same, read};
use platfs_image::Source;
use platfs_image::source::Catalogue;
use std::fs;
use std::path::Path;
use testkit::scratch::{Scratch, cache_dir};
use testkit::{odd, tool};

fn umoci(arguments: &[&str], image: &Path, bundle: Option<&Path>) {
    let mut command = tool::command("umoci");
    command.args(arguments).arg("--image").arg(format!("{}:t", image.display()));
    tool::run(command.args(bundle));
}

/// Two layers over an empty one: the odd tree; then removals, additions, a link across layers and changes of type.
fn layout(scratch: &Scratch) -> Catalogue {
    let (layout, bundle) = (scratch.join("layout"), scratch.join("bundle"));
    let root = bundle.join("rootfs");
    tool::run(tool::command("umoci").arg("init").arg("--layout").arg(&layout));
    umoci(&["new"], &layout, None);
    umoci(&["unpack"], &layout, Some(&bundle));
    odd::make(&root, &odd::Options { many: 200, ..odd::Options::modest() });
    fs::remove_dir_all(root.join("kinds")).unwrap();
    umoci(&["repack"], &layout, Some(&bundle));
    fs::remove_dir_all(&bundle).unwrap();
    umoci(&["unpack"], &layout, Some(&bundle));
    fs::remove_dir_all(root.join("deep")).unwrap();
    fs::write(root.join("deep"), "a file now").unwrap();
    fs::remove_file(root.join("many/entry-number-000007")).unwrap();
    fs::hard_link(root.join("many/entry-number-000000"), root.join("across")).unwrap();
    fs::remove_dir_all(root.join("symlinks")).unwrap();
    fs::create_dir(root.join("symlinks")).unwrap();
    fs::write(root.join("symlinks/alone"), "").unwrap();
    umoci(&["repack"], &layout, Some(&bundle));
    read(&root)
}

#[test]
fn layouts_and_docker_archives_are_what_umoci_unpacks() {
    let test = "layouts_and_docker_archives_are_what_umoci_unpacks";
    if !tool::have_tools(test, &["umoci", "skopeo"]) || !tool::have_root(test) {
        return;
    }
    let scratch = Scratch::new("oci-interop");
    let unpacked = layout(&scratch);
    // umoci's layers round times, and have neither holes nor sockets.
    let rules = Rules { clock: Clock::Never, holes: false, root: false, ..ALL };
    assert_same(&unpacked, &read(&scratch.join("layout")), rules);
    for form in ["docker-archive", "oci-archive", "oci"] {
        let out = scratch.join(form);
        let mut command = tool::command("skopeo");
        command
            .args(["--insecure-policy", "copy", "-q"])
            .arg(format!("oci:{}:t", scratch.join("layout").display()));
        tool::run(command.arg(format!("{form}:{}:name:tag", out.display())));
        assert_same(&unpacked, &read(&out), rules);
        assert!(Source::options().image("name:tag").open(&out).is_ok());
        assert!(Source::options().image("other").open(&out).unwrap_err().to_string().contains("name:tag"));
    }
}

/// `examples/microvm`: an image of an OCI archive is the root of a virtual machine, which writes to it.
#[test]
fn a_guest_boots_from_an_image() {
    let test = "a_guest_boots_from_an_image";
    if !tool::have_tools(test, &["qemu-system-x86_64", "busybox", "cpio", "e2fsck"]) {
        return;
    }
    for part in ["microvm/vmlinuz", "rootfs.tar"] {
        if !cache_dir().join(part).exists() {
            return tool::skip(test, &format!("no {part} in the cache (make demo, make microvm)"));
        }
    }
    let scratch = Scratch::new("microvm");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/microvm/run.sh");
    let output = tool::command("timeout")
        .arg("300")
        .arg(script)
        .env("PLAT", env!("CARGO_BIN_EXE_plat"))
        .env("TMPDIR", scratch.path())
        .env("MICROVM_SECONDS", "240")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for line in ["microvm: root: /dev/vda ext4 rw,", "microvm: setuid: 4755 0", "microvm: done"] {
        assert!(said.lines().any(|found| found.starts_with(line)), "{line} is not in:\n{said}");
    }
}
