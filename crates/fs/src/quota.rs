//! Quota: what users, groups and projects use and may use, to see and to change.
//!
//! Owns: reading quota files, limits and times of grace, counting again, and switching kinds of quota on and off. Excludes:
//! what verbs charge while they work (`usage`).

use std::collections::BTreeMap;

use ondisk::features::RoCompat;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::quota::{self, QuotaKind, Usage};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{FileBlock, Group, InodeNumber};
use placement::InodeRequest;

use crate::cache::Role;
use crate::charges::Holding;
use crate::error::{Error, Result};
use crate::file::{Ahead, WriteHint};
use crate::ops::{Times, change};
use crate::ranges::FileBlocks;
use crate::tx::{Tx, View};
use crate::usage::QuotaFile;
use crate::volume::Volume;

pub use ondisk::quota::parts::{Limits, Record};

type UsageTable = BTreeMap<u32, Usage>;

/// Ids whose counts are corrected with one update.
const AT_ONCE: usize = 64;

/// For how long soft limits may be exceeded, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Graces {
    /// Those of space.
    pub bytes: u32,
    /// Those of inodes.
    pub inodes: u32,
}

/// The quota of a volume; see [`Volume::quota`].
#[derive(Clone, Copy)]
pub struct Quota<'v> {
    volume: &'v Volume,
}

impl Volume {
    /// Its quota: what users, groups and projects use and may use.
    #[must_use]
    pub fn quota(&self) -> Quota<'_> {
        Quota { volume: self }
    }
}

