//! Numbers and names taken from bytes one after the other.

use super::Malformed;

/// Bytes that are left to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_ne_bytes)
    }

    pub(super) fn skip(&mut self, count: usize) -> Result<(), Malformed> {
        self.0 = self.0.get(count..).ok_or(Malformed)?;
        Ok(())
    }

    /// The next `count` bytes.
    pub(super) fn bytes(&mut self, count: u32) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(count).map_err(|_| Malformed)?;
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The bytes up to a zero, which is taken too.
    pub(super) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        Ok(taken)
    }

    /// A name in a directory: neither empty nor with a slash in it.
    pub(super) fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let name = self.text()?;
        if name.is_empty() || name.contains(&b'/') { Err(Malformed) } else { Ok(name) }
    }
}
