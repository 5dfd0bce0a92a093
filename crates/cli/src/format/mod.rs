//! The format options that `plat mkfs` and `plat build` share: names and meanings as in mke2fs.
//!
//! Here text becomes values; which values are possible together is for [`platfs::mkfs`] to say.

mod amount;
mod changes;
mod extended;
mod uuid;
pub mod words;

use clap::Args;
use platfs::mkfs::{FeatureEdit, FsType, JournalOptions, OnError, Options, Plan, Usage, parse_features};
use platfs::ondisk::features::{Compat, FeatureBit};

pub use crate::clock::{seconds as now, source_date_epoch};
use crate::console::Failure;
use amount::{amount, bytes, number};
pub use changes::ChangeArgs;
pub use uuid::UuidChoice;

/// Text behind the options in the help of commands that make volumes.
pub const ENVIRONMENT: &str = "Environment:\n  SOURCE_DATE_EPOCH  \
     Seconds since 1970 that are taken for the time of the change; no time of a file is later";

/// Properties of a new volume. Lists are separated by commas.
#[derive(Args, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Format options (as in mke2fs)")]
pub struct FormatArgs {
    /// ext2, ext3 or ext4.
    #[arg(short = 't', value_name = "TYPE", default_value = "ext4")]
    fs_type: String,
    /// Usage types: default, small, floppy, big, huge, news, largefile, largefile4, hurd; by size if not given.
    #[arg(short = 'T', value_name = "USAGE")]
    usage: Option<String>,
    /// Block size in bytes, 1024 to 65536; -SIZE lets the size decide, with SIZE as the least.
    #[arg(short = 'b', value_name = "SIZE", allow_hyphen_values = true)]
    block_size: Option<String>,
    /// Cluster size in bytes (with -O bigalloc).
    #[arg(short = 'C', value_name = "SIZE")]
    cluster_size: Option<String>,
    /// Size of an inode record in bytes.
    #[arg(short = 'I', value_name = "SIZE")]
    inode_size: Option<String>,
    /// Bytes for each inode.
    #[arg(short = 'i', value_name = "BYTES")]
    inode_ratio: Option<String>,
    /// Number of inodes.
    #[arg(short = 'N', value_name = "COUNT")]
    inodes: Option<String>,
    /// Features to set, or to clear with ^NAME; `none` clears all.
    #[arg(short = 'O', value_name = "FEATURES")]
    features: Vec<String>,
    /// Extended options: stride, stripe_width, resize, root_owner, hash_seed and others.
    #[arg(short = 'E', value_name = "OPTIONS")]
    extended: Vec<String>,
    /// Make a journal, as -t ext3 does.
    #[arg(short = 'j')]
    journal: bool,
    /// The journal: size=MIB, fast_commit_size=KIB, location=BLOCK.
    #[arg(short = 'J', value_name = "OPTIONS")]
    journal_options: Option<String>,
    /// Label, at most 16 bytes.
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<std::ffi::OsString>,
    /// A UUID, or random, time, clear.
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Share of the blocks reserved for the super-user, in percent.
    #[arg(short = 'm', value_name = "PERCENT", default_value = "5", allow_hyphen_values = true)]
    reserved: String,
    /// Blocks in a group (clusters with bigalloc).
    #[arg(short = 'g', value_name = "COUNT")]
    blocks_per_group: Option<String>,
    /// Groups whose tables stand together, a power of two.
    #[arg(short = 'G', value_name = "COUNT")]
    flex_groups: Option<String>,
    /// Directory that the volume was last mounted on.
    #[arg(short = 'M', value_name = "DIRECTORY")]
    last_mounted: Option<std::ffi::OsString>,
    /// On errors the kernel shall continue, remount-ro or panic.
    #[arg(short = 'e', value_name = "BEHAVIOUR", default_value = "continue")]
    on_error: String,
    /// Revision of the format, 0 or 1.
    #[arg(short = 'r', value_name = "REVISION", default_value = "1")]
    revision: String,
    /// Creating system: linux, hurd, masix, freebsd, lites or a number.
    #[arg(short = 'o', value_name = "SYSTEM")]
    creator: Option<String>,
}

