//! The zone of the volume's own structures, to which no map of a file may lead (I36).
//!
//! Owns: where superblocks, descriptors, bitmaps and tables lie, and the blocks of the files that the volume keeps
//! for itself; whether blocks that something leads to are among them. Excludes: whether two files claim one
//! block (I11), which only a check of the whole volume can know.
//!
//! It is made once, when a volume is opened, and descriptors never move while it is open. Structures of neighbouring
//! groups that follow each other are one part, so that it takes a few bytes for a group in the usual layouts and
//! never more than the descriptors do.

use std::fmt;
use std::sync::{Arc, RwLock};

use ondisk::corrupt::Place;
use ondisk::features::{Compat, Incompat, RoCompat};
use ondisk::geometry::Geometry;
use ondisk::group::RawGroupDescriptor;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, BlockRun, Cluster, ClusterRun, Group, InodeNumber, low_u32};

use crate::error::{Error, Result};
use crate::locks::{read, write};

/// Kind of a part of the zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Header,
    BlockBitmap,
    InodeBitmap,
    InodeTable,
    Mmp,
}

/// Structures of one kind that follow each other, of groups that do.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: u64,
    count: u32,
    /// Blocks of one group.
    each: u32,
    first: Group,
    kind: Kind,
}

impl Part {
    fn end(&self) -> u64 {
        self.start + u64::from(self.count)
    }

    /// Structure at a block of it.
    fn at(&self, block: u64) -> Structure {
        let groups = block.saturating_sub(self.start) / u64::from(self.each.max(1));
        Structure { kind: self.kind, group: Group(self.first.0.saturating_add(low_u32(groups))) }
    }
}

/// A structure of the volume, for people.
#[derive(Clone, Copy, Debug)]
struct Structure {
    kind: Kind,
    group: Group,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Kind::Header => "superblock and descriptors",
            Kind::BlockBitmap => "block bitmap",
            Kind::InodeBitmap => "inode bitmap",
            Kind::InodeTable => "inode table",
            Kind::Mmp => return write!(f, "block of multiple mount protection"),
        };
        write!(f, "{what} of group {}", self.group)
    }
}

/// Blocks of a file that the volume keeps for itself.
#[derive(Clone, Copy, Debug)]
struct OwnFileRun {
    start: u64,
    end: u64,
    owner: InodeNumber,
}

#[derive(Debug, Default)]
struct Known {
    parts: Vec<Part>,
    kept: Vec<OwnFileRun>,
    files: Vec<InodeNumber>,
    /// The one of them that may have a name.
    journal: Option<InodeNumber>,
    /// Those that the volume keeps no longer.
    given_up: RwLock<Vec<InodeNumber>>,
    /// Those that left their blocks for others.
    moved: RwLock<Vec<InodeNumber>>,
}

impl Known {
    fn keeps(&self, owner: InodeNumber) -> bool {
        !read(&self.given_up).contains(&owner)
    }

    /// True if blocks are still those of a file.
    fn is_kept(&self, run: &OwnFileRun) -> bool {
        self.keeps(run.owner) && !read(&self.moved).contains(&run.owner)
    }

    /// Blocks of its files that lie behind a block, in order.
    fn kept_behind(&self, block: u64) -> impl Iterator<Item = &OwnFileRun> {
        self.kept.split_at(self.kept.partition_point(|run| run.end <= block)).1.iter()
    }
}

/// The zone; one that was not made yet holds nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zone(Option<Arc<Known>>);

/// The files that the superblock names as the volume's own.
pub(crate) fn own_files(raw: &RawSuperblock) -> Vec<InodeNumber> {
    let features = raw.features();
    let of = |has: bool, number: u32| InodeNumber::new(number).filter(|_| has);
    let quota = features.ro_compat.contains(RoCompat::QUOTA);
    let all = [
        of(features.compat.contains(Compat::HAS_JOURNAL), raw.s_journal_inum.get()),
        of(features.compat.contains(Compat::ORPHAN_FILE), raw.s_orphan_file_inum.get()),
        of(quota, raw.s_usr_quota_inum.get()),
        of(quota, raw.s_grp_quota_inum.get()),
        of(quota, raw.s_prj_quota_inum.get()),
    ];
    all.into_iter().flatten().collect()
}

/// Structures of a group, wherever they lie.
fn of_group(geometry: &Geometry, group: Group, raw: &RawGroupDescriptor) -> [(Kind, BlockRun); 4] {
    [
        (Kind::Header, geometry.group_header(group)),
        (Kind::BlockBitmap, BlockRun { start: raw.block_bitmap(), count: 1 }),
        (Kind::InodeBitmap, BlockRun { start: raw.inode_bitmap(), count: 1 }),
        (Kind::InodeTable, BlockRun { start: raw.inode_table(), count: geometry.inode_table_blocks() }),
    ]
}

