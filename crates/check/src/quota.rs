//! Quota files: that they count what the inodes in use have.
//!
//! Runs where all else is repaired but bitmaps, so that inodes say what they will, and blocks taken for
//! a longer file are counted. Volumes without the feature cost nothing.

use std::collections::BTreeMap;

use ondisk::block_map::DIRECT;
use ondisk::extent::{Entries, Extent, MAX_WRITTEN, Node};
use ondisk::features::{Incompat, RoCompat};
use ondisk::inode::{FileType, Inode, InodeFlags, TimeField};
use ondisk::quota::{self, QuotaKind, Usage};
use ondisk::units::{Block, FileBlock, Group, InodeNumber, bounded, low_u32};
use ondisk::xattr::{self, Value};
use zerocopy::little_endian::U32;

use super::contents;
use super::facts::Facts;
use super::issue::Location;
use super::kinds::opening::QUOTA_INODE_NUMBER;
use super::kinds::space as kind;
use super::named;
use super::reporter::{Finding, Report};
use super::slices::{as_index, put};
use super::staged::staging;
use super::subject::Subject;
use platfs_device::{Device, Result};

/// Bytes of quota files that are read; a file of more is not one.
const FILE_MAX: u64 = 1 << 30;
/// Bytes of inode tables read at once.
const PIECE: u64 = 256 * 1024;

/// Usage of each id, for one kind of ids.
type Table = BTreeMap<u32, Usage>;

/// Compares the quota files with the inodes in use.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn check(subject: &Subject, facts: &Facts, report: &mut Report<'_>) -> Result<()> {
    let files = subject.quota_inodes();
    if files == [0; 3] {
        return Ok(());
    }
    let tables = usage(subject, facts);
    for ((whose, number), table) in QuotaKind::ALL.into_iter().zip(files).zip(&tables) {
        if number != 0 {
            file(subject, facts, &QuotaFile { whose, number, table }, report)?;
        }
    }
    Ok(())
}

/// Where quota of users and groups is kept by custom; projects have no such place.
const USUAL: [u32; 3] = [3, 4, 0];

/// Sees to it that the superblock names no ordinary file as one of quota: that would be overwritten with counts.
pub(super) fn numbers(subject: &mut Subject, report: &mut Report<'_>) {
    if !subject.has_ro_compat(RoCompat::QUOTA) {
        return;
    }
    for (kind, usual) in QuotaKind::ALL.into_iter().zip(USUAL) {
        let number = field(subject, kind).get();
        if number < subject.geometry.first_inode || is_quota(subject, kind, number) {
            continue;
        }
        let stands = usual != 0 && is_quota(subject, kind, usual);
        if !stands && !is_never_begun(subject, number) && !named::is_named(subject, number) {
            continue;
        }
        let (becomes, repair) = match stands {
            true => (usual, format!("the field becomes {usual}, where such quota is kept; the file stays")),
            false => (0, "the field is cleared: no such quota is kept; the file stays".to_owned()),
        };
        let found = format!("{} quota in inode {number}, which is no file of quota", name(kind));
        if report.found(&QUOTA_INODE_NUMBER, Finding::new(Location::default(), found, repair)) {
            field(subject, kind).set(becomes);
            subject.backups_follow = true;
        }
    }
}

fn field(subject: &mut Subject, kind: QuotaKind) -> &mut U32 {
    match kind {
        QuotaKind::User => &mut subject.raw.s_usr_quota_inum,
        QuotaKind::Group => &mut subject.raw.s_grp_quota_inum,
        QuotaKind::Project => &mut subject.raw.s_prj_quota_inum,
    }
}

/// Tells if the place of an inode lies in a part of its table that was never used. No program looks for inodes there.
fn is_never_begun(subject: &Subject, number: u32) -> bool {
    let place = InodeNumber::new(number).and_then(|number| subject.geometry.locate_inode(number));
    place.is_some_and(|(group, index)| {
        subject.table_of(group).is_some() && index >= subject.inodes_begun(group)
    })
}

