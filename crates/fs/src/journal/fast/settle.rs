//! Final state of each inode that fast commits name: its record, its contents, its links, and the
//! blocks that change their owner. Excludes names and which inodes are concerned ([`super::wanted`]).

use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::{ClusterRun, Group, InodeNumber};

use super::super::bad;
use super::extents::{self, Extents};
use super::wanted::{Contents, Entries, Known, Node, Planning, ReplayPlan};
use crate::error::Result;
use crate::map::{self, Map};
use crate::space::clusters;
use crate::volume::Shared;

impl Planning {
    /// Plans the final state of one inode.
    pub(super) fn plan_inode(
        &self,
        number: InodeNumber,
        known: Known,
        entries: &Entries,
        wanted: &mut ReplayPlan,
    ) -> Result<()> {
        let count = known.name_count();
        let is_going = count <= 0;
        let was_named = known.before.as_ref().is_some_and(|inode| inode.links() > 0);
        let has_news = known.names != 0 || known.record.is_some() || !known.changes.ranges.is_empty();
        if !has_news || is_going && !was_named {
            return Ok(());
        }
        if known.was_directory() && (is_going || known.is_fresh) {
            self.must_be_empty(&known, entries)?;
        }
        if known.is_fresh && !is_going && self.named.get(&number) != Some(&count) {
            return Err(bad(format!("a fast commit makes inode {number} again, which has other names")));
        }
        let is_directory = known.is_directory() && !is_going;
        if is_directory && count != 1 {
            return Err(bad(format!("fast commits give directory {number} {count} names")));
        }
        let links = match u16::try_from(count.max(0)) {
            Ok(_) if is_directory => 2,
            Ok(links) if links <= ondisk::inode::LINKS_MAX => links,
            _ => return Err(bad(format!("fast commits give inode {number} {count} names"))),
        };
        let parent = self.parents.get(&number).copied();
        let is_listed = self.orphans.contains(&number);
        let mut node = if is_going { self.going(&known, is_listed)? } else { self.staying(&known, parent)? };
        (node.links, node.is_listed) = (links, is_listed);
        self.book(number, &known, &mut node, wanted)?;
        wanted.nodes.insert(number, node);
        Ok(())
    }

    /// All names of a directory that goes must have gone before.
    fn must_be_empty(&self, known: &Known, entries: &Entries) -> Result<()> {
        let Some(directory) = &known.before else { return Ok(()) };
        for entry in self.volume.view().entries(directory.clone())? {
            let entry = entry?;
            let change = entries.get(&(directory.number(), entry.name.clone()));
            if change.is_none_or(|(before, after)| before == after) {
                let (number, name) = (directory.number(), entry.name.escape_ascii());
                return Err(bad(format!(
                    "a fast commit removes directory {number}, in which '{name}' still is"
                )));
            }
        }
        Ok(())
    }

    /// An inode that lost its last name: without contents, which others may have got.
    fn going(&self, known: &Known, is_listed: bool) -> Result<Node> {
        let inode = known.before.clone().ok_or_else(|| bad("a fast commit removes what is not there"))?;
        let is_emptied = inode.has_map() && !is_listed;
        let contents = if is_emptied { Contents::Mapped(Vec::new()) } else { Contents::Same };
        Ok(Node { inode, contents, sectors_beside: None, links: 0, former: None, is_listed })
    }

    fn staying(&self, known: &Known, parent: Option<InodeNumber>) -> Result<Node> {
        let Some(mut inode) = known.last().cloned() else {
            return Err(bad("a fast commit names what is not there"));
        };
        let contents = self.contents(known, &inode, parent)?;
        let before = known.before.as_ref().filter(|_| !known.is_fresh);
        match before {
            Some(before) => {
                let mut before = before.clone();
                let is_inline = |inode: &Inode| inode.flags().contains(InodeFlags::INLINE_DATA);
                if is_inline(&before) && !is_inline(&inode) {
                    self.volume.tx(self.volume.context()).take_inline(&mut before)?;
                }
                keep_own(&mut inode, &before, known.record.is_some());
                if matches!(contents, Contents::Same) {
                    let size = self.volume.format.geometry.block_size;
                    inode.set_sectors(before.sectors(size), size);
                }
            }
            // Attributes come with whole transactions only.
            None => inode.set_attribute_block(ondisk::units::Block(0)),
        }
        let former = known.before.clone().filter(|_| known.is_fresh);
        Ok(Node { inode, contents, sectors_beside: None, links: 0, former, is_listed: false })
    }

