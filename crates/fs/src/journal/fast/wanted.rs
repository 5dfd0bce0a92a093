//! What the records of fast commits come to: each inode and each name as they are in the end, and what is in use for
//! that and no longer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ondisk::features::Compat;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::journal::fast_commit::{NameChange, is_name};
use ondisk::units::{ClusterRun, Group, InodeNumber};

use platfs_device::journal::{Changes, Records, generation};

use super::super::bad;
use super::extents::{self, Extents};
use crate::device::{Device, Overlay};
use crate::error::{Error, Result};
use crate::map::{self, Map};
use crate::options::OpenOptions;
use crate::space::{Bookings, clusters};
use crate::volume::{Shared, Volume};

/// Most blocks of directories without an index that are looked through for names; a hostile journal could ask for
/// each name of a large one.
const LOOKED_THROUGH_MAX: u64 = 1 << 21;
/// A look-up by an index costs this part of one through all blocks, at most.
const INDEX_SHARE: u64 = 64;

/// A name as it was and as it is in the end.
pub(super) struct Name {
    pub(super) name: Vec<u8>,
    pub(super) before: Option<InodeNumber>,
    pub(super) after: Option<InodeNumber>,
}

/// What an inode holds in the end.
pub(super) enum Contents {
    /// What it did.
    Same,
    /// What its record says: device numbers, short links, contents kept in the inode.
    Inside,
    /// These extents.
    Mapped(Vec<ondisk::extent::Extent>),
    /// The names that are added to it; it is new.
    Directory { parent: InodeNumber },
}

/// An inode in the end.
pub(super) struct Node {
    /// Its record, but for contents, links and blocks.
    pub(super) inode: Inode,
    pub(super) contents: Contents,
    /// Sectors that it takes beside its contents; `None`: it takes as many as it did.
    pub(super) sectors_beside: Option<u64>,
    /// Its links; 0: it goes.
    pub(super) links: u16,
    /// What its number was used for before, if that had attributes of its own.
    pub(super) former: Option<Inode>,
    /// It stands on a list of orphans, which goes on from its record.
    pub(super) is_listed: bool,
}

/// All that is to be done.
pub(super) struct Wanted {
    pub(super) nodes: BTreeMap<InodeNumber, Node>,
    /// By directory.
    pub(super) names: BTreeMap<InodeNumber, Vec<Name>>,
    /// Changes of a directory's number of subdirectories.
    pub(super) subdirectories: BTreeMap<InodeNumber, i64>,
    pub(super) bookings: Bookings,
}

/// What is known of an inode that records speak of.
struct Known {
    /// Its record, if it was in use.
    before: Option<Inode>,
    /// Its record in the end, if fast commits have one that counts.
    record: Option<Inode>,
    /// It has nothing to do with what its number was used for.
    is_fresh: bool,
    changes: Changes,
    /// Names that it gets, less those that it loses.
    names: i64,
}

impl Known {
    fn last(&self) -> Option<&Inode> {
        self.record.as_ref().or(self.before.as_ref())
    }

    fn is_directory(&self) -> bool {
        self.last().and_then(Inode::file_type) == Some(FileType::Directory)
    }

    fn was_directory(&self) -> bool {
        self.before.as_ref().and_then(Inode::file_type) == Some(FileType::Directory)
    }

    /// Names in the end.
    fn name_count(&self) -> i64 {
        let before = match &self.before {
            Some(_) if self.was_directory() => 1,
            Some(inode) => i64::from(inode.links()),
            None => 0,
        };
        before + self.names
    }
}

type Entries = BTreeMap<(InodeNumber, Vec<u8>), (Option<InodeNumber>, Option<InodeNumber>)>;

struct Planning {
    volume: Volume,
    orphans: BTreeSet<InodeNumber>,
    /// Inodes that belong to the volume itself.
    own: Vec<u32>,
    known: BTreeMap<InodeNumber, Known>,
    /// In which directory an inode is named in the end.
    parents: BTreeMap<InodeNumber, InodeNumber>,
    /// How many names that records speak of an inode has in the end.
    named: BTreeMap<InodeNumber, i64>,
    /// Bytes of names that directories may get.
    added: BTreeMap<InodeNumber, u64>,
    looked_through: u64,
}

