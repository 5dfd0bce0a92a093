//! Reads entries from an archive whose bytes can be read at any place.
//!
//! Only headers are read: data are skipped and described by their place ([`super::Run`]), so that a
//! gigabyte of archive costs one small read per entry. The reader judges encodings; what a path means,
//! and whether it may be used, is the caller's business.
//!
//! Trust: every size is compared with the archive's length before it is used, and with [`limits`] before
//! memory is taken. Each step moves at least one block forward, so that reading ends.

use super::acl::{self, Acl, AclError};
use super::entry::{Entry, EntryKind, Run, Xattr};
use super::error::{Problem, TarError, TarWarning};
use super::fields::{self, Owners, Pending, unsigned};
use super::header::{BLOCK, BLOCK_BYTES, Header, field, padded};
use super::limits;
use super::names::Names;
use super::pax::Overrides;
use super::sparse::{self, LineMap, SparseError};
use ondisk::units::bounded;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// An archive: bytes of known number, readable at any place.
pub trait Input {
    /// Its length in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset`; the range lies before [`Input::size`].
    ///
    /// # Errors
    /// Those of the device, and `UnexpectedEof` if the input has become shorter.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl Input for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl<T: Input + ?Sized> Input for &T {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, buf)
    }
}

/// Bytes that are read at once. Headers of small files share a window; larger windows copy data that are
/// skipped anyway.
const WINDOW: u64 = 4096;
/// Trailing bytes below this are the padding of tape records, not worth a warning.
const TRAILING: u64 = 1 << 20;
/// Warnings kept; an archive of oddities must not fill memory.
const WARNINGS: usize = 64;

/// Reads an archive entry by entry. After an error it must not be used again.
pub struct Reader<I> {
    input: I,
    size: u64,
    position: u64,
    window: Vec<u8>,
    window_offset: u64,
    global: Overrides,
    owners: Owners,
    warnings: Vec<TarWarning>,
    ended: bool,
    /// The tables of the archive, once a list names an owner that has no entry before it.
    tables: Option<Names>,
    /// Those of the tree that the archive goes over.
    below: Arc<Names>,
    /// Access control lists are wanted.
    lists: bool,
}

impl<'i> Reader<&'i dyn Input> {
    /// A reader for which access control lists are nothing: it looks for the tables that they need.
    pub(super) fn without_lists(input: &'i dyn Input) -> Self {
        Reader { lists: false, ..Reader::new(input) }
    }
}

impl<I: Input> Reader<I> {
    /// Begins at the archive's first byte.
    pub fn new(input: I) -> Self {
        Self {
            size: input.size(),
            input,
            position: 0,
            window: Vec::new(),
            window_offset: 0,
            global: Overrides::default(),
            owners: Owners::default(),
            warnings: Vec::new(),
            ended: false,
            tables: None,
            below: Arc::default(),
            lists: true,
        }
    }

    /// Takes numbers of owners that lists name, and the archive does not say, from the tables of the tree that the archive
    /// goes over.
    #[must_use]
    pub fn over(self, below: Arc<Names>) -> Self {
        Self { below, ..self }
    }