/// Refuses structures that lie outside of their group, where Linux has them nowhere else: they would be written over
/// files of another.
fn refuse_strays(geometry: &Geometry, group: Group, raw: &RawGroupDescriptor) -> Result<()> {
    for (kind, run) in of_group(geometry, group, raw).into_iter().filter(|(_, run)| run.count > 0) {
        let last = Block(run.start.0 + u64::from(run.count) - 1);
        let is_inside = |block| geometry.group_of_block(block) == Some(group);
        if !is_inside(run.start) || !is_inside(last) {
            let (start, what) = (run.start, Structure { kind, group });
            let problem =
                format!("{what} at block {start} lies outside the group, without flex_bg; check the volume");
            return Err(Error::corrupt(Place::Descriptor(group), problem));
        }
    }
    Ok(())
}

/// Gathers the parts of a zone, group by group.
#[derive(Default)]
struct Gathering {
    parts: Vec<Part>,
    /// The last part of each kind, by its place.
    open: [Option<usize>; 4],
}

impl Gathering {
    fn group(&mut self, geometry: &Geometry, group: Group, raw: &RawGroupDescriptor) {
        for (open, (kind, run)) in self.open.iter_mut().zip(of_group(geometry, group, raw)) {
            if run.count == 0 {
                continue;
            }
            let last = open.and_then(|at| self.parts.get_mut(at));
            if let Some(part) = last
                && part.kind != Kind::Header
                && part.end() == run.start.0
                && u64::from(group.0 - part.first.0) * u64::from(part.each) == u64::from(part.count)
                && let Some(count) = part.count.checked_add(run.count)
            {
                part.count = count;
                continue;
            }
            *open = Some(self.parts.len());
            let each = if kind == Kind::Header { u32::MAX } else { run.count };
            self.parts.push(Part { start: run.start.0, count: run.count, each, first: group, kind });
        }
    }
}

/// Sorts parts. Those that overlap are damage: reported, or cut if they need only be known.
fn sorted(mut parts: Vec<Part>, is_reported: bool) -> Result<Vec<Part>> {
    parts.sort_unstable_by_key(|part| part.start);
    let mut apart: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        let before = apart.last().map_or(0, Part::end);
        if before <= part.start {
            apart.push(part);
            continue;
        }
        if is_reported && let Some(last) = apart.last() {
            let (one, other) = (last.at(part.start), part.at(part.start));
            let problem = format!("{other} and {one} share block {}; check the volume", part.start);
            return Err(Error::corrupt(Place::Descriptor(part.first), problem));
        }
        if let Some(count) = part.end().checked_sub(before).map(low_u32).filter(|count| *count > 0) {
            apart.push(Part { start: before, count, ..part });
        }
    }
    Ok(apart)
}

impl Zone {
    /// The zone of a volume with these descriptors; those that can't be used are left out. Without the blocks of the
    /// files that the volume keeps for itself.
    ///
    /// # Errors
    /// To be `written`: descriptors that can't be used, structures that overlap or lie outside of their group.
    pub(crate) fn from_descriptors(
        geometry: &Geometry,
        raw: &RawSuperblock,
        descriptor: impl Fn(Group) -> Result<RawGroupDescriptor>,
        written: bool,
    ) -> Result<Self> {
        let mut gathering = Gathering::default();
        let is_flexible = raw.features().incompat.contains(Incompat::FLEX_BG);
        for group in (0..geometry.groups).map(Group) {
            match descriptor(group) {
                Ok(raw) => {
                    if written && !is_flexible {
                        refuse_strays(geometry, group, &raw)?;
                    }
                    gathering.group(geometry, group, &raw);
                }
                Err(error) if written => return Err(error),
                Err(_) => {}
            }
        }
        let mmp = raw.s_mmp_block.get();
        if raw.features().incompat.contains(Incompat::MMP) && geometry.contains(Block(mmp), 1) {
            let group = geometry.group_of_block(Block(mmp)).unwrap_or(Group(0));
            gathering.parts.push(Part { start: mmp, count: 1, each: 1, first: group, kind: Kind::Mmp });
        }
        let parts = sorted(gathering.parts, written)?;
        let journal = InodeNumber::new(raw.s_journal_inum.get());
        Ok(Zone(Some(Arc::new(Known {
            parts,
            kept: Vec::new(),
            files: own_files(raw),
            journal,
            ..Known::default()
        }))))
    }

    /// Adds the blocks of the files that the volume keeps for itself.
    ///
    /// # Errors
    /// A file that leads to structures of the volume, or to blocks of another such file.
    pub(crate) fn keeping(&self, files: Vec<(InodeNumber, Vec<BlockRun>)>) -> Result<Self> {
        let Some(known) = &self.0 else { return Ok(self.clone()) };
        let mut kept = Vec::new();
        for (owner, runs) in files {
            kept.extend(runs.iter().map(|run| OwnFileRun {
                start: run.start.0,
                end: run.start.0 + u64::from(run.count),
                owner,
            }));
        }
        kept.sort_unstable_by_key(|run| (run.start, run.end));
        for pair in kept.windows(2) {
            if let [one, other] = pair
                && one.end > other.start
            {
                let problem = format!("claims block {}, as inode {} does", other.start, one.owner);
                return Err(Error::corrupt(Place::Map(other.owner), problem));
            }
        }
        let Known { parts, files, journal, .. } = &**known;
        let (parts, files) = (parts.clone(), files.clone());
        let known = Known { parts, kept, files, journal: *journal, ..Known::default() };
        Ok(Zone(Some(Arc::new(known))))
    }

