//! Quota files as updates change them: usage charged and limits kept.
//!
//! Owns: finding, adding and changing the record of an id, in the update that changes what the id uses: a crash leaves both or
//! neither (I39). Excludes: what is charged (`charges`), and verbs about quota (`quota`).

mod growing;
mod limits;

use ondisk::corrupt::Place;
use ondisk::inode::Inode;
use ondisk::quota::parts::{self, Header, Record};
use ondisk::quota::{self, QUOTA_BLOCK, QuotaKind};
use ondisk::units::{Block, FileBlock, InodeNumber, saturated};

use crate::bytes;
use crate::cache::Role;
use crate::charges::{QuotaFiles, UsageDelta, Whose};
use crate::error::{Error, Result};
use crate::tx::{Tx, View};
pub(crate) use limits::LimitRequest;

/// Blocks of a quota file that are read at once, at most: enough for ten million ids, and bounded memory where a map leads
/// to the same blocks again and again.
const MOST: u32 = 1 << 20;

/// A quota file to read.
pub(crate) struct QuotaFile<'a> {
    view: View<'a>,
    kind: QuotaKind,
    inode: Inode,
}

/// A block of the volume and the place in it of a block of a quota file.
type Part = (Block, usize);

impl<'a> QuotaFile<'a> {
    /// The quota file of a kind, which is in an inode.
    ///
    /// # Errors
    /// A broken inode, or one without a map.
    pub(crate) fn open(view: View<'a>, kind: QuotaKind, number: InodeNumber) -> Result<Self> {
        let inode = view.inode(number)?;
        if !inode.has_map() || inode.links() == 0 {
            return Err(Error::corrupt(Place::Inode(number), "is named as a quota file and is none"));
        }
        Ok(QuotaFile { view, kind, inode })
    }

    pub(crate) fn broken(&self, problem: impl std::fmt::Display) -> Error {
        let text = format!("quota file: {problem}; `plat check` counts usage again");
        Error::corrupt(Place::Inode(self.inode.number()), text)
    }

    /// Where a block of the file is.
    fn part(&self, at: u32) -> Result<Part> {
        let size = self.view.format.geometry.block_size;
        let offset = u64::from(at) * QUOTA_BLOCK as u64;
        let logical =
            u32::try_from(offset >> size.log2()).map_err(|_| self.broken("a block without a place"))?;
        let inside = bytes::length(offset & (u64::from(size.bytes()) - 1))?;
        Ok((self.view.map(&self.inode).block_at(FileBlock(logical))?, inside))
    }

    /// The bytes of a block of the file.
    fn block(&self, at: u32) -> Result<Vec<u8>> {
        let (block, inside) = self.part(at)?;
        let bytes = self.view.blocks.read(block, Role::Plain)?;
        let part = bytes.get(inside..inside + QUOTA_BLOCK);
        part.map(<[u8]>::to_vec).ok_or_else(|| self.broken("a block is too short"))
    }

    /// The header.
    ///
    /// # Errors
    /// A file that is not of its kind, or whose sums are wrong; the device's failure.
    pub(crate) fn header(&self) -> Result<Header> {
        Header::parse(self.kind, &self.block(0)?, self.inode.size()).map_err(|problem| self.broken(problem))
    }

    /// The nodes on the way to an id, as far as there are any, and the leaf if there is one.
    fn path(&self, header: &Header, id: u32) -> Result<(Vec<u32>, Option<u32>)> {
        let mut nodes = vec![parts::ROOT_BLOCK];
        let mut here = parts::ROOT_BLOCK;
        for level in 0..parts::DEPTH {
            let below = parts::child(&self.block(here)?, parts::slot(id, level));
            if below == 0 {
                return Ok((nodes, None));
            }
            if below <= parts::ROOT_BLOCK || below >= header.blocks {
                return Err(self.broken(format!("block {here} leads to block {below} of {}", header.blocks)));
            }
            if level + 1 < parts::DEPTH {
                nodes.push(below);
            }
            here = below;
        }
        Ok((nodes, Some(here)))
    }