    fn contents(&self, known: &Known, inode: &Inode, parent: Option<InodeNumber>) -> Result<Contents> {
        let Shared { cache, format, .. } = &**self.volume;
        if known.is_fresh && known.is_directory() {
            let parent = parent.ok_or_else(|| bad("a fast commit makes a directory without a name"))?;
            return Ok(Contents::Directory { parent });
        }
        if known.is_directory() {
            return Ok(Contents::Same);
        }
        if !inode.has_map() {
            return Ok(if known.record.is_some() { Contents::Inside } else { Contents::Same });
        }
        let is_tree = |inode: &Inode| inode.flags().contains(InodeFlags::EXTENTS);
        let before = known.before.as_ref().filter(|_| !known.is_fresh);
        let before = before.filter(|before| before.has_map() && is_tree(before) == is_tree(inode));
        if before.is_some() && known.changes.ranges.is_empty() {
            return Ok(Contents::Same);
        }
        let mut extents = match before {
            Some(before) => Extents::read(Map::new(&**cache, format, before))?,
            None => Extents::default(),
        };
        let limit = map::limit(format.geometry.block_size, inode);
        known.changes.ranges.iter().try_for_each(|range| extents.change(format, limit, range))?;
        Ok(Contents::Mapped(extents.joined()))
    }

    /// Notes which blocks and inodes change their owner.
    fn book(
        &self,
        number: InodeNumber,
        known: &Known,
        node: &mut Node,
        wanted: &mut ReplayPlan,
    ) -> Result<()> {
        let Shared { cache, format, .. } = &**self.volume;
        let geometry = &format.geometry;
        let bookings = &mut wanted.bookings;
        let mut had: Vec<ClusterRun> = Vec::new();
        if let Some(before) = &known.before
            && before.has_map()
            && !matches!(node.contents, Contents::Same)
        {
            had = clusters(geometry, &Map::new(&**cache, format, before).taken()?);
        }
        if !matches!(node.contents, Contents::Same) {
            let per_cluster = u64::from(geometry.blocks_per_cluster()) << (geometry.block_size.log2() - 9);
            let took = had.iter().map(|run| u64::from(run.count)).sum::<u64>() * per_cluster;
            let beside = known.before.as_ref().filter(|_| !known.is_fresh);
            let all = beside.map_or(0, |before| before.sectors(geometry.block_size));
            node.sectors_beside = Some(all.saturating_sub(took));
        }
        bookings.freed.extend(had);
        if let Contents::Mapped(extents) = &node.contents {
            bookings.taken.extend(clusters(geometry, &extents::runs(extents)));
        }
        let (is, was) = (known.is_directory(), known.was_directory());
        match &known.before {
            None => bookings.inodes.push((number.index(), is)),
            Some(_) if node.links > 0 && is != was => {
                let group = Group(number.index() / geometry.inodes_per_group);
                bookings.corrections.push((group, i64::from(is) - i64::from(was)));
            }
            Some(_) => {}
        }
        Ok(())
    }
}

/// Copies fields that a fast commit does not decide from the volume's record: where a list of orphans goes on,
/// attributes of its own, what kind of inode it is.
fn keep_own(inode: &mut Inode, before: &Inode, is_logged: bool) {
    if !is_logged {
        return;
    }
    let is_whole = inode.flags().contains(InodeFlags::INLINE_DATA);
    let mut bytes = before.bytes().to_vec();
    let extra = usize::from(inode.extra_size());
    let logged = if is_whole { bytes.len() } else { ondisk::inode::OLD_SIZE + extra };
    for (to, from) in bytes.iter_mut().zip(inode.bytes()).take(logged) {
        *to = *from;
    }
    let number = inode.number();
    let mut merged = Inode::unjudged(number, &bytes);
    merged.raw_mut().i_dtime = before.raw().i_dtime;
    merged.set_attribute_block(before.attribute_block());
    if before.has_map() && inode.has_map() {
        merged.raw_mut().i_block = before.raw().i_block;
    }
    let kept = InodeFlags::ENCRYPT | InodeFlags::CASEFOLD | InodeFlags::EA_INODE;
    merged.set_flags(inode.flags().difference(kept) | before.flags().intersection(kept));
    *inode = merged;
}
