//! Files without a name on a served volume: requests made by hand, as the kernel makes them.

use fuse::{Caller, Entry, Kind, NewNode, ROOT, Service, SetAttr, SetTime, Time};
use plat_cli::mount::appearance::Appearance;
use plat_cli::mount::log::{Detail, Log};
use plat_cli::mount::options::OnDamage;
use plat_cli::mount::tree::{Terms, Tree};
use platfs::device::MemoryDevice;
use platfs::mkfs::{FsType, Options, Plan};
use platfs::{AccessTimes, OpenOptions, Volume};
use std::sync::Arc;

const SIZE: u64 = 16 << 20;
const ROOT_USER: Caller = Caller { uid: 0, gid: 0, pid: 1 };

fn tree() -> Tree {
    let device = Arc::new(MemoryDevice::new(SIZE));
    Plan::new(&Options::new(FsType::Ext4), SIZE).unwrap().write(&*device).unwrap();
    let volume = Volume::open(device, &OpenOptions::new().write(true)).unwrap();
    let terms = Terms {
        acl: true,
        user_xattr: true,
        xattr: true,
        on_damage: OnDamage::Continue,
        writable: true,
        writeback: true,
        access_times: AccessTimes::Off,
        appearance: Appearance::default(),
        fake_root: false,
        sync: false,
        sync_names: false,
    };
    Tree::new(volume, Arc::new(Log::to_system(Detail::from_count(0))), terms).unwrap()
}

fn file(tree: &Tree, name: &[u8]) -> Entry {
    let new = NewNode { kind: Kind::Regular, permissions: 0o644, umask: 0 };
    tree.create(ROOT_USER, ROOT, name, &new).unwrap()
}

fn times(seconds: i64) -> SetAttr {
    let time = Time { seconds, nanoseconds: 5 };
    SetAttr { modify: Some(SetTime::To(time)), change: Some(time), ..SetAttr::default() }
}

#[test]
fn times_of_a_file_that_lost_its_name_are_answered_and_not_stored() {
    let tree = tree();
    let made = file(&tree, b"file");
    let (named, _) = tree.change(ROOT_USER, made.node, &times(1000)).unwrap();
    assert_eq!((named.modify.seconds, tree.attributes(made.node).unwrap().modify.seconds), (1000, 1000));
    tree.unlink(ROOT, b"file").unwrap();
    let before = tree.attributes(made.node).unwrap();
    for by_handle in [false, true] {
        let change = SetAttr { by_handle, ..times(2000) };
        let (answer, _) = tree.change(ROOT_USER, made.node, &change).unwrap();
        assert_eq!((answer.modify.seconds, answer.change.seconds, answer.links), (2000, 2000, 0));
        assert_eq!(tree.attributes(made.node).unwrap(), before);
    }
    // All else is stored.
    let access = Some(SetTime::To(Time { seconds: 3000, nanoseconds: 0 }));
    tree.change(ROOT_USER, made.node, &SetAttr { access, ..times(3000) }).unwrap();
    assert_eq!(tree.attributes(made.node).unwrap().modify.seconds, 3000);
    tree.change(ROOT_USER, made.node, &SetAttr { size: Some(10), ..SetAttr::default() }).unwrap();
    assert_eq!(tree.attributes(made.node).unwrap().size, 10);
    tree.forget(made.node, 1);
    tree.close().unwrap();
}

#[test]
fn a_file_with_another_name_keeps_its_times() {
    let tree = tree();
    let made = file(&tree, b"file");
    tree.link(ROOT_USER, made.node, ROOT, b"other").unwrap();
    tree.unlink(ROOT, b"file").unwrap();
    tree.change(ROOT_USER, made.node, &times(2000)).unwrap();
    assert_eq!(tree.attributes(made.node).unwrap().change.seconds, 2000);
    tree.close().unwrap();
}