/// Finds out what records come to on a volume that is as its log left it.
///
/// # Errors
/// As [`super::apply`].
pub(super) fn plan(device: &Arc<Overlay>, records: Records) -> Result<Wanted> {
    let device: Arc<dyn Device> = Arc::clone(device) as Arc<dyn Device>;
    let volume = Volume::open(device, &OpenOptions::replaying(false))?;
    let raw = volume.superblock();
    let own = [
        raw.s_journal_inum,
        raw.s_usr_quota_inum,
        raw.s_grp_quota_inum,
        raw.s_prj_quota_inum,
        raw.s_orphan_file_inum,
    ];
    let own = own.iter().map(|number| number.get()).collect();
    let orphans = volume.orphans()?;
    let mut planning = Planning {
        volume,
        orphans,
        own,
        known: BTreeMap::new(),
        parents: BTreeMap::new(),
        named: BTreeMap::new(),
        added: BTreeMap::new(),
        looked_through: 0,
    };
    planning.plan(records)
}

impl Planning {
    fn plan(&mut self, mut records: Records) -> Result<Wanted> {
        for (number, changes) in std::mem::take(&mut records.inodes) {
            let number = self.number(number)?;
            let known = self.know(number, changes)?;
            self.known.insert(number, known);
        }
        let entries = self.entries(&records)?;
        self.count_names(&entries);
        let subdirectories = self.subdirectories(&entries);
        let named = entries.iter().filter_map(|((parent, _), (_, after))| Some(((*after)?, *parent)));
        self.parents = named.collect();
        for number in entries.values().filter_map(|(_, after)| *after) {
            *self.named.entry(number).or_default() += 1;
        }
        self.refuse_circles(&entries)?;
        let changed = entries.iter().filter(|(_, ends)| self.is_changed(ends));
        let changed: BTreeSet<(InodeNumber, Vec<u8>)> = changed.map(|(key, _)| key.clone()).collect();
        let mut wanted = Wanted {
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            subdirectories,
            bookings: Bookings::default(),
        };
        for (number, known) in std::mem::take(&mut self.known) {
            self.settle(number, known, &entries, &mut wanted)?;
        }
        for (key, (before, after)) in entries {
            let is_gone =
                |node: &Node| node.links == 0 || node.inode.file_type() != Some(FileType::Directory);
            let is_changed = changed.contains(&key);
            let (parent, name) = key;
            if is_changed && !wanted.nodes.get(&parent).is_some_and(is_gone) {
                wanted.names.entry(parent).or_default().push(Name { name, before, after });
            }
        }
        Ok(wanted)
    }

    /// An inode that fast commits may change.
    fn number(&self, number: u32) -> Result<InodeNumber> {
        let geometry = &self.volume.format.geometry;
        let is_usual =
            number >= geometry.first_inode && number <= geometry.inodes() && !self.own.contains(&number);
        InodeNumber::new(number)
            .filter(|_| is_usual)
            .ok_or_else(|| bad(format!("a fast commit changes inode {number}, which can't be")))
    }

    /// The record of an inode in use.
    fn used(&self, number: InodeNumber) -> Result<Option<Inode>> {
        let Shared { space, cache, format, .. } = &*self.volume;
        if !space.is_used(&**cache, format, number)? {
            return Ok(None);
        }
        crate::tx::View::new(&**cache, format, space).inode(number).map(Some)
    }

    fn know(&self, number: InodeNumber, changes: Changes) -> Result<Known> {
        let before = self.used(number)?;
        let record = changes.record.as_ref().map(|bytes| self.record(number, bytes)).transpose()?;
        let is_another = |before: &Inode, record: &Inode| {
            before.links() == 0 && !self.orphans.contains(&number)
                || changes.is_created
                || changes.is_unlinked && generation(before.bytes()) != generation(record.bytes())
        };
        let is_fresh = match (&before, &record) {
            (None, _) => true,
            (Some(before), Some(record)) => is_another(before, record),
            (Some(_), None) => false,
        };
        let is_same_kind = |record: &Inode| {
            is_fresh || before.as_ref().is_some_and(|old| old.file_type() == record.file_type())
        };
        if let Some(record) = record.as_ref().filter(|record| !is_same_kind(record)) {
            let found = record.mode();
            return Err(bad(format!(
                "a fast commit gives inode {number} in use another type, mode {found:o}"
            )));
        }
        // Linux logs the record of a directory only when it is made.
        let record = record.filter(|record| is_fresh || record.file_type() != Some(FileType::Directory));
        Ok(Known { before, record, is_fresh, changes, names: 0 })
    }

