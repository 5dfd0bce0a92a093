//! `lost+found`: where files go that have no name. It is found by its name in the root directory, and
//! made when it is needed and not there.

use ondisk::dirent;
use ondisk::extent::Node;
use ondisk::extent::{Entries, Extent};
use ondisk::features::Incompat;
use ondisk::group::GroupFlags;
use ondisk::inode::{FileType, I_BLOCK_LEN, Inode, InodeFlags, TimeField};
use ondisk::units::{Block, FileBlock, Group, InodeNumber, low_u32};

use super::directories::edit::{self, NewName};
use super::directories::{self, rebuild};
use super::facts::{Directory, Facts};
use super::issue::Location;
use super::kinds::directories::LOST_FOUND;
use super::reporter::{Finding, Report};
use super::staged::staging;
use super::subject::Subject;
use platfs_device::Result;

const NAME: &[u8] = b"lost+found";

/// Gives all that was adopted a name in lost+found.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn adopt(subject: &mut Subject, facts: &mut Facts, report: &mut Report<'_>) -> Result<()> {
    let Some(first) = facts.adopted.first().copied() else { return Ok(()) };
    let made = if root_adopts(subject, facts) { None } else { find_or_make(subject, facts, report)? };
    // Where there is no room for it the root directory itself takes what fits.
    let home = made.or_else(|| root_as_home(subject, facts));
    let adopted = std::mem::take(&mut facts.adopted);
    let Some(home) = home else {
        directories::no_room(first, "lost+found cannot be made", report);
        adopted.into_iter().for_each(|inode| leave(facts, inode));
        return Ok(());
    };
    let names = adopted.iter().filter(|inode| **inode != home).filter_map(|inode| {
        let name = format!("#{inode}").into_bytes();
        Some(NewName { name, inode: *inode, file_type: facts.file_type(*inode)? })
    });
    let names = names.collect();
    let left = rebuild::add_names(subject, facts, home, names)?;
    if let Some(first) = left.first() {
        let what =
            if home == InodeNumber::ROOT { "lost+found cannot be made" } else { "lost+found cannot grow" };
        directories::no_room(*first, what, report);
    }
    for inode in adopted {
        if left.contains(&inode) {
            leave(facts, inode);
            continue;
        }
        facts.links.raise(u64::from(inode.index()));
        if facts.file_type(inode) == Some(FileType::Directory) {
            edit::set_dotdot(subject, inode, home)?;
            facts.links.raise(u64::from(home.index()));
            facts.relinked.insert(u64::from(home.index()));
            if let Some(row) = facts.directory(inode).and_then(|row| facts.directories.get_mut(row)) {
                (row.parent, row.dotdot) = (Some(home), Some(home));
            }
        }
    }
    Ok(())
}

/// Describes the repair of an inode without a name.
pub(super) fn adoption(subject: &Subject, facts: &Facts, number: InodeNumber) -> String {
    if root_adopts(subject, facts) {
        format!("it becomes /#{number}, as there is no room for lost+found")
    } else {
        format!("it becomes lost+found/#{number}")
    }
}

fn root_adopts(subject: &Subject, facts: &Facts) -> bool {
    *facts.root_adopts.get_or_init(|| {
        let there = edit::find(subject, InodeNumber::ROOT, NAME);
        let (inodes, clusters) = (u64::from(subject.geometry.inodes()), subject.geometry.clusters());
        let full = facts.used.count() >= inodes || facts.claimed.count() >= clusters;
        full && there.is_none_or(|inode| !is_home(subject, facts, inode))
    })
}

/// Leaves an inode that finds no room as it is: its `..` stays too, and counts as a link of the parent.
fn leave(facts: &Facts, inode: InodeNumber) {
    let row = facts.directory(inode).and_then(|row| facts.directories.get(row));
    if let Some(up) = row.and_then(|row| row.dotdot) {
        facts.links.raise(u64::from(up.index()));
    }
}

/// The root directory, if names may be added to it.
fn root_as_home(subject: &Subject, facts: &Facts) -> Option<InodeNumber> {
    let (root, index) = (InodeNumber::ROOT, u64::from(InodeNumber::ROOT.index()));
    (is_home(subject, facts, root) && !facts.dotdot_left.contains(index)).then_some(root)
}

/// Returns true if an inode is a directory that takes plain names.
fn is_home(subject: &Subject, facts: &Facts, inode: InodeNumber) -> bool {
    facts.used.contains(u64::from(inode.index()))
        && facts.file_type(inode) == Some(FileType::Directory)
        && subject
            .inode(inode)
            .is_ok_and(|inode| !inode.flags().intersects(InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT))
}

fn find_or_make(
    subject: &mut Subject,
    facts: &mut Facts,
    report: &mut Report<'_>,
) -> Result<Option<InodeNumber>> {
    let found = edit::find(subject, InodeNumber::ROOT, NAME);
    if let Some(inode) = found.filter(|inode| is_home(subject, facts, *inode)) {
        return Ok(Some(inode));
    }
    // Where `..` is missing, and is to, the next name would be taken for it.
    if facts.dotdot_left.contains(u64::from(InodeNumber::ROOT.index())) {
        return Ok(None);
    }
    let Some(number) = free_inode(subject, facts) else { return Ok(None) };
    let Some(start) = place_for_directory(subject, facts) else { return Ok(None) };
    let named = match found {
        Some(old) => displace(subject, facts, old, number, report)?,
        None => {
            let name = NewName { name: NAME.to_vec(), inode: number, file_type: FileType::Directory };
            rebuild::add_names(subject, facts, InodeNumber::ROOT, vec![name])?.is_empty()
        }
    };
    if !named {
        facts.put_back(subject, start);
        return Ok(None);
    }
    let directory = NewDirectory { number, parent: InodeNumber::ROOT, permissions: 0o700, start };
    make_directory(subject, facts, &directory)?;
    let root = u64::from(InodeNumber::ROOT.index());
    facts.links.raise(u64::from(number.index()));
    facts.links.raise(root);
    facts.relinked.insert(root);
    Ok(Some(number))
}