/// Returns true if an inode holds a file of quota, to the letter but for its header's sums.
fn is_quota(subject: &Subject, kind: QuotaKind, number: u32) -> bool {
    let contents = StoredQuota::read(subject, number).and_then(|old| old.contents);
    contents.is_ok_and(|bytes| quota::decode(kind, &bytes).is_ok())
}

/// Sums the usage of all inodes in use, for each kind of ids.
fn usage(subject: &Subject, facts: &Facts) -> [Table; 3] {
    let mut tables = [Table::new(), Table::new(), Table::new()];
    let size = u64::from(subject.geometry.inode_size);
    let per_piece = PIECE / size;
    for group in (0..subject.geometry.groups).map(Group) {
        let whole = u64::from(subject.geometry.inodes_per_group);
        let base = u64::from(group.0) * whole;
        for first in (0..whole).step_by(usize::try_from(per_piece).unwrap_or(1)) {
            let count = per_piece.min(whole - first);
            if (0..count).step_by(64).all(|at| facts.used.window(base + first + at) == 0) {
                continue;
            }
            let Some(table) = subject.table_of(group) else { continue };
            let mut bytes = vec![0; bounded::<usize>(count * size)];
            let offset = subject.geometry.byte_offset(table) + first * size;
            if subject.device.read_at(offset, &mut bytes).is_err() {
                continue;
            }
            for (at, record) in bytes.chunks_exact(usize::from(subject.geometry.inode_size)).enumerate() {
                let index = base + first + at as u64;
                let number = u32::try_from(index + 1).ok().and_then(InodeNumber::new);
                if facts.used.contains(index)
                    && let Some(number) = number.filter(|number| counts(subject, *number))
                    && let Ok(inode) = Inode::parse(number, record)
                {
                    charge(subject, &inode, &mut tables);
                }
            }
        }
    }
    tables
}

/// Returns true if an inode counts towards a quota: those of the volume itself do not.
fn counts(subject: &Subject, number: InodeNumber) -> bool {
    let own = [subject.raw.s_prj_quota_inum.get(), subject.raw.s_orphan_file_inum.get()];
    number == InodeNumber::ROOT
        || number.get() >= subject.geometry.first_inode && !own.contains(&number.get())
}

fn charge(subject: &Subject, inode: &Inode, tables: &mut [Table; 3]) {
    if inode.links() == 0 || inode.flags().contains(InodeFlags::EA_INODE) {
        return;
    }
    let bytes = inode.sectors(subject.geometry.block_size) * 512;
    let inodes = 1 + value_inodes(subject, inode);
    for (table, id) in tables.iter_mut().zip([inode.uid(), inode.gid(), inode.project()]) {
        let used = table.entry(id).or_default();
        used.bytes = used.bytes.saturating_add(bytes);
        used.inodes += inodes;
    }
}

/// Values of attributes in inodes of their own: each counts for every file that has it.
fn value_inodes(subject: &Subject, inode: &Inode) -> u64 {
    if !subject.has_incompat(Incompat::EA_INODE) {
        return 0;
    }
    let far = |entries: &[xattr::Entry<'_>]| {
        entries.iter().filter(|entry| matches!(entry.value, Value::Inode { .. })).count() as u64
    };
    let here = xattr::in_inode(inode).map_or(0, |entries| far(&entries));
    let block = inode.attribute_block();
    let there = match subject.block(block) {
        Ok(bytes) if block.0 != 0 => xattr::in_block(block, &bytes).map_or(0, |(_, entries)| far(&entries)),
        _ => 0,
    };
    here + there
}

/// A quota file, and what was found in use.
struct QuotaFile<'t> {
    whose: QuotaKind,
    number: u32,
    table: &'t Table,
}

