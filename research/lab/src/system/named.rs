//! Volumes by the names that people give their parts, on command lines and in files.

use platfs::mkfs::{FsType, parse_features};
use platfs::placement::{BlockPolicyKind, DirectoryPolicyKind};
use platfs::{DataMode, WriteOrder};

use super::Mounting;
use crate::drive::Drive;

/// A volume to be made, and how it is opened, in names.
pub(crate) struct Named<'n> {
    pub(crate) drive: &'n str,
    pub(crate) size_mib: u64,
    pub(crate) fs_type: &'n str,
    pub(crate) block_size: Option<u32>,
    /// With `bigalloc` then.
    pub(crate) cluster_size: Option<u64>,
    pub(crate) policy: &'n str,
    pub(crate) directories: &'n str,
    pub(crate) order: &'n str,
    pub(crate) delalloc: bool,
    pub(crate) seed: u64,
}

impl Named<'_> {
    /// Mount options that the names stand for.
    ///
    /// # Errors
    /// A name that nothing has; a size past all numbers.
    pub(crate) fn mounting(&self) -> Result<Mounting, String> {
        let size = self.size_mib.checked_mul(1 << 20);
        let size = size.ok_or_else(|| format!("{} MiB are too many", self.size_mib))?;
        let drive = Drive::named(self.drive)?;
        let (ordering, data) = order(self.order)?;
        let policy = BlockPolicyKind::named(self.policy)
            .ok_or_else(|| format!("no policy is called {}; `plat-lab list` names them", self.policy))?;
        let directories = DirectoryPolicyKind::named(self.directories).ok_or_else(|| {
            format!("no directory policy is called {}; `plat-lab list` names them", self.directories)
        })?;
        let delay = if self.delalloc { drive.waiting } else { 0 };
        let mut mounting = Mounting {
            policy,
            directories,
            ordering,
            data,
            delay,
            seed: self.seed,
            ..Mounting::new(drive, size, fs_type(self.fs_type)?)
        };
        mounting.format.block_size = self.block_size;
        if self.cluster_size.is_some() {
            mounting.format.features = parse_features("bigalloc")?;
            mounting.format.cluster_size = self.cluster_size;
        }
        Ok(mounting)
    }
}

fn fs_type(name: &str) -> Result<FsType, String> {
    match name {
        "ext2" => Ok(FsType::Ext2),
        "ext3" => Ok(FsType::Ext3),
        "ext4" => Ok(FsType::Ext4),
        other => Err(format!("{other} is none of ext2, ext3, ext4")),
    }
}

/// An order by the name that mount options give it.
///
/// # Errors
/// There is none of that name.
pub(crate) fn order(name: &str) -> Result<(WriteOrder, DataMode), String> {
    Ok(match name {
        "ordered" => (WriteOrder::Journal, DataMode::Ordered),
        "writeback" => (WriteOrder::Journal, DataMode::Writeback),
        "journal" => (WriteOrder::Journal, DataMode::Journal),
        "softdep" => (WriteOrder::Softdep, DataMode::Ordered),
        "normal" => (WriteOrder::Normal, DataMode::Ordered),
        "sync" => (WriteOrder::Sync, DataMode::Ordered),
        "async" => (WriteOrder::Async, DataMode::Ordered),
        other => {
            return Err(format!(
                "{other} is none of ordered, writeback, journal, softdep, normal, sync, async"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_is_called_and_too_large_sizes_are_reported() {
        let good = || Named {
            drive: "nvme",
            size_mib: 64,
            fs_type: "ext4",
            block_size: None,
            cluster_size: Some(65_536),
            policy: "lease",
            directories: "near",
            order: "softdep",
            delalloc: false,
            seed: 7,
        };
        let mounting = good().mounting().unwrap();
        assert_eq!((mounting.size, mounting.delay, mounting.seed), (64 << 20, 0, 7));
        assert_eq!(mounting.format.cluster_size, Some(65_536));
        for (wrong, named) in [
            (Named { size_mib: u64::MAX, ..good() }, "too many"),
            (Named { drive: "drum", ..good() }, "drum"),
            (Named { fs_type: "ext5", ..good() }, "ext5"),
            (Named { policy: "best", ..good() }, "best"),
            (Named { directories: "far", ..good() }, "far"),
            (Named { order: "fast", ..good() }, "fast"),
        ] {
            let error = wrong.mounting().unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
