//! Quota files as updates change them: usage charged and limits kept.
//!
//! Owns: finding, adding and changing the record of an id, in the update that changes what the id uses: a crash leaves both or
//! neither. Excludes: what is charged (`charges`), and verbs about quota (`quota`).

use ondisk::corrupt::Place;
use ondisk::inode::Inode;
use ondisk::quota::parts::{self, Header, Record};
use ondisk::quota::{QUOTA_BLOCK, QuotaKind};
use ondisk::units::{Block, FileBlock, InodeNumber};

use crate::cache::Role;
use crate::charges::{Change, Ledgers, Whose};
use crate::error::{Error, Result};
use crate::tx::{Tx, View};

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
        let logical = u32::try_from(offset >> size.log2()).map_err(|_| self.broken("a block without a place"))?;
        let inside = usize::try_from(offset & (u64::from(size.bytes()) - 1)).unwrap_or(0);
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
        let blocks = self.header()?.blocks;
        let mut all = Vec::new();
        for at in 0..blocks {
            all.extend(self.block(at)?);
        }
        Ok(all)
    }
}

impl View<'_> {
    /// The block and place of the record of an id.
    fn place_of(self, whose: Whose, file: InodeNumber) -> Result<Option<Part>> {
        QuotaFile::open(self, whose.0, file)?.find(whose.1)
    }

    /// What the quota files say of an id; `None` if usage of its kind is not counted, or nothing is known of it.
    ///
    /// # Errors
    /// A broken quota file; the device's failure.
    pub(crate) fn quota_record_of(self, ledgers: &Ledgers, whose: Whose) -> Result<Option<Record>> {
        let Some(file) = ledgers.file(whose.0) else { return Ok(None) };
        if let Some(place) = ledgers.place(whose)
            && let Some(record) = self.record_at(place, whose.1)?
        {
            return Ok(Some(record));
        }
        let Some(place) = self.place_of(whose, file)? else { return Ok(None) };
        ledgers.remember(whose, place);
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
            if change != Change::default()
                && let Some(file) = self.session.ledgers.file(whose.0)
            {
                self.charge(whose, file, change)?;
            }
        }
        // Files that grew are charged to no one.
        drop(self.charges.take());
        Ok(())
    }

    /// The record of an id as this update leaves it, and where it is.
    fn quota_record(&self, whose: Whose, file: InodeNumber) -> Result<Option<(Part, Record)>> {
        let view = self.view();
        if let Some(place) = self.session.ledgers.place(whose)
            && let Some(record) = view.record_at(place, whose.1)?
        {
            return Ok(Some((place, record)));
        }
        let Some(place) = view.place_of(whose, file)? else { return Ok(None) };
        self.session.ledgers.remember(whose, place);
        Ok(view.record_at(place, whose.1)?.map(|record| (place, record)))
    }

    fn charge(&mut self, whose: Whose, file: InodeNumber, change: Change) -> Result<()> {
        let found = self.quota_record(whose, file)?;
        let mut record = found.map_or(Record { id: whose.1, ..Record::default() }, |(_, record)| record);
        if change.bytes > 0 || change.inodes > 0 {
            self.refuse_excess(whose, &record, change)?;
        }
        record.usage.bytes = record.usage.bytes.saturating_add_signed(change.bytes);
        record.usage.inodes = record.usage.inodes.saturating_add_signed(change.inodes);
        self.set_graces(whose.0, file, &mut record)?;
        self.store_record(whose, file, (found.map(|(place, _)| place), record))
    }

    fn refuse_excess(&self, whose: Whose, record: &Record, change: Change) -> Result<()> {
        if !self.context.limited || self.charges.is_paid || !self.session.ledgers.is_enforced() {
            return Ok(());
        }
        let more = |change: i64| u64::try_from(change).unwrap_or(0);
        let reserved = self.session.ledgers.reserved(whose);
        let wanted = Wanted { bytes: more(change.bytes), inodes: more(change.inodes), reserved };
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
            let now = u64::try_from(self.context.now.seconds).unwrap_or(0);
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
        self.store_record(whose, file, (found.map(|(place, _)| place), record))
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
        (place, record): (Option<Part>, Record),
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

    /// Makes room for the record of an id that has none.
    fn add_record(&mut self, whose: Whose, file: InodeNumber) -> Result<Part> {
        let mut growing = Growing::open(self, whose.0, file)?;
        let (nodes, leaf) = growing.read()?.path(&growing.header, whose.1)?;
        if leaf.is_some() {
            return Err(growing.read()?.broken("an id comes twice"));
        }
        let leaf = growing.open_leaf()?;
        let mut below = leaf;
        let known = u32::try_from(nodes.len()).unwrap_or(parts::DEPTH);
        for level in (known..parts::DEPTH).rev() {
            let node = growing.take_block()?;
            parts::set_child(growing.edit(node)?, parts::slot(whose.1, level), below);
            below = node;
        }
        let last = nodes.last().copied().unwrap_or(parts::ROOT_BLOCK);
        parts::set_child(growing.edit(last)?, parts::slot(whose.1, known - 1), below);
        let at = growing.take_slot(leaf)?;
        growing.finish()?;
        let (block, inside) = QuotaFile::open(self.view(), whose.0, file)?.part(leaf)?;
        Ok((block, inside + at))
    }
}