/// Compares one quota file with what was found.
fn file(subject: &Subject, facts: &Facts, file: &QuotaFile<'_>, report: &mut Report<'_>) -> Result<()> {
    let &QuotaFile { whose, number, table } = file;
    let place = InodeNumber::new(number).map_or_else(Location::default, Location::inode);
    let old = match StoredQuota::of(subject, facts, number) {
        Ok(Some(old)) => old,
        Ok(None) => return Ok(()),
        Err(problem) => {
            report.found(
                &kind::QUOTA_FILE,
                Finding::new(place, format!("{} quota: {problem}", name(whose)), ""),
            );
            return Ok(());
        }
    };
    let stated = old.contents.as_ref().map_err(String::clone).and_then(|bytes| quota::decode(whose, bytes));
    let sums = old.contents.as_ref().ok().and_then(|bytes| quota::flaw(whose, bytes));
    let (rule, found, repair) = match (&stated, sums) {
        (Ok(_), Some(problem)) => (&kind::QUOTA_FILE, problem, "the file is rewritten; limits stay"),
        (Ok(stated), None) => match differences(stated, table) {
            Some(words) => (&kind::QUOTA_USAGE, words, "the counts become what was found; limits stay"),
            None => return Ok(()),
        },
        (Err(problem), _) => {
            (&kind::QUOTA_FILE, problem.clone(), "the file is rewritten, with limits that can be read")
        }
    };
    // Files that repairs cut, removed or gave blocks: that usage is another is no news.
    let repaired = facts.has_given_up() || facts.altered.count() + facts.taken.count() > 0;
    let follows = rule == &kind::QUOTA_USAGE && repaired;
    let finding = Finding::new(place, format!("{} quota: {found}", name(whose)), repair);
    if follows || report.found(rule, finding) {
        let contents = quota::update(whose, old.contents.as_deref().unwrap_or_default(), table);
        return store(subject, facts, old, &contents);
    }
    Ok(())
}

fn name(kind: QuotaKind) -> &'static str {
    match kind {
        QuotaKind::User => "user",
        QuotaKind::Group => "group",
        QuotaKind::Project => "project",
    }
}

/// The first id that is counted wrongly and how many are; `None` where all is right.
fn differences(stated: &Table, found: &Table) -> Option<String> {
    let mut wrong = stated.iter().filter(|(id, used)| found.get(id).copied().unwrap_or_default() != **used);
    let first = wrong.next();
    let missing = found.keys().filter(|id| !stated.contains_key(id));
    let count = usize::from(first.is_some()) + wrong.count() + missing.clone().count();
    let id = first.map(|(id, _)| id).or(missing.min())?;
    let (stated, found) =
        (stated.get(id).copied().unwrap_or_default(), found.get(id).copied().unwrap_or_default());
    Some(format!(
        "{count} ids, the first is {id}: {} bytes and {} inodes, but {} and {} are in use",
        stated.bytes, stated.inodes, found.bytes, found.inodes
    ))
}

/// A quota file as it stands.
struct StoredQuota {
    inode: Inode,
    /// Its blocks, if it has all up to its size.
    blocks: Vec<Block>,
    /// Bytes of the file, or the reason why they can't be read.
    contents: Result<Vec<u8>, String>,
}

impl StoredQuota {
    /// The file in use; an empty one where the inode is not in use as a file: it was lost with its table, or given
    /// up. `None` where it was reported as something else, and was to stay so.
    fn of(subject: &Subject, facts: &Facts, number: u32) -> Result<Option<Self>, String> {
        let place = InodeNumber::new(number).filter(|number| subject.inode_offset(*number).is_some());
        let Some(place) = place else { return StoredQuota::read(subject, number).map(Some) };
        let index = u64::from(place.index());
        if !facts.used.contains(index) {
            return Ok(Some(StoredQuota::lost(subject, place)));
        }
        let is_file = contents::inode(subject, number)?.file_type() == Some(FileType::Regular);
        match (is_file, facts.altered.contains(index)) {
            (true, _) => StoredQuota::read(subject, number).map(Some),
            (false, true) => Ok(Some(StoredQuota::lost(subject, place))),
            (false, false) => Ok(None),
        }
    }

    fn lost(subject: &Subject, number: InodeNumber) -> Self {
        let mut inode = Inode::blank(number, subject.geometry.inode_size);
        inode.raw_mut().i_mode.set(FileType::Regular.mode_bits() | 0o600);
        inode.raw_mut().i_links_count.set(1);
        for field in [TimeField::Access, TimeField::Change, TimeField::Modify, TimeField::Create] {
            inode.set_time(field, subject.now);
        }
        StoredQuota { inode, blocks: Vec::new(), contents: Err("its inode is lost".to_owned()) }
    }