    /// The record in a fast commit, as long as one of the volume.
    fn record(&self, number: InodeNumber, bytes: &[u8]) -> Result<Inode> {
        let size = usize::from(self.volume.format.geometry.inode_size);
        if bytes.len() > size {
            let found = bytes.len();
            return Err(bad(format!("a fast commit has {found} bytes for inode {number}, at most {size}")));
        }
        let mut whole = bytes.to_vec();
        whole.resize(size, 0);
        let inode = Inode::parse(number, &whole)?;
        match inode.file_type() {
            Some(_) => Ok(inode),
            None => Err(bad(format!("a fast commit gives inode {number} the mode {:o}", inode.mode()))),
        }
    }

    /// The names as they were and are in the end.
    fn entries(&mut self, records: &Records) -> Result<Entries> {
        let mut entries = Entries::new();
        for named in &records.names {
            let inode = self.number(named.inode)?;
            let parent = match InodeNumber::new(named.parent) {
                Some(InodeNumber::ROOT) => InodeNumber::ROOT,
                _ => self.number(named.parent)?,
            };
            if !is_name(&named.name) {
                let shown = named.name.escape_ascii();
                return Err(bad(format!("a fast commit changes the name '{shown}', which can't be one")));
            }
            let key = (parent, named.name.clone());
            let known = entries.get(&key).copied();
            let (before, after) = match known {
                Some(known) => known,
                None => {
                    let before = self.lookup(parent, &named.name)?;
                    (before, before)
                }
            };
            let after = match named.change {
                NameChange::Create | NameChange::Link => Some(inode),
                NameChange::Unlink if after == Some(inode) => None,
                NameChange::Unlink => after,
            };
            entries.insert(key, (before, after));
        }
        for (before, after) in entries.values_mut() {
            for number in [*before, *after].into_iter().flatten() {
                if !self.known.contains_key(&number) {
                    let known = self.know(number, Changes::default())?;
                    self.known.insert(number, known);
                }
            }
            // Linux keeps names of inodes that were gone again before the commit.
            *after =
                after.filter(|number| self.known.get(number).is_some_and(|known| known.last().is_some()));
        }
        self.know_parents(&entries)?;
        Ok(entries)
    }

    /// Names are added to directories only.
    fn know_parents(&mut self, entries: &Entries) -> Result<()> {
        for ((parent, name), (before, after)) in entries {
            if before == after {
                continue;
            }
            if !self.known.contains_key(parent) {
                let known = self.know(*parent, Changes::default())?;
                self.known.insert(*parent, known);
            }
            let is_directory = self.known.get(parent).is_some_and(Known::is_directory);
            if after.is_some() && !is_directory {
                let shown = name.escape_ascii();
                return Err(bad(format!(
                    "a fast commit adds the name '{shown}' to inode {parent}, which is no directory"
                )));
            }
        }
        Ok(())
    }

    /// Where a name led before.
    fn lookup(&mut self, parent: InodeNumber, name: &[u8]) -> Result<Option<InodeNumber>> {
        self.foresee(parent, name)?;
        let Some(directory) = self.used(parent)? else { return Ok(None) };
        if directory.file_type() != Some(FileType::Directory) {
            return Ok(None);
        }
        let format = &self.volume.format;
        let blocks = directory.size() >> format.geometry.block_size.log2();
        let is_indexed = directory.flags().contains(InodeFlags::INDEX);
        self.look_through(if is_indexed { blocks / INDEX_SHARE } else { blocks })?;
        let found = self.volume.view().dir(&directory).lookup(name)?;
        Ok(found.map(|(number, _)| number))
    }

