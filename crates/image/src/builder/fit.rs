//! Choice of a format that holds the contents: an open block size is chosen so that the longest link, the
//! largest attributes, directory and file have a place. Where it is stated, what does not fit is refused with the path,
//! and the remedy is named.
//!
//! Estimates are on the safe side: a format that is taken holds the contents; one that is passed over might have.

use platfs::mkfs::{FeatureEdit, FsType, Options as FormatOptions, Plan};
use platfs::ondisk::block_map;
use platfs::ondisk::features::{FeatureBit, Features, Incompat};
use platfs::ondisk::units::BlockSize;
use platfs::{Error, Format, NameSizes};

use crate::source::{Catalogue, NodeKind};

/// The largest blocks that every Linux mounts.
const LARGE_BLOCK: u32 = 4096;
/// Bytes of an attribute block that are not attributes: its head, and the end of the list.
const ATTRIBUTE_HEAD: u64 = 36;
/// Bytes of an attribute beside name and value, and what both are rounded up by.
const ATTRIBUTE_ENTRY: u64 = 16 + 6;
/// Some volume on which a format is tried.
const TRIAL: u64 = 1 << 30;

/// The largest of each kind.
#[derive(Default)]
struct Needs {
    link: u64,
    attributes: u64,
    directories: Vec<NameSizes>,
    file: u64,
}

impl Needs {
    fn of(catalogue: &Catalogue) -> Self {
        let mut needs = Needs::default();
        needs.directory(catalogue, catalogue.root());
        for step in catalogue.walk().filter(|step| step.first) {
            let metadata = catalogue.metadata(step.node);
            match metadata.kind {
                NodeKind::Directory => needs.directory(catalogue, step.node),
                NodeKind::Symlink => needs.link = needs.link.max(metadata.size),
                NodeKind::File => needs.file = needs.file.max(metadata.size),
                _ => {}
            }
            let bytes = catalogue.xattrs(step.node).iter();
            let bytes = bytes.map(|xattr| (xattr.name.len() + xattr.value.len()) as u64 + ATTRIBUTE_ENTRY);
            needs.attributes = needs.attributes.max(bytes.sum());
        }
        needs
    }

    fn directory(&mut self, catalogue: &Catalogue, node: crate::source::NodeId) {
        // Others fit any index.
        const WORTH_COUNTING: usize = 10_000;
        let children = catalogue.children(node);
        if children.len() >= WORTH_COUNTING {
            let mut sizes = NameSizes::default();
            children.for_each(|(name, _)| sizes.add(name.len()));
            self.directories.push(sizes);
        }
    }

    fn attributes_fit(&self, block: u64) -> bool {
        self.attributes + ATTRIBUTE_HEAD <= block
    }

    fn directories_fit(&self, block_size: BlockSize, features: &Features) -> bool {
        self.directories.iter().all(|names| names.blocks_at_most(block_size, features).is_some())
    }

    /// Returns true if blocks of this size surely hold everything.
    fn fit(&self, block_size: BlockSize, features: &Features) -> bool {
        let block = u64::from(block_size.bytes());
        let mapped = match features.incompat.contains(Incompat::EXTENTS) {
            true => u64::from(u32::MAX),
            false => block_map::limit(block_size),
        };
        self.link < block
            && (features.incompat.contains(Incompat::EA_INODE) || self.attributes_fit(block))
            && self.directories_fit(block_size, features)
            && self.file <= mapped.saturating_mul(block)
    }
}

/// The format with all that the contents need and the user left open: larger blocks first, then (for ext4) values in
/// inodes of their own and indexes of one level more.
pub(super) fn fitted(catalogue: &Catalogue, format: FormatOptions) -> FormatOptions {
    let mut format = format;
    let needs = Needs::of(catalogue);
    let Ok(plan) = Plan::new(&format, TRIAL) else { return format };
    let features = plan.superblock().features();
    let stated = format.block_size.and_then(|bytes| BlockSize::from_bytes(u64::from(bytes)));
    let smallest =
        stated.or_else(|| BlockSize::from_bytes(u64::from(format.least_block_size.unwrap_or(1024))));
    let Some(smallest) = smallest else { return format };
    if needs.fit(smallest, &features) {
        return format;
    }
    if stated.is_none() {
        let least = format.least_block_size.unwrap_or(0).max(LARGE_BLOCK);
        format.least_block_size = Some(least);
    }
    let bytes = stated.map_or(u64::from(LARGE_BLOCK), |stated| u64::from(stated.bytes()));
    let Some(size) = BlockSize::from_bytes(bytes.max(u64::from(smallest.bytes()))) else { return format };
    if format.fs_type == FsType::Ext4 && !format.old_revision {
        let wanted = [
            (!needs.attributes_fit(u64::from(size.bytes())), Incompat::EA_INODE),
            (!needs.directories_fit(size, &features), Incompat::LARGEDIR),
        ];
        for (is_wanted, feature) in wanted {
            let bit = FeatureBit::Incompat(feature);
            let refused = format
                .features
                .iter()
                .any(|edit| *edit == FeatureEdit::Clear(bit) || *edit == FeatureEdit::None);
            if is_wanted && !refused {
                format.features.push(FeatureEdit::Set(bit));
            }
        }
    }
    format
}

/// Returns the option to ask for where a volume could not hold a file; with what goes before it.
pub(super) fn remedy(error: &Error, format: &Format) -> &'static str {
    let small = format.geometry.block_size.bytes() < LARGE_BLOCK;
    let has = |feature| format.features.incompat.contains(feature);
    match error {
        Error::DirectoryFull(_) if small => {
            "; larger blocks (-b 4096) hold more names, and so does -O large_dir"
        }
        Error::DirectoryFull(_) if !has(Incompat::LARGEDIR) => "; -O large_dir makes room for more names",
        Error::XattrsTooLarge(_) if small => "; larger blocks (-b 4096) hold more, and so does -O ea_inode",
        Error::XattrsTooLarge(_) if !has(Incompat::EA_INODE) => "; -O ea_inode makes room for them",
        Error::FileTooLarge(_) if !has(Incompat::EXTENTS) => {
            "; -t ext4 holds larger files, and so do larger blocks (-b 4096)"
        }
        Error::FileTooLarge(_) if small => "; larger blocks (-b 4096) hold larger files",
        Error::LinkTooLong(..) if small => "; larger blocks (-b 4096) hold longer ones",
        _ => "",
    }
}