    fn read(subject: &Subject, number: u32) -> Result<Self, String> {
        let inode = contents::inode(subject, number)?;
        let blocks = if inode.size() > FILE_MAX {
            Err(format!("{} bytes are too many", inode.size()))
        } else {
            contents::blocks(subject, &inode)
        };
        let contents = blocks.clone().and_then(|blocks| {
            let mut bytes = Vec::new();
            for block in blocks {
                bytes.extend(subject.block(block).map_err(|error| error.to_string())?);
            }
            bytes.truncate(as_index(inode.size()));
            Ok(bytes)
        });
        // Where reading fails, writing may too.
        let blocks = if contents.is_ok() { blocks.unwrap_or_default() } else { Vec::new() };
        Ok(StoredQuota { inode, blocks, contents })
    }
}

/// Writes new contents, into the blocks there are or, if these are too few, into a new run.
fn store(subject: &Subject, facts: &Facts, old: StoredQuota, contents: &[u8]) -> Result<()> {
    let staging = staging("a quota file");
    let StoredQuota { mut inode, mut blocks, .. } = old;
    let needs = subject.geometry.block_size.blocks_for(contents.len() as u64);
    let len = contents.len() as u64;
    if needs > blocks.len() as u64 {
        // No room: the file stays as it is, and the next check reports it.
        let Some(run) = move_to(subject, facts, &mut inode, needs) else { return Ok(()) };
        blocks = (0..needs).map(|at| Block(run.0 + at)).collect();
        inode.set_size(len);
    }
    let mut rest = contents;
    for block in &blocks {
        let mut bytes = vec![0; subject.block_len()];
        let (here, behind) = rest.split_at(rest.len().min(bytes.len()));
        rest = behind;
        put(&mut bytes, 0, here);
        subject.write(*block, &bytes).map_err(staging)?;
    }
    inode.set_size(inode.size().max(len));
    let index = u64::from(inode.number().index());
    if facts.used.insert(index) {
        facts.altered.insert(index);
    }
    subject.write_inode(&mut inode).map_err(staging)
}

/// Gives the inode a new run of blocks in place of all that it has.
fn move_to(subject: &Subject, facts: &Facts, inode: &mut Inode, blocks: u64) -> Option<Block> {
    let extents = subject.has_incompat(Incompat::EXTENTS);
    let most = if extents { MAX_WRITTEN } else { DIRECT };
    let count = u32::try_from(blocks).ok().filter(|count| *count <= most)?;
    let (runs, nodes) = contents::runs_and_nodes(subject, inode).unwrap_or_default();
    let goal = runs.first().map_or(Block(u64::from(subject.geometry.first_data_block)), |run| run.start);
    let start = facts.allocate(subject, goal, blocks)?;
    let old = runs.iter().map(|run| (run.start, run.count)).chain(nodes.iter().map(|node| (*node, 1)));
    for (start, count) in old {
        facts.release(subject, start, count);
    }
    let mut flags = inode.flags() - InodeFlags::INLINE_DATA;
    flags.set(InodeFlags::EXTENTS, extents);
    inode.set_flags(flags);
    let map = &mut inode.raw_mut().i_block;
    map.fill(0);
    if extents {
        let mut root = Node::empty(map.len());
        root.entries = Entries::Leaf(vec![Extent { logical: FileBlock(0), start, count, unwritten: false }]);
        root.store(map);
    } else {
        for (slot, block) in map.as_chunks_mut().0.iter_mut().zip(start.0..start.0 + blocks) {
            *slot = low_u32(block).to_le_bytes();
        }
    }
    let taken = blocks.next_multiple_of(u64::from(subject.geometry.blocks_per_cluster()));
    inode.set_sectors(taken << (subject.geometry.block_size.log2() - 9), subject.geometry.block_size);
    Some(start)
}
