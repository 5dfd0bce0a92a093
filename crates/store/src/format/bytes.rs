//! Little-endian numbers in bytes: a reader that never reads behind the end.

use super::Wrong;
use platfs_device::units::bounded;

/// Reads from the front.
pub(super) struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'b [u8], Wrong> {
        let (front, rest) = self.rest.split_at_checked(len).ok_or_else(|| {
            format!("ends {} bytes before the end of what it holds", len - self.rest.len().min(len))
        })?;
        self.rest = rest;
        Ok(front)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Wrong> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Wrong> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of things of at least `each` bytes that are still to come.
    pub(super) fn count(&mut self, each: usize) -> Result<usize, Wrong> {
        let count = self.u32()? as usize;
        if count.checked_mul(each).is_none_or(|bytes| bytes > self.rest.len()) {
            return Err(format!("counts {count} things in {} bytes", self.rest.len()));
        }
        Ok(count)
    }

    pub(super) fn text(&mut self, len: usize) -> Result<String, Wrong> {
        let bytes = self.take(len)?.to_vec();
        String::from_utf8(bytes).map_err(|_| "has a text that is not UTF-8".to_owned())
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), Wrong> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(format!("has {more} bytes behind its end")),
        }
    }
}

/// The magic, or what is wrong.
pub(super) fn magic(reader: &mut Reader<'_>, wanted: &[u8; 8]) -> Result<(), Wrong> {
    let found: [u8; 8] = reader.array()?;
    if found == *wanted {
        return Ok(());
    }
    Err(format!("begins with `{}`, not with `{}`", found.escape_ascii(), wanted.escape_ascii()))
}

/// A number of 32 bits of what is bounded by far less.
pub(super) fn narrow(number: usize) -> [u8; 4] {
    bounded::<u32>(number).to_le_bytes()
}
