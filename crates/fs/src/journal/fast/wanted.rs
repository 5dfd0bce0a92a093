//! Plan of a replay of fast commits: which inodes they concern, and each name as it is in the end. The final state
//! of one inode stands in [`super::settle`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ondisk::features::Compat;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::journal::fast_commit::{NameChange, is_name};
use ondisk::units::InodeNumber;

use platfs_device::journal::{InodeChanges, Records, generation};

use super::super::bad;
use crate::device::{Device, Overlay};
use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::space::Bookings;
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

/// Contents of an inode after the replay.
pub(super) enum Contents {
    /// Unchanged.
    Same,
    /// Kept in its record: device numbers, short links, inline data.
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
    /// Former inode with this number, if it had attributes of its own.
    pub(super) former: Option<Inode>,
    /// It stands on a list of orphans, which goes on from its record.
    pub(super) is_listed: bool,
}

/// All that is to be done.
pub(super) struct ReplayPlan {
    pub(super) nodes: BTreeMap<InodeNumber, Node>,
    /// By directory.
    pub(super) names: BTreeMap<InodeNumber, Vec<Name>>,
    /// Changes of a directory's number of subdirectories.
    pub(super) subdirectories: BTreeMap<InodeNumber, i64>,
    pub(super) bookings: Bookings,
}

/// State of an inode that fast commits name.
pub(super) struct Known {
    /// Its record, if it was in use.
    pub(super) before: Option<Inode>,
    /// Its record in the end, if fast commits have one that counts.
    pub(super) record: Option<Inode>,
    /// It has nothing to do with what its number was used for.
    pub(super) is_fresh: bool,
    pub(super) changes: InodeChanges,
    /// Names that it gets, less those that it loses.
    pub(super) names: i64,
}

impl Known {
    pub(super) fn last(&self) -> Option<&Inode> {
        self.record.as_ref().or(self.before.as_ref())
    }

    pub(super) fn is_directory(&self) -> bool {
        self.last().and_then(Inode::file_type) == Some(FileType::Directory)
    }

    pub(super) fn was_directory(&self) -> bool {
        self.before.as_ref().and_then(Inode::file_type) == Some(FileType::Directory)
    }

    /// Names in the end.
    pub(super) fn name_count(&self) -> i64 {
        let before = match &self.before {
            Some(_) if self.was_directory() => 1,
            Some(inode) => i64::from(inode.links()),
            None => 0,
        };
        before + self.names
    }
}

pub(super) type Entries = BTreeMap<(InodeNumber, Vec<u8>), (Option<InodeNumber>, Option<InodeNumber>)>;

pub(super) struct Planning {
    pub(super) volume: Volume,
    pub(super) orphans: BTreeSet<InodeNumber>,
    /// Inodes that belong to the volume itself.
    pub(super) own: Vec<u32>,
    pub(super) known: BTreeMap<InodeNumber, Known>,
    /// In which directory an inode is named in the end.
    pub(super) parents: BTreeMap<InodeNumber, InodeNumber>,
    /// How many names that records speak of an inode has in the end.
    pub(super) named: BTreeMap<InodeNumber, i64>,
    /// Bytes of names that directories may get.
    pub(super) added: BTreeMap<InodeNumber, u64>,
    pub(super) looked_through: u64,
}

/// Finds out what records come to on a volume that is as its log left it.
///
/// # Errors
/// As [`super::apply`].
pub(super) fn plan(device: &Arc<Overlay>, records: Records) -> Result<ReplayPlan> {
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
    let orphans = volume.leftovers().orphan_lists().all()?;
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
    fn plan(&mut self, mut records: Records) -> Result<ReplayPlan> {
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
        let changed = entries.iter().filter(|(_, (before, after))| self.is_changed(*before, *after));
        let changed: BTreeSet<(InodeNumber, Vec<u8>)> = changed.map(|(key, _)| key.clone()).collect();
        let mut wanted = ReplayPlan {
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            subdirectories,
            bookings: Bookings::default(),
        };
        for (number, known) in std::mem::take(&mut self.known) {
            self.plan_inode(number, known, &entries, &mut wanted)?;
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
        let Shared { space, cache, format, .. } = &**self.volume;
        if !space.is_used(&**cache, number)? {
            return Ok(None);
        }
        crate::tx::View { blocks: &**cache, format, space }.inode(number).map(Some)
    }

    fn know(&self, number: InodeNumber, changes: InodeChanges) -> Result<Known> {
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

    /// The record in a fast commit, of the length of the volume's records.
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
                    let known = self.know(number, InodeChanges::default())?;
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
                let known = self.know(*parent, InodeChanges::default())?;
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
        self.reserve_name_space(parent, name)?;
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
    fn reserve_name_space(&mut self, parent: InodeNumber, name: &[u8]) -> Result<()> {
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
        for ((parent, _), (before, after)) in
            entries.iter().filter(|(_, (before, after))| self.is_changed(*before, *after))
        {
            let known = |number: &Option<InodeNumber>| number.and_then(|number| self.known.get(&number));
            let change = i64::from(known(after).is_some_and(Known::is_directory))
                - i64::from(known(before).is_some_and(Known::was_directory));
            *changes.entry(*parent).or_default() += change;
        }
        changes.retain(|_, change| *change != 0);
        changes
    }

    /// True if a name leads elsewhere in the end, or to something of another type that got the same number.
    fn is_changed(&self, before: Option<InodeNumber>, after: Option<InodeNumber>) -> bool {
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
            let Some(number) = after.filter(|_| self.is_changed(*before, *after)) else { continue };
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
}