    /// Where the record of an id is; `None` if there is none.
    fn find(&self, id: u32) -> Result<Option<Part>> {
        let (_, Some(leaf)) = self.path(&self.header()?, id)? else { return Ok(None) };
        let Some(at) = parts::find(&self.block(leaf)?, id) else {
            return Err(self.broken(format!("the leaf for id {id} has no record of it")));
        };
        let (block, inside) = self.part(leaf)?;
        Ok(Some((block, inside + at)))
    }

    /// The record of an id; `None` if there is none.
    ///
    /// # Errors
    /// A broken quota file; the device's failure.
    pub(crate) fn record(&self, id: u32) -> Result<Option<Record>> {
        match self.find(id)? {
            Some(place) => self.view.record_at(place, id),
            None => Ok(None),
        }
    }

    /// The whole file.
    ///
    /// # Errors
    /// A broken map; a file that is too long; the device's failure.
    pub(crate) fn contents(&self) -> Result<Vec<u8>> {
        let end = self.header()?.blocks;
        if end > MOST {
            return Err(self.broken(format!("{end} blocks are too many")));
        }
        let mut all = Vec::new();
        for at in 0..end {
            all.extend(self.block(at)?);
        }
        Ok(all)
    }

    /// True if it begins as a file of its kind does, whatever else it says.
    pub(crate) fn is_of_kind(&self) -> bool {
        self.block(0).is_ok_and(|block| quota::is_of_kind(self.kind, &block))
    }

    /// The whole file by its size, whatever its header says. What its map does not lead to is taken for zeros.
    ///
    /// # Errors
    /// A file that is too long; the device's failure.
    pub(crate) fn all_blocks(&self) -> Result<Vec<u8>> {
        let end = saturated::<u32>(self.inode.size() / QUOTA_BLOCK as u64);
        if end > MOST {
            return Err(self.broken(format!("{end} blocks are too many")));
        }
        let mut all = Vec::new();
        for at in 0..end {
            match self.block(at) {
                Err(Error::Corrupt(_)) => all.resize(all.len() + QUOTA_BLOCK, 0),
                block => all.extend(block?),
            }
        }
        Ok(all)
    }
}

impl View<'_> {
    /// The block and place of the record of an id.
    fn place_of(self, whose: Whose, file: InodeNumber) -> Result<Option<Part>> {
        QuotaFile::open(self, whose.0, file)?.find(whose.1)
    }

    /// Quota record of an id; `None` if usage of its kind is not counted, or there is no record.
    ///
    /// # Errors
    /// A broken quota file; the device's failure.
    pub(crate) fn quota_record_of(self, quota_files: &QuotaFiles, whose: Whose) -> Result<Option<Record>> {
        let Some(file) = quota_files.file(whose.0) else { return Ok(None) };
        if let Some(place) = quota_files.record_location(whose)
            && let Some(record) = self.record_at(place, whose.1)?
        {
            return Ok(Some(record));
        }
        let Some(place) = self.place_of(whose, file)? else { return Ok(None) };
        self.record_at(place, whose.1)
    }

    /// The record at a place, if it is that of an id.
    fn record_at(self, (block, at): Part, id: u32) -> Result<Option<Record>> {
        let bytes = self.blocks.read(block, Role::Plain)?;
        Ok(parts::record(&bytes, at).filter(|record| record.id == id))
    }
}

