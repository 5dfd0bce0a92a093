//! Directories become shorter.

use ondisk::units::InodeNumber;

use super::changing::change;
use super::node::Node;
use crate::dir::Packed;
use crate::error::Result;
use crate::tx::Tx;

impl Node<'_> {
    /// Gives back the blocks of a directory that hold no names, and joins neighbouring leaves of its index whose names
    /// fit three quarters of one. Returns how many blocks it has less. Each step is an update of its own; listings that
    /// are under way go on. Long directories without an index lose empty blocks at their end only, since listings of
    /// them go by the byte.
    ///
    /// # Errors
    /// Not a directory, broken structures, the device's failure; steps that were done stay done.
    pub fn pack(&self) -> Result<u64> {
        let (mut from, mut freed) = (0, 0);
        loop {
            let (packed, blocks) = change(self.volume, |tx| tx.pack_step(self.number, from))?;
            freed += blocks;
            match packed {
                // Each step frees a block; what others add meanwhile is not waited for.
                Packed::Until(hash) if blocks > 0 => from = hash,
                _ => return Ok(freed),
            }
        }
    }
}

impl Tx<'_> {
    fn pack_step(&mut self, number: InodeNumber, from: u32) -> Result<(Packed, u64)> {
        let mut directory = self.directory(number)?;
        let before = directory.size();
        let packed = self.dir(&mut directory).pack(from)?;
        let less = before.saturating_sub(directory.size());
        if less > 0 {
            self.store(&mut directory)?;
        }
        Ok((packed, less >> self.format.geometry.block_size.log2()))
    }
}
