//! A device as it would be after some changes, without making them: they are kept in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use ondisk::invariant;
use ondisk::journal::log::unescape;
use ondisk::units::{BlockSize, bounded, saturated};

use super::{Device, Protection, check_range};

/// Replacement of a block.
#[derive(Clone)]
enum Override {
    /// The block at another place of the device below.
    Copy {
        /// Where it begins, in bytes.
        offset: u64,
        /// It is to begin with the magic of the journal, which was taken out of it.
        escaped: bool,
    },
    /// These bytes.
    Bytes(Box<[u8]>),
}

/// Changes laid over a device that stays as it is.
///
/// A block that stands in for another takes a few words of memory, one that is written its size. Flushing
/// promises nothing.
pub struct Overlay {
    base: Arc<dyn Device>,
    block_size: BlockSize,
    changed: RwLock<BTreeMap<u64, Override>>,
    most: u64,
}

impl Overlay {
    /// A device without changes as yet, of blocks of this size.
    #[must_use]
    pub fn new(base: Arc<dyn Device>, block_size: BlockSize) -> Self {
        Overlay { base, block_size, changed: RwLock::default(), most: u64::MAX }
    }

    /// Bounds the bytes of changed blocks: writes beyond fail.
    #[must_use]
    pub fn bounded(mut self, bytes: u64) -> Self {
        self.most = bytes >> self.block_size.log2();
        self
    }

    /// The blocks that were written, whole.
    #[must_use]
    pub fn written(&self) -> BTreeMap<u64, Box<[u8]>> {
        let changed = self.changed.read().unwrap_or_else(PoisonError::into_inner);
        let written = changed.iter().filter_map(|(block, instead)| match instead {
            Override::Bytes(bytes) => Some((*block, bytes.clone())),
            Override::Copy { .. } => None,
        });
        written.collect()
    }

    /// Has block `block` read as the block that begins at byte `offset` of the device below, maybe with
    /// the magic of the journal put back at its beginning.
    pub fn redirect(&self, block: u64, offset: u64, escaped: bool) {
        let mut changed = self.changed.write().unwrap_or_else(PoisonError::into_inner);
        changed.insert(block, Override::Copy { offset, escaped });
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Blocks that differ from those of the device below, or could.
    #[must_use]
    pub fn changed_blocks(&self) -> usize {
        self.changed.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn whole(&self, instead: &Override) -> io::Result<Box<[u8]>> {
        match instead {
            Override::Bytes(bytes) => Ok(bytes.clone()),
            Override::Copy { offset, escaped } => {
                let mut bytes = vec![0; self.block_size.bytes_usize()];
                self.base.read_at(*offset, &mut bytes)?;
                if *escaped {
                    unescape(&mut bytes);
                }
                Ok(bytes.into_boxed_slice())
            }
        }
    }

    /// Cuts a range at the bounds of blocks: each piece's block, place in it and length.
    fn pieces(&self, mut offset: u64, mut len: usize) -> impl Iterator<Item = (u64, usize, usize)> + use<> {
        let size = self.block_size;
        std::iter::from_fn(move || {
            let inside = bounded::<usize>(offset & u64::from(size.bytes() - 1));
            let step = len.min(size.bytes_usize() - inside);
            let piece = (step > 0).then_some((offset >> size.log2(), inside, step));
            offset += step as u64;
            len -= step;
            piece
        })
    }
}

impl Device for Overlay {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(self.size(), offset, buffer.len(), io::ErrorKind::UnexpectedEof)?;
        let changed = self.changed.read().unwrap_or_else(PoisonError::into_inner);
        let (log2, end) = (self.block_size.log2(), offset + buffer.len() as u64);
        if changed.range(offset >> log2..end.div_ceil(1 << log2)).next().is_none() {
            return self.base.read_at(offset, buffer);
        }
        let mut rest = buffer;
        for (block, inside, len) in self.pieces(offset, rest.len()) {
            let (piece, behind) = rest.split_at_mut(len);
            match changed.get(&block) {
                None => self.base.read_at((block << log2) + inside as u64, piece)?,
                Some(instead) => {
                    let bytes = self.whole(instead)?;
                    piece.copy_from_slice(invariant!(
                        bytes.get(inside..inside + len),
                        "a piece lies in its block"
                    ));
                }
            }
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.size(), offset, data.len(), io::ErrorKind::WriteZero)?;
        let mut changed = self.changed.write().unwrap_or_else(PoisonError::into_inner);
        let mut rest = data;
        for (block, inside, len) in self.pieces(offset, data.len()) {
            let (piece, behind) = rest.split_at(len);
            let mut bytes = match changed.get(&block) {
                Some(instead) => self.whole(instead)?,
                None => {
                    let start = block << self.block_size.log2();
                    let room = saturated::<usize>(self.size() - start);
                    let mut bytes = vec![0; self.block_size.bytes_usize()];
                    let end = room.min(bytes.len());
                    self.base.read_at(start, bytes.get_mut(..end).unwrap_or_default())?;
                    bytes.into_boxed_slice()
                }
            };
            let to = bytes.get_mut(inside..inside + len);
            invariant!(to, "a piece lies in its block").copy_from_slice(piece);
            if changed.len() as u64 >= self.most && !changed.contains_key(&block) {
                return Err(io::Error::new(
                    io::ErrorKind::OutOfMemory,
                    "too much is changed to be kept in memory",
                ));
            }
            changed.insert(block, Override::Bytes(bytes));
            rest = behind;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Changes stay in this process.
    fn protection(&self) -> Protection {
        Protection::Alone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn overlay() -> (Arc<MemoryDevice>, Overlay) {
        let base = Arc::new(MemoryDevice::new(10 * 1024 + 100));
        for block in 0..10_u8 {
            base.write_at(u64::from(block) * 1024, &[block; 1024]).unwrap();
        }
        (base.clone(), Overlay::new(base, BlockSize::from_log2(10).unwrap()))
    }

    #[test]
    fn changes_are_seen_and_the_device_below_is_not_changed() {
        let (base, overlay) = overlay();
        overlay.redirect(3, 7 * 1024, true);
        overlay.write_at(4 * 1024 + 1000, &[0xAA; 50]).unwrap();
        overlay.write_at(10 * 1024 + 90, &[0xBB; 10]).unwrap();
        let mut bytes = vec![0; 3 * 1024];
        overlay.read_at(2 * 1024 + 512, &mut bytes).unwrap();
        assert_eq!(bytes[..512], [2; 512]);
        assert_eq!(bytes[512..518], [0xC0, 0x3B, 0x39, 0x98, 7, 7]);
        assert_eq!((bytes[1535], bytes[1536 + 999], bytes[1536 + 1000]), (7, 4, 0xAA));
        let mut end = [0; 100];
        overlay.read_at(10 * 1024, &mut end).unwrap();
        assert_eq!((end[89], end[90]), (0, 0xBB));
        assert_eq!(overlay.changed_blocks(), 4);
        base.read_at(3 * 1024, &mut end).unwrap();
        assert_eq!(end, [3; 100]);
        assert!(overlay.write_at(10 * 1024 + 99, &[0; 2]).is_err());
    }

    #[test]
    fn a_copy_can_be_written_over() {
        let (_, overlay) = overlay();
        overlay.redirect(3, 7 * 1024, false);
        overlay.write_at(3 * 1024 + 1, &[9]).unwrap();
        let mut bytes = [0; 3];
        overlay.read_at(3 * 1024, &mut bytes).unwrap();
        assert_eq!(bytes, [7, 9, 7]);
    }
}
