//! Single cases of soft updates that random runs rarely meet.

use std::collections::BTreeSet;
use std::sync::Arc;

use platfs::device::MemoryDevice;
use platfs::{Attributes, InodeNumber, Kind, NewInode, OpenOptions, Volume};

use crate::faults::phased;
use crate::judge::{Depth, enumerate};
use crate::model::{ATTRIBUTE, Contents, Model, Node, VolumeState};
use crate::order::Order;
use crate::record::record_on;
use crate::run::Run;
use crate::workload::{Workload, workload};

fn ext2() -> Workload {
    workload(Order::Softdep, "ext2_1k").unwrap()
}

/// Goes through all states of a run.
fn survives(run: &Run) {
    let e2fsck = if crate::has_e2fsck() { 8 } else { 0 };
    let looked = enumerate(run, Depth { e2fsck, check: 1, twice: 5, most: 1000 }, |_| true);
    assert!(looked.wrong.is_none(), "{:?}", looked.wrong);
    assert!(looked.judged > 20, "{} states", looked.judged);
}

/// Files that share a block of attributes, as others than soft updates make them.
fn with_a_shared_block(count: u32) -> (MemoryDevice, Model, Vec<InodeNumber>) {
    let device = Arc::new(ext2().made());
    let volume = Volume::open(device.clone(), &OpenOptions::new().write(true)).unwrap();
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    let mut model = Model { whole: VolumeState::of(&volume).unwrap(), ..Model::default() };
    let mut inodes = Vec::new();
    for id in 1..=count {
        let name = format!("f{id}");
        let number = volume.create(InodeNumber::ROOT, name.as_bytes(), &new).unwrap();
        volume.inode(number).set_xattr(ATTRIBUTE, &[5; 300]).unwrap();
        model.names.insert(format!("/{name}").into_bytes(), Node::File(id));
        model.files.insert(id, Contents { attribute: Some(vec![5; 300]), ..Contents::default() });
        inodes.push(number);
    }
    let block = |number: &InodeNumber| volume.metadata(*number).unwrap().attribute_block;
    assert_eq!(inodes.iter().map(block).collect::<BTreeSet<_>>().len(), 1, "they share a block");
    volume.close().unwrap();
    (Arc::into_inner(device).unwrap(), model, inodes)
}

/// Its count includes an inode for as long as that inode may lead to it after a crash.
#[test]
fn a_shared_attribute_block_is_not_changed_under_others() {
    let (base, model, inodes) = with_a_shared_block(3);
    let run = record_on(&ext2(), base, 1, |caller, begin| {
        caller.inodes.extend((1..).zip(inodes));
        caller.model = model;
        begin(caller);
        caller.set_value(1, &[6; 300]);
        caller.remove_attribute(2);
        caller.set_value(3, &[7; 300]);
        caller.set_value(2, &[7; 300]);
        Some(())
    });
    survives(&run.unwrap());
}

/// Bytes alone are made stable: over others, which needs no commit, and in new blocks, which does. Names and what
/// others wait with may come later.
#[test]
fn bytes_that_were_made_stable_outlive_every_crash() {
    for (order, name) in
        [(Order::Ordered, "delayed"), (Order::Writeback, "delayed"), (Order::Softdep, "ext4_4k")]
    {
        let workload = workload(order, name).unwrap();
        let run = record_on(&workload, workload.made(), 1, |caller, begin| {
            for (path, id) in [(&b"/f"[..], 1), (b"/other", 2)] {
                caller.create(path);
                caller.write(id, 0, 8);
            }
            begin(caller);
            caller.sync();
            caller.write(1, 2, 4);
            caller.fdatasync(1);
            caller.write(2, 0, 3);
            caller.write(1, 6, 20);
            caller.fdatasync(1);
            caller.write(1, 0, 9);
            caller.rename(b"/other", b"/later");
            caller.fdatasync(1);
            caller.sync();
            Some(())
        });
        survives(&run.unwrap());
    }
}

/// A directory that files were moved out of is replaced by another one: it must be found until they are found
/// where they went.
#[test]
fn a_replaced_directory_keeps_its_name_until_what_left_it_has_another() {
    let run = record_on(&ext2(), ext2().made(), 1, |caller, begin| {
        for path in [&b"/old"[..], b"/other", b"/target"] {
            caller.make_directory(path);
        }
        caller.create(b"/old/f");
        begin(caller);
        caller.rename(b"/old/f", b"/target/f");
        caller.rename(b"/other", b"/old");
        caller.sync();
        Some(())
    });
    survives(&run.unwrap());
}

/// A volume with a directory of several blocks, whose first and last files exchange their names.
fn exchanged(workload: &Workload) -> Run {
    let run = record_on(workload, workload.made(), 1, |caller, begin| {
        caller.make_directory(b"/large");
        let path = |number: u32| format!("/large/{number:02}{}", "-long".repeat(20)).into_bytes();
        for number in 0..60 {
            caller.create(&path(number));
        }
        begin(caller);
        for (one, other) in [(0, 59), (20, 40), (59, 1)] {
            let ids = [one, other].map(|number| caller.model.file(&path(number)));
            caller.exchange(&path(one), &path(other));
            assert_eq!([other, one].map(|number| caller.model.file(&path(number))), ids, "it is not refused");
        }
        caller.create(b"/large/another");
        caller.sync();
        Some(())
    });
    run.unwrap()
}

/// Names in different blocks of a directory switch at once: with its record.
#[test]
fn names_in_two_blocks_are_exchanged() {
    for name in ["ext2_deep", "ext4_deep", "bigalloc_deep"] {
        let run = exchanged(&workload(Order::Softdep, name).unwrap());
        survives(&run);
    }
}

/// Where the record of a directory comes before the blocks that it leads to, it is found.
#[test]
fn an_exchange_out_of_order_is_found() {
    let mut run = exchanged(&workload(Order::Softdep, "ext2_deep").unwrap());
    let (_, _, fault) = phased::FAULTS.iter().find(|(name, ..)| *name == "early-records").unwrap();
    run.events = phased::put(*fault, &phased::places(&run.base), run.events);
    assert!(enumerate(&run, Depth::PLAIN, |_| true).wrong.is_some());
}
