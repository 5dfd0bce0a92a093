//! Search for a name of an inode, before names are counted: for inodes that only the superblock
//! names as the volume's own, whose field may be wrong.
//!
//! Reads every directory, so only what is damaged already asks. Excludes judging of names
//! ([`super::directories`]).

use ondisk::inode::{FileType, Inode};
use ondisk::units::{Group, InodeNumber};

use super::directories::edit;
use super::subject::Subject;
use platfs_device::Device;

/// Returns true if an entry of any directory leads to the inode, as far as directories can be read.
pub(super) fn is_named(subject: &Subject, number: u32) -> bool {
    (0..subject.geometry.groups).map(Group).any(|group| is_named_from(subject, group, number))
}

/// Searches the directories whose inodes lie in one group.
fn is_named_from(subject: &Subject, group: Group, wanted: u32) -> bool {
    let size = u64::from(subject.geometry.inode_size);
    let Some(table) = subject.table_of(group) else { return false };
    let start = subject.geometry.byte_offset(table);
    let mut record = vec![0; usize::from(subject.geometry.inode_size)];
    (0..subject.inodes_begun(group)).any(|index| {
        let Some(number) = subject.geometry.inode_at(group, index) else { return false };
        subject.device.read_at(start + u64::from(index) * size, &mut record).is_ok()
            && Inode::parse(number, &record).is_ok_and(|inode| is_directory(&inode))
            && names(subject, number, wanted)
    })
}

fn is_directory(inode: &Inode) -> bool {
    inode.links() > 0 && inode.file_type() == Some(FileType::Directory)
}

fn names(subject: &Subject, directory: InodeNumber, wanted: u32) -> bool {
    let mut found = false;
    edit::each_name(subject, directory, |_, inode| found |= inode.get() == wanted);
    found
}