    /// The zone of the same volume with other structures, and the blocks of the same files.
    pub(crate) fn with_files_of(&self, before: &Zone) -> Self {
        let (Some(known), Some(before)) = (&self.0, &before.0) else { return self.clone() };
        let (parts, files, journal) = (known.parts.clone(), known.files.clone(), known.journal);
        let again = |list: &RwLock<Vec<InodeNumber>>| RwLock::new(read(list).clone());
        let (given_up, moved) = (again(&before.given_up), again(&before.moved));
        Zone(Some(Arc::new(Known { parts, kept: before.kept.clone(), files, journal, given_up, moved })))
    }

    /// Names the structure of the zone among blocks to which an inode leads, unless it is its own.
    pub(crate) fn met(
        &self,
        geometry: &Geometry,
        inode: InodeNumber,
        start: Block,
        count: u64,
    ) -> Option<String> {
        let known = self.0.as_ref()?;
        let ratio = u64::from(geometry.blocks_per_cluster());
        let from = geometry.cluster_start(geometry.cluster_of(start)).0;
        let last = Block(start.0 + count.max(1) - 1);
        let end = geometry.cluster_start(geometry.cluster_of(last)).0 + ratio;
        let at = known.parts.partition_point(|part| part.end() <= from);
        if let Some(part) = known.parts.get(at).filter(|part| part.start < end) {
            let block = part.start.max(start.0);
            return Some(format!("leads to block {block}, which holds the {}", part.at(block)));
        }
        let mut behind = known.kept_behind(from).take_while(|run| run.start < end);
        let other = behind.find(|run| run.owner != inode && known.is_kept(run))?;
        let block = other.start.max(start.0);
        let owner = other.owner;
        Some(format!("leads to block {block}, which belongs to inode {owner}, a file of the volume's own"))
    }

    /// The clusters of a group that the zone takes.
    pub(crate) fn clusters_in(&self, geometry: &Geometry, group: Group) -> Vec<ClusterRun> {
        let Some(known) = &self.0 else { return Vec::new() };
        let start = geometry.group_start(group).0;
        let end = start + u64::from(geometry.group_blocks(group));
        let (_, parts) = known.parts.split_at(known.parts.partition_point(|part| part.end() <= start));
        let parts = parts.iter().map(|part| (part.start, part.end()));
        let kept = known.kept_behind(start).filter(|run| known.is_kept(run)).map(|run| (run.start, run.end));
        let inside = |(from, to): (u64, u64)| {
            let (from, to) = (geometry.cluster_of(Block(from.max(start))), Block(to.min(end) - 1));
            ClusterRun { start: from, count: low_u32(geometry.cluster_of(to).0 - from.0 + 1) }
        };
        let before_end = |run: &(u64, u64)| run.0 < end;
        parts.take_while(before_end).map(inside).chain(kept.take_while(before_end).map(inside)).collect()
    }

    /// True if a run of clusters touches the zone.
    pub(crate) fn touches(&self, geometry: &Geometry, run: ClusterRun) -> bool {
        let Some(known) = &self.0 else { return false };
        let start = geometry.cluster_start(run.start).0;
        let end = geometry.cluster_start(Cluster(run.end())).0;
        let part = known.parts.get(known.parts.partition_point(|part| part.end() <= start));
        let mut kept = known.kept_behind(start).take_while(|run| run.start < end);
        part.is_some_and(|part| part.start < end) || kept.any(|run| known.is_kept(run))
    }

    /// The journal, if it is a file among them.
    pub(crate) fn journal(&self) -> Option<InodeNumber> {
        self.0.as_ref().and_then(|known| known.journal)
    }

    /// The files that the volume keeps for itself, by the superblock's word.
    pub(crate) fn files(&self) -> impl Iterator<Item = InodeNumber> {
        let known = self.0.iter().flat_map(|known| known.files.iter().map(move |file| (known, *file)));
        known.filter(|(known, file)| known.keeps(*file)).map(|(_, file)| file)
    }

    /// True if an inode is one of these files.
    pub(crate) fn has_file(&self, number: InodeNumber) -> bool {
        self.0.as_ref().is_some_and(|known| known.files.contains(&number) && known.keeps(number))
    }

    /// The volume no longer keeps a file for itself: its blocks are free.
    pub(crate) fn give_up(&self, number: InodeNumber) {
        if let Some(known) = &self.0 {
            write(&known.given_up).push(number);
        }
    }

    /// A file of the volume's own leaves blocks that it had when the zone was made: these can be anybody's.
    pub(crate) fn forget_blocks_of(&self, number: InodeNumber) {
        if let Some(known) = &self.0
            && !read(&known.moved).contains(&number)
        {
            write(&known.moved).push(number);
        }
    }
}

/// The inode whose map is the list of bad blocks.
pub(crate) const BAD_BLOCKS: InodeNumber = InodeNumber::constant(1);