/// Takes the name from what is no home, which is adopted unless it has other names; returns true if it was to be so.
fn displace(
    subject: &Subject,
    facts: &mut Facts,
    old: InodeNumber,
    new: InodeNumber,
    report: &mut Report<'_>,
) -> Result<bool> {
    let names = edit::names_of(subject, InodeNumber::ROOT, old);
    let Some((position, _)) = names.into_iter().find(|(_, name)| name == NAME) else { return Ok(false) };
    let is_directory = facts.file_type(old) == Some(FileType::Directory);
    let found = if is_directory { "a directory that takes no plain names" } else { "no directory" };
    let repair = format!("a new one is made, it becomes lost+found/#{old}");
    if !report.found(&LOST_FOUND, Finding::new(Location::inode(old), found, repair)) {
        return Ok(false);
    }
    edit::redirect(subject, InodeNumber::ROOT, position, new, FileType::Directory)?;
    let index = u64::from(old.index());
    facts.links.lower(index);
    facts.relinked.insert(index);
    if let Some(row) = facts.directory(old).and_then(|row| facts.directories.get_mut(row)) {
        row.parent = None;
        facts.links.lower(u64::from(InodeNumber::ROOT.index()));
    }
    if is_directory || facts.links.read(index) == 0 {
        facts.adopted.insert(old);
    }
    Ok(true)
}

/// An inode that is not in use: in the part of a table that was begun, or the next one behind it, which
/// then is begun.
fn free_inode(subject: &mut Subject, facts: &Facts) -> Option<InodeNumber> {
    let groups = subject.geometry.groups;
    let free_in = |subject: &Subject, group: u32, indexes: std::ops::Range<u32>| {
        let mut numbers = indexes.filter_map(|index| subject.geometry.inode_at(Group(group), index));
        numbers.find(|number| {
            number.get() >= subject.raw.first_inode()
                && !facts.used.contains(u64::from(number.index()))
                // One that was lost with its table gets a new file at its number.
                && !subject.quota_inodes().contains(&number.get())
        })
    };
    let begun = (0..groups).find_map(|group| free_in(subject, group, 0..subject.inodes_begun(Group(group))));
    if begun.is_some() {
        return begun;
    }
    let whole = subject.geometry.inodes_per_group;
    let group = (0..groups).find(|group| {
        let at = Group(*group);
        subject.table_of(at).is_some()
            && subject.inodes_begun(at) < whole
            && !subject.group_has(at, GroupFlags::INODE_UNINIT)
    })?;
    let next = subject.inodes_begun(Group(group));
    let number = free_in(subject, group, next..next + 1)?;
    subject.descriptor_mut(Group(group))?.set_unused_inodes(whole - next - 1);
    subject.renewed.insert(group);
    Some(number)
}

/// Takes the block of a new directory, if there is a free one.
pub(super) fn place_for_directory(subject: &Subject, facts: &Facts) -> Option<Block> {
    facts.allocate(subject, Block(u64::from(subject.geometry.first_data_block)), 1)
}

/// An empty directory that is to be made.
pub(super) struct NewDirectory {
    /// A number that is free.
    pub(super) number: InodeNumber,
    pub(super) parent: InodeNumber,
    pub(super) permissions: u16,
    /// A block of [`place_for_directory`].
    pub(super) start: Block,
}

/// Makes an empty directory; it counts its own `.`.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn make_directory(subject: &Subject, facts: &mut Facts, directory: &NewDirectory) -> Result<()> {
    let &NewDirectory { number, parent, permissions, start } = directory;
    let mut inode = Inode::blank(number, subject.geometry.inode_size);
    inode.raw_mut().i_mode.set(FileType::Directory.mode_bits() | permissions);
    inode.raw_mut().i_links_count.set(2);
    for field in [TimeField::Access, TimeField::Change, TimeField::Modify, TimeField::Create] {
        inode.set_time(field, subject.now);
    }
    inode.set_size(subject.block_len() as u64);
    let blocks = u64::from(subject.geometry.blocks_per_cluster());
    inode.set_sectors(blocks << (subject.geometry.block_size.log2() - 9), subject.geometry.block_size);
    if subject.has_incompat(Incompat::EXTENTS) {
        inode.set_flags(InodeFlags::EXTENTS);
        let mut node = Node::empty(I_BLOCK_LEN);
        node.entries =
            Entries::Leaf(vec![Extent { logical: FileBlock(0), start, count: 1, unwritten: false }]);
        node.store(&mut inode.raw_mut().i_block);
    } else if let Some(slot) = inode.raw_mut().i_block.first_chunk_mut() {
        *slot = low_u32(start.0).to_le_bytes();
    }
    let mut bytes = vec![0; subject.block_len()];
    dirent::init_directory(&mut bytes, subject.layout(), number, parent);
    subject.seed_of(&inode).seal_directory_leaf(&mut bytes);
    subject.write(start, &bytes).map_err(staging("a directory"))?;
    subject.write_inode(&mut inode).map_err(staging("a directory"))?;
    let index = u64::from(number.index());
    facts.used.insert(index);
    facts.altered.insert(index);
    facts.relinked.insert(index);
    facts.set_file_type(number, Some(FileType::Directory), 2);
    facts.links.store(index, 1);
    let at = facts.directories.partition_point(|row| row.inode < number);
    facts.directories.insert(at, Directory { inode: number, parent: Some(parent), dotdot: Some(parent) });
    Ok(())
}
