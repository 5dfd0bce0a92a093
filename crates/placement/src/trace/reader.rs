//! Decoding of traces: one record at a time, from untrusted bytes.

use super::{Ask, Goal, MAGIC, Name, Record, VERSION};
use crate::layout::Layout;
use crate::request::{Contradiction, Kind};
use std::io::Read;

/// Reason for which the reading of a trace ends.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It does not begin as a trace does.
    #[error("this is no trace: it does not begin with PLATTRC")]
    Magic,
    /// Another version of the format.
    #[error("the trace has version {0} of the format, this program reads versions 2 and {VERSION}")]
    Version(u64),
    /// The geometry is impossible.
    #[error("the trace's geometry: {0}")]
    Layout(Contradiction),
    /// The bytes end inside a record.
    #[error("the trace ends inside a record, at byte {0}")]
    Short(u64),
    /// A field holds what it can't.
    #[error("byte {at} of the trace: {what}")]
    Field {
        /// Where.
        at: u64,
        /// Broken rule.
        what: &'static str,
    },
    /// The source failed.
    #[error(transparent)]
    Source(#[from] std::io::Error),
}

/// Layout that traces of version 2 leave out: their clusters are blocks of 4 KiB.
const OLD: Layout = Layout {
    clusters: 0,
    clusters_per_group: 0,
    groups: 0,
    inodes_per_group: 0,
    groups_per_flex: 0,
    block_bytes: 4_096,
    blocks_per_cluster: 1,
};

/// Reads a trace.
pub struct Reader<R> {
    source: R,
    at: u64,
    layout: Layout,
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// [`TraceError`]; nothing but the head was read.
    pub fn new(mut source: R) -> Result<Self, TraceError> {
        let mut magic = [0; MAGIC.len()];
        source.read_exact(&mut magic).map_err(|_| TraceError::Magic)?;
        if magic != MAGIC {
            return Err(TraceError::Magic);
        }
        let mut reader = Reader { source, at: MAGIC.len() as u64, layout: OLD };
        let version = reader.number()?;
        if !(2..=VERSION).contains(&version) {
            return Err(TraceError::Version(version));
        }
        reader.layout = Layout {
            clusters: reader.number()?,
            clusters_per_group: reader.short()?,
            groups: reader.short()?,
            inodes_per_group: reader.short()?,
            groups_per_flex: reader.short()?,
            ..OLD
        };
        if version > 2 {
            reader.layout.block_bytes = reader.short()?;
            reader.layout.blocks_per_cluster = reader.short()?;
        }
        reader.layout.check().map_err(TraceError::Layout)?;
        Ok(reader)
    }

    /// Geometry of the volume the trace was recorded on.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The next byte; `None` at the end.
    fn byte(&mut self) -> Result<Option<u8>, TraceError> {
        let mut byte = [0];
        loop {
            match self.source.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => {
                    self.at += 1;
                    return Ok(byte.first().copied());
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TraceError::Source(error)),
            }
        }
    }

    fn wrong<T>(&self, what: &'static str) -> Result<T, TraceError> {
        Err(TraceError::Field { at: self.at, what })
    }

    fn number(&mut self) -> Result<u64, TraceError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?.ok_or(TraceError::Short(self.at))?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 {
                    self.wrong("a number with empty groups")
                } else {
                    Ok(value)
                };
            }
        }
        self.wrong("a number of more than 64 bits")
    }

    fn short(&mut self) -> Result<u32, TraceError> {
        let value = self.number()?;
        u32::try_from(value).or_else(|_| self.wrong("a number of more than 32 bits"))
    }

    fn name(&mut self) -> Result<Name, TraceError> {
        let (tag, key) = (self.number()?, self.number()?);
        match tag {
            0 => Ok(Name::File(key)),
            1 => Ok(Name::Metadata(key)),
            2 => Ok(Name::Grant(key)),
            _ => self.wrong("an unknown kind of name"),
        }
    }

    fn ask(&mut self) -> Result<Ask, TraceError> {
        let flags = self.number()?;
        if flags >> 6 != 0 {
            return self.wrong("unknown flags of a request");
        }
        let flag = |bit: u32| flags >> bit & 1 != 0;
        let (name, at) = (self.name()?, self.number()?);
        let goal =
            if flag(5) { Goal::Behind(self.name()?, self.number()?) } else { Goal::At(self.number()?) };
        let ask = Ask {
            name,
            at,
            goal,
            min: self.short()?,
            want: self.short()?,
            kind: if flag(0) { Kind::Metadata } else { Kind::Data },
            stream: flag(1),
            extends: flag(2),
            growing: flag(3),
            promised: flag(4),
            owner: self.number()?,
            offset: self.number()?,
            size: self.number()?,
            directory: self.number()?,
        };
        if ask.at.checked_add(u64::from(ask.want)).is_none()
            || ask.offset.checked_add(u64::from(ask.want)).is_none()
        {
            return self.wrong("a place in a file past 2^64");
        }
        Ok(ask)
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// [`TraceError`]; there is no use in reading on.
    pub fn record(&mut self) -> Result<Option<Record>, TraceError> {
        let Some(tag) = self.byte()? else { return Ok(None) };
        Ok(Some(match tag {
            1 => Record::Group { group: self.short()?, free: self.short()? },
            2 => Record::Allocate(self.ask()?),
            3 => Record::Refused(self.ask()?),
            4 => {
                let (name, at, count) = (self.name()?, self.number()?, self.number()?);
                if at.checked_add(count).is_none() {
                    return self.wrong("a place in a file past 2^64");
                }
                Record::Free { name, at, count }
            }
            5 => Record::Close(self.number()?),
            6 => Record::Truncate(self.number()?),
            7 => Record::Promise(self.number()?),
            8 => Record::EndPromise(self.number()?),
            9 => Record::Settle,
            _ => return self.wrong("an unknown kind of record"),
        }))
    }
}