impl Tx<'_> {
    /// Brings what this update changes of usage to the quota files.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]; no space for a record; a broken quota file.
    pub(crate) fn settle_charges(&mut self) -> Result<()> {
        for (whose, change) in self.charges.take() {
            if change != UsageDelta::default()
                && let Some(file) = self.session.quota_files.file(whose.0)
            {
                self.charge(whose, file, change)?;
            }
        }
        // Files that grew are charged to no one.
        drop(self.charges.take());
        Ok(())
    }

    /// The record of an id as this update leaves it, and where it is.
    fn quota_record(&mut self, whose: Whose, file: InodeNumber) -> Result<Option<(Part, Record)>> {
        let quota_files = &self.session.quota_files;
        if let Some(place) = quota_files.record_location(whose)
            && let Some(record) = self.view().record_at(place, whose.1)?
        {
            return Ok(Some((place, record)));
        }
        let Some(place) = self.view().place_of(whose, file)? else { return Ok(None) };
        // With the writer's lock, and not before it is true: a block that is another file's by then must not be met.
        self.on_commit(move || quota_files.remember(whose, place));
        Ok(self.view().record_at(place, whose.1)?.map(|record| (place, record)))
    }

    fn charge(&mut self, whose: Whose, file: InodeNumber, change: UsageDelta) -> Result<()> {
        let found = self.quota_record(whose, file)?;
        let mut record = found.map_or(Record { id: whose.1, ..Record::default() }, |(_, record)| record);
        if change.bytes > 0 || change.inodes > 0 {
            self.refuse_excess(whose, &record, change)?;
        }
        record.usage.bytes = record.usage.bytes.saturating_add_signed(change.bytes);
        record.usage.inodes = record.usage.inodes.saturating_add_signed(change.inodes);
        self.set_graces(whose.0, file, &mut record)?;
        self.store_record(whose, file, found.map(|(place, _)| place), record)
    }

    fn refuse_excess(&self, whose: Whose, record: &Record, change: UsageDelta) -> Result<()> {
        if !self.context.limited || self.charges.is_paid || !self.session.quota_files.is_enforced() {
            return Ok(());
        }
        let more = |change: i64| u64::try_from(change).unwrap_or(0);
        let reserved = self.session.quota_files.reserved(whose);
        let wanted = LimitRequest { bytes: more(change.bytes), inodes: more(change.inodes), reserved };
        wanted.refuse_excess(whose, record, self.context.now.seconds)
    }

    /// Begins the grace of a soft limit that is exceeded, and ends that of one that is kept.
    fn set_graces(&self, kind: QuotaKind, file: InodeNumber, record: &mut Record) -> Result<()> {
        let limits = record.limits;
        let over_bytes = limits.soft_bytes > 0 && record.usage.bytes > limits.soft_bytes;
        let over_inodes = limits.soft_inodes > 0 && record.usage.inodes > limits.soft_inodes;
        let (begins_bytes, begins_inodes) =
            (over_bytes && record.bytes_until == 0, over_inodes && record.inodes_until == 0);
        if begins_bytes || begins_inodes {
            let header = QuotaFile::open(self.view(), kind, file)?.header()?;
            let now = self.context.now.since_1970();
            if begins_bytes {
                record.bytes_until = now + u64::from(header.bytes_grace);
            }
            if begins_inodes {
                record.inodes_until = now + u64::from(header.inodes_grace);
            }
        }
        if !over_bytes {
            record.bytes_until = 0;
        }
        if !over_inodes {
            record.inodes_until = 0;
        }
        Ok(())
    }

    /// Changes what a quota file says of an id, which it may not know yet.
    ///
    /// # Errors
    /// No space for a record; a broken quota file.
    pub(crate) fn edit_record(
        &mut self,
        whose: Whose,
        file: InodeNumber,
        change: impl FnOnce(&mut Record),
    ) -> Result<()> {
        let found = self.quota_record(whose, file)?;
        let mut record = found.map_or(Record { id: whose.1, ..Record::default() }, |(_, record)| record);
        change(&mut record);
        self.set_graces(whose.0, file, &mut record)?;
        self.store_record(whose, file, found.map(|(place, _)| place), record)
    }

    /// Changes the header of a quota file.
    ///
    /// # Errors
    /// A broken quota file.
    pub(crate) fn edit_header(
        &mut self,
        kind: QuotaKind,
        file: InodeNumber,
        change: impl FnOnce(&mut Header),
    ) -> Result<()> {
        let open = QuotaFile::open(self.view(), kind, file)?;
        let (mut header, place) = (open.header()?, open.part(0)?);
        change(&mut header);
        header.store(self.quota_part(place)?);
        Ok(())
    }

    fn store_record(
        &mut self,
        whose: Whose,
        file: InodeNumber,
        place: Option<Part>,
        record: Record,
    ) -> Result<()> {
        let (block, at) = match place {
            Some(place) => place,
            None if record.is_empty() => return Ok(()),
            None => self.add_record(whose, file)?,
        };
        parts::put(self.edit(block, Role::Plain)?, at, &record);
        Ok(())
    }

    /// A block of a quota file, to change.
    fn quota_part(&mut self, (block, inside): Part) -> Result<&mut [u8]> {
        let bytes = self.edit(block, Role::Plain)?;
        bytes.get_mut(inside..inside + QUOTA_BLOCK).ok_or(Error::NoSpace)
    }
}