impl Quota<'_> {
    /// The kinds of ids whose usage is counted.
    #[must_use]
    pub fn kinds(self) -> Vec<QuotaKind> {
        let raw = self.volume.superblock();
        QuotaKind::ALL.into_iter().filter(|kind| quota_inode(&raw, *kind).is_some()).collect()
    }

    fn file(self, kind: QuotaKind) -> Result<InodeNumber> {
        quota_inode(&self.volume.superblock(), kind).ok_or_else(|| {
            Error::Unsupported(format!("the volume does not count what a {kind} uses; `plat quota --on {kind}` begins that"))
        })
    }

    fn read<T>(self, kind: QuotaKind, look: impl Fn(&QuotaFile<'_>) -> Result<T>) -> Result<T> {
        let number = self.file(kind)?;
        self.volume.steady(number, || look(&QuotaFile::open(self.volume.view(), kind, number)?))
    }

    /// All that the quota file of a kind says, by id.
    ///
    /// # Errors
    /// A kind that is not counted; a broken quota file; the device's failure.
    pub fn records(self, kind: QuotaKind) -> Result<BTreeMap<u32, Record>> {
        self.read(kind, |file| {
            let all = quota::records(kind, &file.contents()?);
            all.map_err(|problem| file.broken(problem))
        })
    }

    /// What is known of one id; it may be nothing.
    ///
    /// # Errors
    /// As [`Quota::records`].
    pub fn record(self, kind: QuotaKind, id: u32) -> Result<Record> {
        let found = self.read(kind, |file| file.record(id))?;
        Ok(found.unwrap_or(Record { id, ..Record::default() }))
    }

    /// Bytes that an id has reserved for what waits to be written back.
    #[must_use]
    pub fn reserved(self, kind: QuotaKind, id: u32) -> u64 {
        self.volume.session.ledgers.reserved((kind, id))
    }

    /// Whether limits count.
    #[must_use]
    pub fn is_enforced(self) -> bool {
        self.volume.session.ledgers.is_enforced()
    }

    /// Bytes that a file of an owner, a group and a project may still take by their limits; `None` without limits.
    ///
    /// # Errors
    /// A broken quota file; the device's failure.
    pub fn left(self, ids: [u32; 3]) -> Result<Option<u64>> {
        let (volume, ledgers) = (self.volume, &self.volume.session.ledgers);
        let mut left: Option<u64> = None;
        if !ledgers.is_enforced() {
            return Ok(left);
        }
        for whose in QuotaKind::ALL.into_iter().zip(ids) {
            let Some(file) = ledgers.file(whose.0) else { continue };
            let record = volume.steady(file, || volume.view().quota_record_of(ledgers, whose))?;
            let Some(Record { usage, limits, bytes_until, .. }) = record else { continue };
            let is_late = bytes_until != 0 && u64::try_from(volume.now().seconds).unwrap_or(0) >= bytes_until;
            let limit = if is_late { limits.soft_bytes } else { limits.hard_bytes };
            if limit > 0 {
                let more = limit.saturating_sub(usage.bytes.saturating_add(ledgers.reserved(whose)));
                left = Some(left.map_or(more, |left| left.min(more)));
            }
        }
        Ok(left)
    }

    /// For how long soft limits may be exceeded.
    ///
    /// # Errors
    /// As [`Quota::records`].
    pub fn graces(self, kind: QuotaKind) -> Result<Graces> {
        let header = self.read(kind, |file| file.header())?;
        Ok(Graces { bytes: header.bytes_grace, inodes: header.inodes_grace })
    }

    /// Says for how long soft limits may be exceeded.
    ///
    /// # Errors
    /// As [`Quota::records`]; a volume that is only read.
    pub fn set_graces(self, kind: QuotaKind, graces: Graces) -> Result<()> {
        let file = self.file(kind)?;
        change(self.volume, |tx| {
            tx.edit_header(kind, file, |header| {
                (header.bytes_grace, header.inodes_grace) = (graces.bytes, graces.inodes);
            })
        })
    }

    /// Sets what an id may use. The grace of a soft limit that is exceeded by then begins; that of one that is kept ends.
    ///
    /// # Errors
    /// As [`Quota::set_graces`]; no space for a record.
    pub fn set_limits(self, kind: QuotaKind, id: u32, limits: Limits) -> Result<()> {
        let file = self.file(kind)?;
        change(self.volume, |tx| tx.edit_record((kind, id), file, |record| record.limits = limits))
    }

    /// Sets when the graces of an id end, in seconds since 1970, where a soft limit is exceeded.
    ///
    /// # Errors
    /// As [`Quota::set_limits`].
    pub fn set_ends(self, kind: QuotaKind, id: u32, bytes: Option<u64>, inodes: Option<u64>) -> Result<()> {
        let file = self.file(kind)?;
        change(self.volume, |tx| {
            tx.edit_record((kind, id), file, |record| {
                record.bytes_until = bytes.unwrap_or(record.bytes_until);
                record.inodes_until = inodes.unwrap_or(record.inodes_until);
            })
        })
    }

    /// Counts what all inodes in use hold, and corrects the quota files; for how many ids that was needed. Limits stay.
    /// Nobody may change the volume meanwhile.
    ///
    /// # Errors
    /// A broken inode, bitmap or quota file; the device's failure.
    pub fn recount(self) -> Result<u64> {
        self.volume.sync()?;
        let tables = Count::of_all(self.volume.view(), &self.volume.superblock())?;
        let mut corrected = 0;
        for kind in self.kinds() {
            let Some(table) = tables.get(kind as usize) else { continue };
            let file = self.file(kind)?;
            let stated = self.records(kind)?;
            let used = |id: &u32| table.get(id).copied().unwrap_or_default();
            let wrong = stated.iter().filter(|(id, record)| record.usage != used(id)).map(|(id, _)| *id);
            let new = table.keys().filter(|id| !stated.contains_key(id)).copied();
            let ids: Vec<u32> = wrong.chain(new).collect();
            for some in ids.chunks(AT_ONCE) {
                change(self.volume, |tx| {
                    some.iter().try_for_each(|id| {
                        tx.edit_record((kind, *id), file, |record| record.usage = used(id))
                    })
                })?;
            }
            corrected += ids.len() as u64;
        }
        Ok(corrected)
    }

    /// Begins to count the usage of some kinds of ids: their files are made from what all inodes in use hold. A kind that
    /// is counted already stays as it is.
    ///
    /// # Errors
    /// Projects on a volume that has none; more ids than one transaction of the journal can hold; no space; a broken
    /// inode or bitmap. Then nothing has changed.
    pub fn switch_on(self, kinds: &[QuotaKind]) -> Result<()> {
        let volume = self.volume;
        if kinds.contains(&QuotaKind::Project) && !volume.format.has_ro_compat(RoCompat::PROJECT) {
            return Err(Error::Unsupported("the volume has no projects (feature `project`)".into()));
        }
        volume.sync()?;
        change(volume, |tx| {
            // The bitmaps must say of all inodes whether they are in use.
            if tx.space.has_work() {
                return tx.wait_for_commit();
            }
            let raw = volume.superblock();
            let missing: Vec<_> = kinds.iter().filter(|kind| quota_inode(&raw, **kind).is_none()).collect();
            let tables = Count::of_all(tx.view(), &raw)?;
            for kind in missing {
                let none = UsageTable::new();
                let table = tables.get(*kind as usize).unwrap_or(&none);
                tx.make_file(*kind, &quota::encode(*kind, table))?;
            }
            Ok(())
        })?;
        volume.sync()
    }

    /// Ends the counting of some kinds of ids: their files go, with all limits.
    ///
    /// # Errors
    /// A broken quota file; the device's failure. Then nothing has changed.
    pub fn switch_off(self, kinds: &[QuotaKind]) -> Result<()> {
        change(self.volume, |tx| {
            let raw = self.volume.superblock();
            for kind in kinds {
                if let Some(number) = quota_inode(&raw, *kind) {
                    tx.drop_file(*kind, number)?;
                }
            }
            Ok(())
        })?;
        self.volume.sync()
    }
}