    /// Reads the next entry; `None` at the end.
    ///
    /// # Errors
    /// A [`TarError`] at the first thing that is wrong.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, TarError> {
        let mut pending = Pending { pax: self.global.clone(), ..Pending::default() };
        loop {
            let offset = self.position;
            let at = |problem| TarError { offset, path: None, problem: Box::new(problem) };
            let Some(block) = self.next_header().map_err(at)? else {
                return if pending.offset.is_none() { Ok(None) } else { Err(at(Problem::Dangling)) };
            };
            let header = Header(&block);
            if self.take_meta(header, offset, &mut pending).map_err(at)? {
                continue;
            }
            let path = fields::entry_path(header, &mut pending);
            let built = self.entry(header, offset, &path, pending);
            return match built {
                Ok(mut entry) => {
                    entry.path = path;
                    Ok(Some(entry))
                }
                Err(problem) => Err(TarError { offset, path: Some(path), problem: Box::new(problem) }),
            };
        }
    }

    /// The oddities met so far, at most 64.
    #[must_use]
    pub fn warnings(&self) -> &[TarWarning] {
        &self.warnings
    }

    /// The next header that is not part of the end; `None` after the end.
    fn next_header(&mut self) -> Result<Option<[u8; BLOCK]>, Problem> {
        if self.ended {
            return Ok(None);
        }
        let first = self.position;
        if first == 0 && self.size < BLOCK_BYTES {
            return Err(Problem::NotTar);
        }
        let Some(mut block) = self.next_block()? else {
            self.warn(TarWarning::NoEndMarker);
            self.ended = true;
            return Ok(None);
        };
        if Header(&block).is_zero() {
            match self.next_block()? {
                Some(next) if !Header(&next).is_zero() => {
                    self.warn(TarWarning::LoneZeroBlock { offset: first });
                    block = next;
                }
                _ => {
                    self.end();
                    return Ok(None);
                }
            }
        }
        match Header(&block).checksum_holds() {
            true => Ok(Some(block)),
            false if first == 0 => Err(Problem::NotTar),
            false => Err(Problem::Checksum),
        }
    }

    fn end(&mut self) {
        self.ended = true;
        let len = self.size.saturating_sub(self.position);
        if len >= TRAILING {
            self.warn(TarWarning::Trailing { offset: self.position, len });
        }
    }

    fn warn(&mut self, warning: TarWarning) {
        if self.warnings.len() < WARNINGS {
            self.warnings.push(warning);
        }
    }

    /// The block at the position, which moves on; `None` at the end of the input.
    fn next_block(&mut self) -> Result<Option<[u8; BLOCK]>, Problem> {
        if self.position >= self.size {
            return Ok(None);
        }
        let end = self.advance(BLOCK_BYTES)?;
        let window_end = self.window_offset + self.window.len() as u64;
        if end.start < self.window_offset || end.end > window_end {
            let len = WINDOW.min(self.size - end.start);
            self.window.resize(bounded::<usize>(len), 0);
            self.window_offset = end.start;
            self.input.read_exact_at(end.start, &mut self.window)?;
        }
        let skip = bounded::<usize>(end.start - self.window_offset);
        let rest = self.window.get(skip..).and_then(|rest| rest.first_chunk::<BLOCK>());
        Ok(rest.copied())
    }

    /// Moves the position over `len` bytes, which must be there.
    fn advance(&mut self, len: u64) -> Result<Range<u64>, Problem> {
        let start = self.position;
        let needed = start.saturating_add(len);
        if needed > self.size {
            return Err(Problem::Truncated { needed, present: self.size });
        }
        self.position = needed;
        Ok(start..needed)
    }

    /// Moves over `len` bytes of data and their padding; returns where the data lie. The padding of the
    /// last entry may be missing.
    fn advance_data(&mut self, len: u64) -> Result<Range<u64>, Problem> {
        let data = self.advance(len)?;
        self.position = padded(data.end).unwrap_or(u64::MAX);
        Ok(data)
    }

    /// Reads the data of an extended header.
    fn meta_data(&mut self, header: Header<'_>, what: &'static str, limit: u64) -> Result<Vec<u8>, Problem> {
        let len = unsigned(header, field::SIZE, "size")?;
        if len > limit {
            return Err(Problem::Long { what, len, limit });
        }
        let place = self.advance_data(len)?;
        let mut data = vec![0; bounded::<usize>(len)];
        self.input.read_exact_at(place.start, &mut data)?;
        Ok(data)
    }

    /// Takes in an entry that speaks about others; false if `header` is a file's own.
    fn take_meta(&mut self, header: Header<'_>, offset: u64, pending: &mut Pending) -> Result<bool, Problem> {
        let long_limit = limits::PATH_BYTES as u64;
        match header.type_flag() {
            b'x' | b'X' => {
                let data = self.meta_data(header, "a PAX header", limits::PAX_BYTES)?;
                pending.pax.apply(&data)?;
            }
            b'g' => {
                let data = self.meta_data(header, "a global PAX header", limits::PAX_BYTES)?;
                self.global.apply(&data)?;
                let (len, limit) = (self.global.bytes() as u64, limits::GLOBAL_BYTES as u64);
                if len > limit {
                    return Err(Problem::Long { what: "what global PAX headers say", len, limit });
                }
                pending.pax.apply(&data)?;
                // A global header may well be the last thing in an archive.
                return Ok(true);
            }
            b'L' => {
                let data = self.meta_data(header, "a GNU long name", long_limit)?;
                pending.long_name = Some(fields::until_nul(data));
            }
            b'K' => {
                let data = self.meta_data(header, "a GNU long link", long_limit)?;
                pending.long_target = Some(fields::until_nul(data));
            }
            // Volume label, Solaris ACL, old GNU rename list: nothing that is a file.
            type_flag @ (b'V' | b'A' | b'N') => {
                let len = unsigned(header, field::SIZE, "size")?;
                self.advance_data(len)?;
                if type_flag != b'V' {
                    self.warn(TarWarning::Skipped { offset, type_flag });
                }
                return Ok(true);
            }
            _ => return Ok(false),
        }
        pending.offset.get_or_insert(offset);
        Ok(true)
    }

    fn entry(
        &mut self,
        header: Header<'_>,
        at: u64,
        path: &[u8],
        mut pending: Pending,
    ) -> Result<Entry, Problem> {
        let kind = fields::kind_of(header.type_flag(), path)?;
        self.owners.note(header);
        fields::check_name(path, "the path", limits::PATH_BYTES)?;
        let target = fields::entry_target(header, kind, &mut pending)?;
        let has_data = kind == EntryKind::File || matches!(header.type_flag(), b'D' | 0 | b'0' | b'7');
        let (size, runs) = if has_data { self.data(header, &mut pending.pax)? } else { (0, Vec::new()) };
        let pax = pending.pax;
        let mode = bounded::<u16>(fields::unsigned_or_zero(header, field::MODE, "mode")? & 0o7777);
        let mut entry = Entry {
            offset: pending.offset.unwrap_or(at),
            path: Vec::new(),
            kind,
            target,
            mode,
            uid: fields::owner(pax.uid, header, field::UID, "uid")?,
            gid: fields::owner(pax.gid, header, field::GID, "gid")?,
            device: fields::device(&pax, header, kind)?,
            times: fields::times(&pax, header)?,
            size: if kind == EntryKind::File { size } else { 0 },
            xattrs: pax.xattrs,
            runs: if kind == EntryKind::File { runs } else { Vec::new() },
        };
        self.add_acl(&mut entry, acl::ACCESS, pax.acl_access.as_deref())?;
        self.add_acl(&mut entry, acl::DEFAULT, pax.acl_default.as_deref())?;
        normalise_acls(&mut entry)?;
        Ok(entry)
    }

    /// Moves over an entry's data. Returns the file's length and the runs of its data.
    fn data(&mut self, header: Header<'_>, pax: &mut Overrides) -> Result<(u64, Vec<Run>), Problem> {
        let in_header = unsigned(header, field::SIZE, "size");
        let stored = pax.size.map_or(in_header, Ok)?;
        if header.type_flag() == b'S' {
            return self.old_gnu_sparse(header, pax, stored);
        }
        let record = std::mem::take(&mut pax.sparse);
        let Some(size) = record.real_size else {
            let place = self.advance_data(stored)?;
            let run = Run { file_offset: 0, len: stored, archive_offset: place.start };
            return Ok((stored, if stored == 0 { Vec::new() } else { vec![run] }));
        };
        if record.major == Some(1) {
            return self.lined_sparse(size, stored);
        }
        let place = self.advance_data(stored)?;
        Ok((size, sparse::runs(&record.map, size, place.start, stored)?))
    }

    fn old_gnu_sparse(
        &mut self,
        header: Header<'_>,
        pax: &Overrides,
        stored: u64,
    ) -> Result<(u64, Vec<Run>), Problem> {
        let in_header = unsigned(header, field::GNU_REAL_SIZE, "realsize");
        let size = pax.sparse.real_size.map_or(in_header, Ok)?;
        let mut map = Vec::new();
        sparse::old_gnu_pairs(header, field::GNU_SPARSE, &mut map)?;
        let mut continues = sparse::old_gnu_continues(header);
        while continues {
            let short = Problem::Truncated { needed: self.position.saturating_add(1), present: self.size };
            let block = self.next_block()?.ok_or(short)?;
            sparse::old_gnu_pairs(Header(&block), field::EXTENSION_SPARSE, &mut map)?;
            continues = block[field::EXTENSION_EXTENDED] != 0;
        }
        let place = self.advance_data(stored)?;
        Ok((size, sparse::runs(&map, size, place.start, stored)?))
    }

    /// Version 1.0: the map's blocks are counted in `stored`.
    fn lined_sparse(&mut self, size: u64, stored: u64) -> Result<(u64, Vec<Run>), Problem> {
        let mut lines = LineMap::default();
        let mut left = stored;
        loop {
            left = left.checked_sub(BLOCK_BYTES).ok_or(SparseError::Long)?;
            let short = Problem::Truncated { needed: self.position.saturating_add(1), present: self.size };
            let block = self.next_block()?.ok_or(short)?;
            if lines.feed(&block)? {
                break;
            }
        }
        let place = self.advance_data(left)?;
        Ok((size, sparse::runs(&lines.into_map(), size, place.start, left)?))
    }

    /// Turns an ACL's text into an attribute, unless the attribute itself was recorded.
    fn add_acl(&mut self, entry: &mut Entry, name: &[u8], text: Option<&[u8]>) -> Result<(), Problem> {
        let is_new = |_: &&[u8]| self.lists && !entry.xattrs.iter().any(|x| *x.name == *name);
        let Some(text) = text.filter(is_new) else { return Ok(()) };
        let acl = match Acl::parse_text(text, &|name, group| self.owners.number(name, group)) {
            // GNU tar writes names, whatever it is told; those of groups without a file of theirs are in the tables.
            Err(AclError::Name(_)) => {
                let tables = self.tables.get_or_insert_with(|| Names::find(&self.input));
                let (owners, below) = (&self.owners, &self.below);
                let number = |name: &[u8], group| {
                    let own = owners.number(name, group).or_else(|| tables.number(name, group));
                    own.or_else(|| below.number(name, group))
                };
                Acl::parse_text(text, &number)?
            }
            parsed => parsed?,
        };
        entry.xattrs.push(Xattr { name: name.into(), value: acl.encode().into() });
        Ok(())
    }
}