/// What is asked of an id's limits.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// Bytes that the id has reserved already.
    pub(crate) reserved: u64,
}

impl Wanted {
    /// Refuses what exceeds a hard limit, or a soft one whose grace is over.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(crate) fn refuse_excess(&self, (kind, id): Whose, record: &Record, now: i64) -> Result<()> {
        let now = u64::try_from(now).unwrap_or(0);
        let limits = record.limits;
        let over = |wanted: u64, is: u64, limit: u64| wanted > 0 && limit > 0 && is.saturating_add(wanted) > limit;
        let bytes = record.usage.bytes.saturating_add(self.reserved);
        let refuse = |what: &'static str| Err(Error::QuotaExceeded { kind, id, what });
        let is_late = |until: u64| until != 0 && now >= until;
        if over(self.bytes, bytes, limits.hard_bytes) {
            return refuse("blocks");
        }
        if over(self.bytes, bytes, limits.soft_bytes) && is_late(record.bytes_until) {
            return refuse("blocks, its grace is over");
        }
        if over(self.inodes, record.usage.inodes, limits.hard_inodes) {
            return refuse("inodes");
        }
        if over(self.inodes, record.usage.inodes, limits.soft_inodes) && is_late(record.inodes_until) {
            return refuse("inodes, its grace is over");
        }
        Ok(())
    }
}

/// A quota file that gets a record more.
struct Growing<'t, 'v> {
    tx: &'t mut Tx<'v>,
    kind: QuotaKind,
    file: InodeNumber,
    header: Header,
}

impl<'t, 'v> Growing<'t, 'v> {
    fn open(tx: &'t mut Tx<'v>, kind: QuotaKind, file: InodeNumber) -> Result<Self> {
        let header = QuotaFile::open(tx.view(), kind, file)?.header()?;
        Ok(Growing { tx, kind, file, header })
    }

    fn read(&self) -> Result<QuotaFile<'_>> {
        QuotaFile::open(self.tx.view(), self.kind, self.file)
    }

    fn edit(&mut self, at: u32) -> Result<&mut [u8]> {
        let place = self.read()?.part(at)?;
        self.tx.quota_part(place)
    }

    /// Takes a block for the tree, filled with zeros: an unused one, or one behind the last.
    fn take_block(&mut self) -> Result<u32> {
        let at = self.header.free_block;
        if at != 0 {
            let (next, _) = parts::links(&self.read()?.block(at)?);
            if next >= self.header.blocks {
                return Err(self.read()?.broken(format!("unused block {at} leads to block {next}")));
            }
            self.header.free_block = next;
        } else {
            self.append()?;
        }
        let at = if at != 0 { at } else { self.header.blocks - 1 };
        self.edit(at)?.fill(0);
        Ok(at)
    }

    /// Makes the file longer by a block.
    fn append(&mut self) -> Result<()> {
        let at = self.header.blocks;
        let size = self.tx.format.geometry.block_size;
        let end = (u64::from(at) + 1) * QUOTA_BLOCK as u64;
        let mut inode = self.tx.inode(self.file)?;
        let has = self.tx.format.blocks_for(inode.size());
        if end > has << size.log2() {
            let logical = u32::try_from(has).map_err(|_| Error::NoSpace)?;
            let block = self.tx.map(&mut inode).append_block(FileBlock(logical))?;
            self.tx.create(block, Role::Plain);
        }
        if end > inode.size() {
            inode.set_size(end);
            self.tx.store(&mut inode)?;
        }
        self.header.blocks = at + 1;
        Ok(())
    }

    /// A leaf with room.
    fn open_leaf(&mut self) -> Result<u32> {
        if self.header.free_leaf != 0 {
            return Ok(self.header.free_leaf);
        }
        let leaf = self.take_block()?;
        self.header.free_leaf = leaf;
        Ok(leaf)
    }

    /// A place in a leaf, which leaves the list of those with room if it was the last.
    fn take_slot(&mut self, leaf: u32) -> Result<usize> {
        let bytes = self.read()?.block(leaf)?;
        let Some(at) = parts::room(&bytes) else {
            return Err(self.read()?.broken(format!("block {leaf} has no room, and is listed as one with room")));
        };
        let used = parts::used(&bytes) + 1;
        parts::set_used(self.edit(leaf)?, used);
        if parts::is_full(used) {
            let (next, before) = parts::links(&bytes);
            if next >= self.header.blocks || before >= self.header.blocks {
                return Err(self.read()?.broken(format!("block {leaf} is on a list that leads outside")));
            }
            if next != 0 {
                parts::set_links_before(self.edit(next)?, before);
            }
            if before != 0 {
                parts::set_links_next(self.edit(before)?, next);
            } else {
                self.header.free_leaf = next;
            }
            parts::set_links(self.edit(leaf)?, (0, 0));
        }
        Ok(at)
    }

    fn finish(mut self) -> Result<()> {
        let header = self.header;
        header.store(self.edit(0)?);
        // Readers of the tree look again.
        self.tx.note_changed(self.file);
        Ok(())
    }
}