impl Tx<'_> {
    /// Makes a quota file with these contents, and has the superblock name it.
    fn make_file(&mut self, kind: QuotaKind, contents: &[u8]) -> Result<()> {
        let number = match kind {
            QuotaKind::User => InodeNumber::constant(3),
            QuotaKind::Group => InodeNumber::constant(4),
            QuotaKind::Project => {
                let request = InodeRequest {
                    parent: InodeNumber::ROOT.index(),
                    is_directory: false,
                    top_level: false,
                    name_hash: 0,
                    sequential: true,
                };
                self.space_mut()?.allocate_inode(&request, FileType::Regular)?
            }
        };
        let mut node = Inode::blank(number, self.format.geometry.inode_size);
        node.raw_mut().i_mode.set(FileType::Regular.mode_bits() | 0o600);
        node.raw_mut().i_links_count.set(1);
        Times::all(self.context.now).store(&mut node);
        node.set_flags(InodeFlags::IMMUTABLE);
        self.map(&mut node).init();
        let len = self.format.geometry.block_size.bytes_usize();
        for (at, piece) in (0..).zip(contents.chunks(len)) {
            let block = self.map(&mut node).append_block(FileBlock(at))?;
            if let Some(to) = self.create(block, Role::Plain).get_mut(..piece.len()) {
                to.copy_from_slice(piece);
            }
        }
        node.set_size(contents.len() as u64);
        // From inside the update, which charges nothing to anyone for a file of the volume itself.
        self.store(&mut node)?;
        drop(self.charges.take());
        self.name_file(kind, Some(number));
        Ok(())
    }

    fn drop_file(&mut self, kind: QuotaKind, number: InodeNumber) -> Result<()> {
        let mut node = self.inode(number)?;
        // What is free with the next commit may then be anybody's.
        self.format.zone.give_up(number);
        if node.has_map() {
            self.map(&mut node).unmap(FileBlocks::ALL)?;
        }
        if number.get() < self.format.geometry.first_inode {
            self.store(&mut Inode::blank(number, self.format.geometry.inode_size))?;
        } else {
            self.free_inode(&node, FileType::Regular)?;
        }
        self.name_file(kind, None);
        Ok(())
    }

    fn name_file(&mut self, kind: QuotaKind, number: Option<InodeNumber>) {
        let session = self.session;
        self.on_commit(move || {
            session.edit_superblock(|raw| {
                let field = match kind {
                    QuotaKind::User => &mut raw.s_usr_quota_inum,
                    QuotaKind::Group => &mut raw.s_grp_quota_inum,
                    QuotaKind::Project => &mut raw.s_prj_quota_inum,
                };
                field.set(number.map_or(0, InodeNumber::get));
                let any = QuotaKind::ALL.into_iter().any(|kind| number_of(raw, kind) != 0);
                let mut features = raw.features();
                features.ro_compat.set(RoCompat::QUOTA, any);
                raw.set_features(features);
            });
            session.ledgers.set_file(kind, number);
        });
    }
}