/// Brings ACLs into the shape that the kernel would store: an access ACL sets the permission bits and
/// vanishes if it says no more than they do; default ACLs belong to directories, none to symbolic links.
fn normalise_acls(entry: &mut Entry) -> Result<(), Problem> {
    if !entry.xattrs.iter().any(|x| x.name.starts_with(b"system.posix_acl_")) {
        return Ok(());
    }
    let (kind, mut mode) = (entry.kind, entry.mode);
    let mut kept = Vec::with_capacity(entry.xattrs.len());
    for mut xattr in std::mem::take(&mut entry.xattrs) {
        let keep = match &*xattr.name {
            acl::ACCESS if kind == EntryKind::Symlink => false,
            acl::ACCESS => {
                let acl = Acl::decode(&xattr.value)?;
                mode = mode & !0o777 | acl.permissions();
                xattr.value = acl.encode().into();
                !acl.is_minimal()
            }
            acl::DEFAULT if kind != EntryKind::Directory => false,
            acl::DEFAULT => {
                xattr.value = Acl::decode(&xattr.value)?.encode().into();
                true
            }
            _ => true,
        };
        if keep {
            kept.push(xattr);
        }
    }
    entry.mode = mode;
    entry.xattrs = kept;
    Ok(())
}

#[cfg(test)]
mod tests;