/// The options as values.
#[derive(Clone, Debug)]
pub struct Format {
    /// For the library; UUID, hash seed and time are still zero.
    pub options: Options,
    /// The UUID, if one was asked for.
    pub uuid: Option<UuidChoice>,
    /// The seed of directory hashes, if one was asked for.
    pub hash_seed: Option<UuidChoice>,
    /// Byte of the target at which the volume begins.
    pub offset: u64,
    /// The storage reads as zeros, says the user.
    pub prezeroed: bool,
    /// Options of the root directory, for trees that have one of their own.
    pub root: Root,
    /// Trees are copied without their extended attributes.
    pub no_xattrs: bool,
}

/// Options of the root directory.
#[derive(Clone, Debug, Default)]
pub struct Root {
    /// User and group.
    pub owner: Option<(u32, u32)>,
    /// Permission bits.
    pub mode: Option<u16>,
    /// Label for SELinux, without the zero byte at its end.
    pub label: Option<Vec<u8>>,
}

fn usage<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Usage(text.into()))
}

fn one_of<T: Copy>(option: &str, text: &str, table: &[(&str, T)]) -> Result<T, Failure> {
    match table.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(*value),
        None => {
            let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
            usage(format!("{option} {text}: not one of {}", names.join(", ")))
        }
    }
}

const TYPES: [(&str, FsType); 3] = [("ext2", FsType::Ext2), ("ext3", FsType::Ext3), ("ext4", FsType::Ext4)];

const USAGES: [(&str, Usage); 9] = [
    ("default", Usage::Default),
    ("small", Usage::Small),
    ("floppy", Usage::Floppy),
    ("big", Usage::Big),
    ("huge", Usage::Huge),
    ("news", Usage::News),
    ("largefile", Usage::Largefile),
    ("largefile4", Usage::Largefile4),
    ("hurd", Usage::Hurd),
];

const ON_ERROR: [(&str, OnError); 3] =
    [("continue", OnError::Continue), ("remount-ro", OnError::RemountReadOnly), ("panic", OnError::Panic)];

/// `s_creator_os` by name.
const SYSTEMS: [(&str, u32); 5] = [("linux", 0), ("hurd", 1), ("masix", 2), ("freebsd", 3), ("lites", 4)];

impl FormatArgs {
    /// Returns true if anything is asked for that is not the default.
    #[must_use]
    pub fn is_stated(&self) -> bool {
        let text = String::from;
        let (fs_type, reserved, on_error, revision) = (text("ext4"), text("5"), text("continue"), text("1"));
        *self != FormatArgs { fs_type, reserved, on_error, revision, ..FormatArgs::default() }
    }

    /// The options as values.
    ///
    /// # Errors
    /// Text that is no value: a usage error that names option and text.
    pub fn parse(&self) -> Result<Format, Failure> {
        let mut options = Options::new(one_of("-t", &self.fs_type, &TYPES)?);
        for name in self.usage.iter().flat_map(|list| list.split(',')) {
            options.usage.push(one_of("-T", name, &USAGES)?);
        }
        self.sizes(&mut options)?;
        self.journal(&mut options)?;
        for list in &self.features {
            let edits =
                parse_features(list).map_err(|error| Failure::Usage(format!("-O {list}: {error}")))?;
            options.features.extend(edits);
        }
        self.texts(&mut options)?;
        let uuid = self.uuid.as_deref().map(|text| uuid::choice("-U", text)).transpose()?;
        let mut format = Format {
            options,
            uuid,
            hash_seed: None,
            offset: 0,
            prezeroed: false,
            root: Root::default(),
            no_xattrs: false,
        };
        for list in &self.extended {
            extended::apply(list, &mut format)?;
        }
        Ok(format)
    }

    /// Refuses what is wrong whatever the size of the volume.
    ///
    /// # Errors
    /// As [`FormatArgs::parse`], and values that no volume can have.
    pub fn check(&self) -> Result<(), Failure> {
        /// Small and large blocks, where they are left open.
        const SIZES: [u64; 2] = [64 << 20, 1 << 40];
        let options = self.parse()?.options;
        let mut complaint = None;
        for bytes in SIZES {
            match Plan::new(&options, bytes) {
                Err(error @ platfs::Error::BadOption { .. }) => complaint = Some(error),
                _ => return Ok(()),
            }
        }
        complaint.map_or(Ok(()), |error| Err(Failure::Usage(error.to_string())))
    }

