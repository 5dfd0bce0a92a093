//! Quota files follow what files take: a map that grew or shrank is charged to its owner.
//!
//! Excludes limits, which stay.

use ondisk::corrupt::Place;
use ondisk::inode::Inode;
use ondisk::quota::{QuotaKind, decode, update};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, InodeNumber, bounded, saturated};

use super::carry::Carrier;
use super::survey::map_of;
use crate::error::{corrupt, refused};
use crate::{Error, Result};

/// Largest quota file that is read: that of a million owners.
const FILE_MAX: u64 = 256 << 20;

impl Carrier<'_> {
    /// Brings the changes in sectors of inodes into the quota files, which are at their new places.
    pub(super) fn charge(&self, raw: &RawSuperblock) -> Result<()> {
        let numbers = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
        for (kind, number) in QuotaKind::ALL.into_iter().zip(numbers) {
            let changes = self.charged.iter().filter(|(inode, _)| self.counts(raw, inode));
            let changes: Vec<(u32, i64)> =
                changes.map(|(inode, sectors)| (payer(kind, inode), sectors * 512)).collect();
            if let Some(number) = InodeNumber::new(number.get()).filter(|_| !changes.is_empty()) {
                self.charge_file(kind, number, &changes)?;
            }
        }
        Ok(())
    }

    /// True if the space of an inode is counted: files of the volume's own are not.
    fn counts(&self, raw: &RawSuperblock, inode: &Inode) -> bool {
        let number = inode.number();
        let own = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum, raw.s_orphan_file_inum];
        number == InodeNumber::ROOT
            || number.get() >= self.after.first_inode && own.iter().all(|own| own.get() != number.get())
    }

    fn charge_file(&self, kind: QuotaKind, number: InodeNumber, changes: &[(u32, i64)]) -> Result<()> {
        let wrong = |what: String| corrupt(Place::Inode(number), format!("{what}; `plat check` says more"));
        let old = self.numbers.iter().find(|(_, new)| **new == number).map_or(number.get(), |(old, _)| *old);
        let (_, inode) = self.before.record(InodeNumber::new(old).unwrap_or(number))?;
        if inode.size() > FILE_MAX {
            return refused(format!("the quota file in inode {number} has {} bytes", inode.size()));
        }
        let map = map_of(self.before, &self.before.geometry, &inode)?;
        let log2 = self.after.block_size.log2();
        let mut file = vec![0; bounded::<usize>(inode.size().next_multiple_of(1 << log2))];
        let mut places: Vec<(usize, Block)> = Vec::new();
        for run in map.runs.iter().filter(|run| !run.unwritten) {
            for at in 0..run.count {
                let start = saturated::<usize>((run.logical + at) << log2);
                places.push((start, self.moves.to(Block(run.start.0 + at))));
            }
        }
        for (start, place) in &places {
            // Blocks behind the end of the file hold no records.
            let part = file.get_mut(*start..start.saturating_add(1 << log2)).unwrap_or_default();
            self.device
                .read_at(self.after.byte_offset(*place), part)
                .map_err(Error::io("reading a quota file"))?;
        }
        file.truncate(saturated::<usize>(inode.size()));
        let mut usage = decode(kind, &file).map_err(wrong)?;
        for (id, bytes) in changes {
            let entry = usage.entry(*id).or_default();
            entry.bytes = entry.bytes.saturating_add_signed(*bytes);
        }
        let mut new = update(kind, &file, &usage);
        if new.len() > file.len() {
            return Err(wrong("the quota file lacks owners of files".to_owned()));
        }
        new.resize(file.len().next_multiple_of(1 << log2), 0);
        for (start, place) in &places {
            let Some(part) = new.get(*start..start.saturating_add(1 << log2)) else { continue };
            self.device
                .write_at(self.after.byte_offset(*place), part)
                .map_err(Error::io("writing a quota file"))?;
        }
        Ok(())
    }
}

/// The owner, group or project that pays for an inode.
fn payer(kind: QuotaKind, inode: &Inode) -> u32 {
    match kind {
        QuotaKind::User => inode.uid(),
        QuotaKind::Group => inode.gid(),
        QuotaKind::Project => inode.project(),
    }
}