/// Rewrites the quota files of a volume that is being loaded from the inodes in use, without limits; nothing happens on a
/// volume without the `quota` feature.
///
/// # Errors
/// A broken inode or bitmap, no space for a longer file, the device's failure.
pub fn rebuild(volume: &Volume) -> Result<()> {
    if !volume.format.has_ro_compat(RoCompat::QUOTA) {
        return Ok(());
    }
    // Bitmaps on disk say which inodes are in use.
    volume.sync()?;
    let superblock = volume.superblock();
    let tables = Count::of_all(volume.view(), &superblock)?;
    for (kind, table) in QuotaKind::ALL.into_iter().zip(&tables) {
        if let Some(number) = quota_inode(&superblock, kind) {
            store(volume, number, &quota::encode(kind, table))?;
        }
    }
    Ok(())
}

fn number_of(superblock: &RawSuperblock, kind: QuotaKind) -> u32 {
    match kind {
        QuotaKind::User => superblock.s_usr_quota_inum.get(),
        QuotaKind::Group => superblock.s_grp_quota_inum.get(),
        QuotaKind::Project => superblock.s_prj_quota_inum.get(),
    }
}

fn quota_inode(superblock: &RawSuperblock, kind: QuotaKind) -> Option<InodeNumber> {
    let has = superblock.features().ro_compat.contains(RoCompat::QUOTA);
    InodeNumber::new(number_of(superblock, kind)).filter(|_| has)
}

/// Usage by owner, group and project.
struct Count<'v> {
    view: View<'v>,
    tables: [UsageTable; 3],
}

impl<'v> Count<'v> {
    /// The root directory and all inodes that are not reserved count, but not the quota files and the orphan file.
    fn of_all(view: View<'v>, superblock: &RawSuperblock) -> Result<[UsageTable; 3]> {
        let mut count = Count { view, tables: Default::default() };
        let geometry = &view.format.geometry;
        let quota_files = QuotaKind::ALL.map(|kind| number_of(superblock, kind));
        let hidden =
            |number: u32| number == superblock.s_orphan_file_inum.get() || quota_files.contains(&number);
        for group in (0..geometry.groups).map(Group) {
            for number in view.space.inodes_in_use(view.blocks, group)? {
                let counts = number.get() >= geometry.first_inode && !hidden(number.get());
                if number == InodeNumber::ROOT || counts {
                    count.add(number)?;
                }
            }
        }
        Ok(count.tables)
    }

    fn add(&mut self, number: InodeNumber) -> Result<()> {
        let (view, geometry) = (self.view, &self.view.format.geometry);
        let inode = view.inode(number)?;
        // Values in inodes of their own count for those that refer to them, and are part of their blocks.
        let Some(holding) = Holding::of(&inode, geometry.block_size, geometry.inodes()) else { return Ok(()) };
        let inodes = 1 + view.xattrs(&inode).value_inodes()?;
        for (table, id) in self.tables.iter_mut().zip(holding.ids) {
            let usage = table.entry(id).or_default();
            usage.bytes = usage.bytes.saturating_add(holding.bytes);
            usage.inodes += inodes;
        }
        Ok(())
    }
}

fn store(volume: &Volume, number: InodeNumber, contents: &[u8]) -> Result<()> {
    change(volume, |tx| {
        let mut node = tx.inode(number)?;
        let hint = WriteHint { end: contents.len() as u64, growing: false };
        tx.contents(&mut node).write(&mut Ahead::default(), 0, contents, &hint)?;
        tx.store(&mut node)
    })
}