    fn sizes(&self, options: &mut Options) -> Result<(), Failure> {
        if let Some(text) = &self.block_size {
            match text.strip_prefix('-') {
                Some(least) => options.least_block_size = Some(number("-b", least)?),
                None => options.block_size = Some(number("-b", text)?),
            }
        }
        options.cluster_size = self.cluster_size.as_deref().map(|text| bytes("-C", text)).transpose()?;
        options.inode_size = self.inode_size.as_deref().map(|text| number("-I", text)).transpose()?;
        options.inode_ratio = self.inode_ratio.as_deref().map(|text| bytes("-i", text)).transpose()?;
        options.inodes = self.inodes.as_deref().map(|text| bytes("-N", text)).transpose()?;
        options.blocks_per_group =
            self.blocks_per_group.as_deref().map(|text| number("-g", text)).transpose()?;
        options.flex_groups = self.flex_groups.as_deref().map(|text| number("-G", text)).transpose()?;
        options.reserved_percent = self
            .reserved
            .parse()
            .map_err(|_| Failure::Usage(format!("-m {}: not a percentage from 0 to 50", self.reserved)))?;
        Ok(())
    }

    fn journal(&self, options: &mut Options) -> Result<(), Failure> {
        let mut journal = JournalOptions::default();
        for part in self.journal_options.iter().flat_map(|list| list.split(',')) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                "size" => journal.size = Some(amount::scaled("-J size", value, 20)?),
                "fast_commit_size" => {
                    journal.fast_commit_size = Some(amount::scaled("-J fast_commit_size", value, 10)?);
                }
                "location" => journal.location = Some(amount("-J location", value)?),
                "device" => {
                    return usage("-J device: external journals can be made (-O journal_dev), not attached");
                }
                _ => {
                    return usage(format!(
                        "-J {part}: unknown; size, fast_commit_size and location are known"
                    ));
                }
            }
        }
        if self.journal || journal.size.is_some() {
            options.features.push(FeatureEdit::Set(FeatureBit::Compat(Compat::HAS_JOURNAL)));
        }
        options.journal = journal;
        Ok(())
    }

    fn texts(&self, options: &mut Options) -> Result<(), Failure> {
        use std::os::unix::ffi::OsStrExt;
        let text = |text: &Option<std::ffi::OsString>| {
            text.as_ref().map_or_else(Vec::new, |text| text.as_bytes().to_vec())
        };
        options.label = text(&self.label);
        options.last_mounted = text(&self.last_mounted);
        options.on_error = one_of("-e", &self.on_error, &ON_ERROR)?;
        options.old_revision = one_of("-r", &self.revision, &[("0", true), ("1", false)])?;
        if let Some(system) = &self.creator {
            options.creator_os = match system.parse() {
                Ok(number) => number,
                Err(_) => one_of("-o", &system.to_ascii_lowercase(), &SYSTEMS)?,
            };
        }
        Ok(())
    }

    /// A volume's size as mke2fs reads it: with K, M, G, T in powers of 1,024, with `s` in sectors of
    /// 512 bytes, else in KiB, or in blocks if the block size was given.
    ///
    /// # Errors
    /// A usage error.
    pub fn size(&self, text: &str) -> Result<u64, Failure> {
        let shift = match &self.block_size {
            Some(size) if !size.starts_with('-') => {
                let size: u32 = number("-b", size)?;
                size.max(1).trailing_zeros()
            }
            _ => 10,
        };
        amount::scaled("size", text, shift)
    }
}

impl Format {
    /// Fills in UUID, hash seed and time where the user left them open: random ones, and now (or
    /// `SOURCE_DATE_EPOCH`).
    ///
    /// # Errors
    /// No source of randomness, or a `SOURCE_DATE_EPOCH` that is no number.
    pub fn identify(&mut self) -> Result<(), Failure> {
        self.options.time = now()?;
        self.options.uuid = self.uuid.unwrap_or(UuidChoice::Random).bytes(self.options.time)?;
        self.options.hash_seed = self.hash_seed.unwrap_or(UuidChoice::Random).bytes(self.options.time)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
