//! A pass: names found are names counted, and what has no name gets one in lost+found.

use ondisk::features::RoCompat;
use ondisk::inode::{FileType, Inode, InodeFlags, LINKS_MAX};
use ondisk::units::{InodeNumber, low_u32};
use ondisk::xattr::MAGIC;

use super::directories::Bounds;
use super::facts::Facts;
use super::issue::Location;
use super::kinds::directories::{INODE_LINKS, INODE_UNATTACHED, INODE_UNATTACHED_EMPTY, LINKS_MANY};
use super::kinds::inodes::VALUE_FLAG;
use super::lost_found;
use super::reporter::{Finding, Report};
use super::staged::staging;
use super::subject::Subject;
use platfs_device::Result;

/// Runs the pass.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn check(subject: &mut Subject, facts: &mut Facts, report: &mut Report<'_>) -> Result<()> {
    if *facts.unread.get_mut() {
        return Ok(());
    }
    let bounds = Bounds::new(subject);
    let named = |facts: &Facts, index: u64| {
        let number = InodeNumber::new(low_u32(index + 1))?;
        (!bounds.is_reserved(number) && facts.used.contains(index)).then_some(number)
    };
    let nameless: Vec<_> = facts
        .used
        .iter()
        .filter(|index| facts.links.read(*index) == 0)
        .filter_map(|index| named(facts, index))
        .collect();
    for number in nameless {
        unattached(subject, facts, report, number)?;
    }
    lost_found::adopt(subject, facts, report)?;
    let wrong: Vec<_> = facts
        .used
        .iter()
        .filter(|index| facts.links.read(*index) != facts.stated(*index))
        .filter_map(|index| named(facts, index))
        .collect();
    for number in wrong {
        count(subject, facts, report, number)?;
    }
    Ok(())
}

/// Returns true if an inode has neither contents nor attributes that could be missed.
fn is_empty(inode: &Inode) -> bool {
    let no_blocks = inode.raw().i_blocks_lo.get() == 0 && inode.raw().i_blocks_high.get() == 0;
    let attributes = inode.attributes_offset().and_then(|at| inode.bytes().get(at..at + 4));
    no_blocks
        && attributes != Some(&MAGIC.to_le_bytes())
        && matches!(inode.file_type(), Some(FileType::Regular | FileType::Directory))
}

fn unattached(
    subject: &Subject,
    facts: &mut Facts,
    report: &mut Report<'_>,
    number: InodeNumber,
) -> Result<()> {
    let Ok(mut inode) = subject.inode(number) else { return Ok(()) };
    if facts.file_type(number).is_none() {
        return Ok(());
    }
    let place = Location::inode(number);
    // A value that an attribute refers to counts that as a name, and does not come here.
    if inode.flags().contains(InodeFlags::EA_INODE) {
        let found = "holds the value of an attribute, but none refers to it";
        if !report.found(&VALUE_FLAG, Finding::new(place.clone(), found, "the flag is cleared")) {
            return Ok(());
        }
        let rest = inode.flags() - InodeFlags::EA_INODE;
        inode.set_flags(rest);
        subject.write_inode(&mut inode).map_err(staging("an inode"))?;
    }
    if is_empty(&inode) {
        let finding = Finding::new(place, "an empty file", "the inode is freed");
        if facts.explains_lack(number, 1) || report.found(&INODE_UNATTACHED_EMPTY, finding) {
            return free(subject, facts, &mut inode);
        }
        return Ok(());
    }
    let found = format!("{} bytes", inode.size());
    let finding = Finding::new(place, found, lost_found::adoption(subject, facts, number));
    if facts.explains_lack(number, 1) || report.found(&INODE_UNATTACHED, finding) {
        facts.adopted.insert(number);
        facts.relinked.insert(u64::from(number.index()));
    }
    Ok(())
}

fn free(subject: &Subject, facts: &Facts, inode: &mut Inode) -> Result<()> {
    inode.raw_mut().i_links_count.set(0);
    inode.raw_mut().i_dtime.set(subject.deletion_time());
    subject.write_inode(inode).map_err(staging("an inode"))?;
    let index = u64::from(inode.number().index());
    facts.used.remove(index);
    facts.altered.insert(index);
    Ok(())
}

fn has_no_parent(facts: &Facts, directory: InodeNumber) -> bool {
    let row = facts.directory(directory).and_then(|row| facts.directories.get(row));
    row.is_some_and(|row| row.parent.is_none())
}

/// Compares what an inode states with the names found.
fn count(subject: &mut Subject, facts: &Facts, report: &mut Report<'_>, number: InodeNumber) -> Result<()> {
    let index = u64::from(number.index());
    let (found, stated) = (facts.links.read(index), facts.stated(index));
    let is_directory = facts.file_type(number) == Some(FileType::Directory);
    // What has no name was reported above and was to stay; so does what it counts.
    let nameless = is_directory && number != InodeNumber::ROOT && has_no_parent(facts, number);
    if found == 0 || nameless {
        return Ok(());
    }
    let right = if is_directory && found > LINKS_MAX { 1 } else { found };
    if right != found && !subject.has_ro_compat(RoCompat::DIR_NLINK) {
        let finding = Finding::new(Location::inode(number), format!("{found} links"), "the feature is set");
        if report.found(&LINKS_MANY, finding) {
            subject.features.ro_compat |= RoCompat::DIR_NLINK;
            subject.raw.set_features(subject.features);
        }
    }
    if right == stated {
        return Ok(());
    }
    let Ok(mut inode) = subject.inode(number) else { return Ok(()) };
    // A directory that once had too many to count goes on not counting.
    if is_directory && stated == 1 && inode.flags().contains(InodeFlags::INDEX) {
        return Ok(());
    }
    let follows =
        facts.relinked.contains(index) || found < stated && facts.explains_lack(number, stated - found);
    let finding = Finding::new(Location::inode(number), format!("{stated}"), "the count is set")
        .expected(format!("{right}"))
        .overused(stated < right);
    if follows || report.found(&INODE_LINKS, finding) {
        inode.raw_mut().i_links_count.set(right);
        subject.write_inode(&mut inode).map_err(staging("an inode"))?;
    }
    Ok(())
}