    /// Where a volume has no indexes, each name that is added is looked for among all that were added before.
    fn foresee(&mut self, parent: InodeNumber, name: &[u8]) -> Result<()> {
        let format = &self.volume.format;
        if format.features.compat.contains(Compat::DIR_INDEX) {
            return Ok(());
        }
        let log2 = format.geometry.block_size.log2();
        let bytes = self.added.entry(parent).or_default();
        *bytes += name.len() as u64 + 12;
        let blocks = *bytes >> log2;
        self.look_through(blocks)
    }

    fn look_through(&mut self, blocks: u64) -> Result<()> {
        self.looked_through += blocks;
        if self.looked_through > LOOKED_THROUGH_MAX {
            return Err(Error::Unsupported(
                "its fast commits change too many names of large directories".into(),
            ));
        }
        Ok(())
    }

    fn count_names(&mut self, entries: &Entries) {
        for (before, after) in entries.values().filter(|(before, after)| before != after) {
            for (number, change) in [(before, -1), (after, 1)] {
                if let Some(known) = number.and_then(|number| self.known.get_mut(&number)) {
                    known.names += change;
                }
            }
        }
    }

    fn subdirectories(&self, entries: &Entries) -> BTreeMap<InodeNumber, i64> {
        let mut changes = BTreeMap::new();
        for ((parent, _), (before, after)) in entries.iter().filter(|(_, ends)| self.is_changed(ends)) {
            let known = |number: &Option<InodeNumber>| number.and_then(|number| self.known.get(&number));
            let change = i64::from(known(after).is_some_and(Known::is_directory))
                - i64::from(known(before).is_some_and(Known::was_directory));
            *changes.entry(*parent).or_default() += change;
        }
        changes.retain(|_, change| *change != 0);
        changes
    }

    /// Whether a name leads elsewhere in the end, or to something of another type that got the same number.
    fn is_changed(&self, (before, after): &(Option<InodeNumber>, Option<InodeNumber>)) -> bool {
        let type_changes = |known: &Known| {
            let types = [&known.before, &known.record].map(|one| one.as_ref().and_then(Inode::file_type));
            known.is_fresh && types[0] != types[1]
        };
        before != after || after.and_then(|number| self.known.get(&number)).is_some_and(type_changes)
    }

    /// Directories stay where they are (Linux moves none by fast commits), and new ones lie below others: so none comes
    /// to lie below itself.
    fn refuse_circles(&self, entries: &Entries) -> Result<()> {
        let directory = |number: &InodeNumber| self.known.get(number).filter(|known| known.is_directory());
        let mut below_others = BTreeSet::new();
        for (before, after) in entries.values() {
            let Some(number) = after.filter(|_| self.is_changed(&(*before, *after))) else { continue };
            let Some(known) = directory(&number) else { continue };
            if !known.is_fresh {
                return Err(bad(format!("a fast commit moves directory {number}")));
            }
            let (mut above, mut passed) = (number, Vec::new());
            while directory(&above).is_some_and(|known| known.is_fresh) && below_others.insert(above) {
                passed.push(above);
                let Some(parent) = self.parents.get(&above) else { break };
                above = *parent;
            }
            if passed.contains(&above) {
                return Err(bad(format!("a fast commit puts directory {number} below itself")));
            }
        }
        Ok(())
    }

    /// What becomes of one inode.
    fn settle(
        &self,
        number: InodeNumber,
        known: Known,
        entries: &Entries,
        wanted: &mut Wanted,
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
        let Shared { cache, format, .. } = &*self.volume;
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
            Some(before) => Extents::of(Map::new(&**cache, format, before))?,
            None => Extents::default(),
        };
        let limit = map::limit(format.geometry.block_size, inode);
        known.changes.ranges.iter().try_for_each(|range| extents.change(format, limit, range))?;
        Ok(Contents::Mapped(extents.joined()))
    }

    /// Notes which blocks and inodes change their owner.
    fn book(&self, number: InodeNumber, known: &Known, node: &mut Node, wanted: &mut Wanted) -> Result<()> {
        let Shared { cache, format, .. } = &*self.volume;
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

/// What of a record follows from the volume and not from a fast commit: where a list of orphans goes on, attributes of
/// its own, what kind of inode it is.
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
