//! The three feature words, their names, and whether this code may read or write a volume (I13).
//!
//! Source: the ext4 data structure documentation of Linux ("Super Block"); names as mke2fs and
//! dumpe2fs print them.

use bitflags::bitflags;

bitflags! {
    /// Features an older implementation may ignore altogether.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Compat: u32 {
        /// Directory preallocation.
        const DIR_PREALLOC = 0x1;
        /// Imagic inodes (AFS).
        const IMAGIC_INODES = 0x2;
        /// A journal exists.
        const HAS_JOURNAL = 0x4;
        /// Extended attributes.
        const EXT_ATTR = 0x8;
        /// The resize inode reserves descriptor blocks.
        const RESIZE_INODE = 0x10;
        /// Hashed directory indexes.
        const DIR_INDEX = 0x20;
        /// Lazy block groups (never released).
        const LAZY_BG = 0x40;
        /// Snapshot exclude inode (never released).
        const EXCLUDE_INODE = 0x80;
        /// Snapshot exclude bitmap (never released).
        const EXCLUDE_BITMAP = 0x100;
        /// At most two superblock backups, in stated groups.
        const SPARSE_SUPER2 = 0x200;
        /// The journal may hold fast-commit blocks.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and UUID never change (used with encryption).
        const STABLE_INODES = 0x800;
        /// A file holds the orphan list.
        const ORPHAN_FILE = 0x1000;
        /// Bits without a name stay as they are.
        const _ = !0;
    }

    /// Features without which the volume can't be understood.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Incompat: u32 {
        /// Compression (never released).
        const COMPRESSION = 0x1;
        /// Directory entries carry the file type.
        const FILETYPE = 0x2;
        /// The journal needs replay.
        const RECOVER = 0x4;
        /// This device is a journal, not a file system.
        const JOURNAL_DEV = 0x8;
        /// Descriptor blocks live in their own meta groups.
        const META_BG = 0x10;
        /// Some inodes map their blocks by extents.
        const EXTENTS = 0x40;
        /// Block numbers of 48 bits, descriptors of 64 bytes.
        const BIT64 = 0x80;
        /// Multiple mount protection.
        const MMP = 0x100;
        /// Bitmaps and tables may lie outside their group.
        const FLEX_BG = 0x200;
        /// Large extended attribute values in inodes of their own.
        const EA_INODE = 0x400;
        /// Data in directory entries (never released).
        const DIRDATA = 0x1000;
        /// The checksum seed is stored, apart from the UUID.
        const CSUM_SEED = 0x2000;
        /// Directories over 2 GiB or of three index levels.
        const LARGEDIR = 0x4000;
        /// Small files and directories live in the inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted inodes exist.
        const ENCRYPT = 0x10000;
        /// Case-insensitive directories exist.
        const CASEFOLD = 0x20000;
        /// Bits without a name stay as they are.
        const _ = !0;
    }

    /// Features without which the volume must not be written.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct RoCompat: u32 {
        /// Superblock backups only in some groups.
        const SPARSE_SUPER = 0x1;
        /// Files over 2 GiB exist.
        const LARGE_FILE = 0x2;
        /// B-tree directories (never released).
        const BTREE_DIR = 0x4;
        /// Files over 2 TiB: block counts in units of blocks.
        const HUGE_FILE = 0x8;
        /// Descriptors carry CRC-16 checksums and UNINIT flags.
        const GDT_CSUM = 0x10;
        /// Directories may have over 65,000 subdirectories.
        const DIR_NLINK = 0x20;
        /// Inodes have extra fields.
        const EXTRA_ISIZE = 0x40;
        /// Snapshots (never released).
        const HAS_SNAPSHOT = 0x80;
        /// Quota files in hidden inodes.
        const QUOTA = 0x100;
        /// Allocation in clusters of several blocks.
        const BIGALLOC = 0x200;
        /// CRC-32C checksums on all metadata.
        const METADATA_CSUM = 0x400;
        /// Replicas (never released).
        const REPLICA = 0x800;
        /// Must not be mounted read-write.
        const READONLY = 0x1000;
        /// Project quota and ids.
        const PROJECT = 0x2000;
        /// Shared blocks (Android).
        const SHARED_BLOCKS = 0x4000;
        /// Verity-protected files exist.
        const VERITY = 0x8000;
        /// The orphan file may hold entries.
        const ORPHAN_PRESENT = 0x10000;
        /// Bits without a name stay as they are.
        const _ = !0;
    }
}

/// The three feature words of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Features {
    /// May be ignored.
    pub compat: Compat,
    /// Must be understood.
    pub incompat: Incompat,
    /// Must be understood to write.
    pub ro_compat: RoCompat,
}

/// One named feature: the name mke2fs uses, and its bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeatureName {
    /// As written after `-O`.
    pub name: &'static str,
    /// The word and bit.
    pub bit: FeatureBit,
}

/// A bit of one of the three words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureBit {
    /// In the compatible word.
    Compat(Compat),
    /// In the incompatible word.
    Incompat(Incompat),
    /// In the read-only compatible word.
    RoCompat(RoCompat),
}

macro_rules! names {
    ($($name:literal => $word:ident :: $flag:ident),* $(,)?) => {
        &[$(FeatureName { name: $name, bit: FeatureBit::$word($word::$flag) }),*]
    };
}

/// Every feature with a name, in the order dumpe2fs lists them: by word, then by bit.
pub const FEATURE_NAMES: &[FeatureName] = names! {
    "dir_prealloc" => Compat::DIR_PREALLOC,
    "imagic_inodes" => Compat::IMAGIC_INODES,
    "has_journal" => Compat::HAS_JOURNAL,
    "ext_attr" => Compat::EXT_ATTR,
    "resize_inode" => Compat::RESIZE_INODE,
    "dir_index" => Compat::DIR_INDEX,
    "lazy_bg" => Compat::LAZY_BG,
    "snapshot_bitmap" => Compat::EXCLUDE_BITMAP,
    "sparse_super2" => Compat::SPARSE_SUPER2,
    "fast_commit" => Compat::FAST_COMMIT,
    "stable_inodes" => Compat::STABLE_INODES,
    "orphan_file" => Compat::ORPHAN_FILE,
    "compression" => Incompat::COMPRESSION,
    "filetype" => Incompat::FILETYPE,
    "needs_recovery" => Incompat::RECOVER,
    "journal_dev" => Incompat::JOURNAL_DEV,
    "meta_bg" => Incompat::META_BG,
    "extent" => Incompat::EXTENTS,
    "64bit" => Incompat::BIT64,
    "mmp" => Incompat::MMP,
    "flex_bg" => Incompat::FLEX_BG,
    "ea_inode" => Incompat::EA_INODE,
    "dirdata" => Incompat::DIRDATA,
    "metadata_csum_seed" => Incompat::CSUM_SEED,
    "large_dir" => Incompat::LARGEDIR,
    "inline_data" => Incompat::INLINE_DATA,
    "encrypt" => Incompat::ENCRYPT,
    "casefold" => Incompat::CASEFOLD,
    "sparse_super" => RoCompat::SPARSE_SUPER,
    "large_file" => RoCompat::LARGE_FILE,
    "huge_file" => RoCompat::HUGE_FILE,
    "uninit_bg" => RoCompat::GDT_CSUM,
    "dir_nlink" => RoCompat::DIR_NLINK,
    "extra_isize" => RoCompat::EXTRA_ISIZE,
    "snapshot" => RoCompat::HAS_SNAPSHOT,
    "quota" => RoCompat::QUOTA,
    "bigalloc" => RoCompat::BIGALLOC,
    "metadata_csum" => RoCompat::METADATA_CSUM,
    "replica" => RoCompat::REPLICA,
    "read-only" => RoCompat::READONLY,
    "project" => RoCompat::PROJECT,
    "shared_blocks" => RoCompat::SHARED_BLOCKS,
    "verity" => RoCompat::VERITY,
    "orphan_present" => RoCompat::ORPHAN_PRESENT,
};

/// Other spellings that mke2fs accepts.
const ALIASES: &[(&str, &str)] = &[
    ("extents", "extent"),
    ("gdt_csum", "uninit_bg"),
    ("uninit_groups", "uninit_bg"),
    ("ea_inodes", "ea_inode"),
];

/// Looks a feature up by the name used after `-O`.
#[must_use]
pub fn feature_by_name(name: &str) -> Option<FeatureBit> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, canonical)| canonical);
    FEATURE_NAMES.iter().find(|feature| feature.name == name).map(|feature| feature.bit)
}

impl Features {
    /// True if the bit is set.
    #[must_use]
    pub fn has(&self, bit: FeatureBit) -> bool {
        match bit {
            FeatureBit::Compat(flag) => self.compat.contains(flag),
            FeatureBit::Incompat(flag) => self.incompat.contains(flag),
            FeatureBit::RoCompat(flag) => self.ro_compat.contains(flag),
        }
    }

    /// Sets or clears the bit.
    pub fn set(&mut self, bit: FeatureBit, on: bool) {
        match bit {
            FeatureBit::Compat(flag) => self.compat.set(flag, on),
            FeatureBit::Incompat(flag) => self.incompat.set(flag, on),
            FeatureBit::RoCompat(flag) => self.ro_compat.set(flag, on),
        }
    }

    /// Names of the set features in dumpe2fs order; bits without a name appear as
    /// `FEATURE_C12`-like words (word letter C, I or R, and bit number).
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            FEATURE_NAMES.iter().filter(|f| self.has(f.bit)).map(|f| f.name.to_owned()).collect();
        names.extend(self.unnamed().map(|(letter, bit)| unnamed_name(letter, bit)));
        names
    }

    /// Names of features that let all read the volume and only those who know them write it, and that nothing here knows.
    #[must_use]
    pub fn unknown_to_writers(&self) -> Vec<String> {
        let unnamed = self.unnamed().filter(|(letter, _)| *letter == 'R');
        unnamed.map(|(letter, bit)| unnamed_name(letter, bit)).collect()
    }

    fn unnamed(&self) -> impl Iterator<Item = (char, u32)> + use<> {
        let mut known = Features::default();
        for feature in FEATURE_NAMES {
            known.set(feature.bit, true);
        }
        let words = [
            ('C', self.compat.bits() & !known.compat.bits()),
            ('I', self.incompat.bits() & !known.incompat.bits()),
            ('R', self.ro_compat.bits() & !known.ro_compat.bits()),
        ];
        words.into_iter().flat_map(|(letter, word)| {
            (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| (letter, bit))
        })
    }

    /// Features that keep this implementation from reading the volume at all.
    #[must_use]
    pub fn unreadable(&self) -> Incompat {
        // spec: feat
        self.incompat.difference(READABLE_INCOMPAT)
    }

    /// Features that keep this implementation from writing a volume it can read.
    #[must_use]
    pub fn unwritable(&self) -> Features {
        // spec: feat
        Features {
            compat: Compat::empty(),
            incompat: self.incompat.difference(WRITABLE_INCOMPAT),
            ro_compat: self.ro_compat.difference(WRITABLE_RO_COMPAT),
        }
    }

    /// True if every metadata block carries a CRC-32C.
    #[must_use]
    pub fn metadata_csum(&self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// True if descriptors carry a checksum and UNINIT flags of either kind.
    #[must_use]
    pub fn descriptor_csum(&self) -> bool {
        self.ro_compat.intersects(RoCompat::METADATA_CSUM.union(RoCompat::GDT_CSUM))
    }
}

/// The name of a bit without one, as e2fsprogs spell it.
fn unnamed_name(letter: char, bit: u32) -> String {
    format!("FEATURE_{letter}{bit}")
}

/// Incompatible features that reading understands.
const READABLE_INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGEDIR)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);

/// Incompatible features that writing keeps right. `RECOVER` is left out: an unclean journal must
/// be replayed before anything else is written.
const WRITABLE_INCOMPAT: Incompat = READABLE_INCOMPAT.difference(Incompat::RECOVER);

/// Read-only compatible features that writing keeps right.
const WRITABLE_RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::QUOTA)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::PROJECT)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_bits_are_shown() {
        for feature in FEATURE_NAMES {
            assert_eq!(feature_by_name(feature.name), Some(feature.bit), "{}", feature.name);
        }
        let features = Features {
            compat: Compat::from_bits_retain(0x4 | 1 << 20),
            incompat: Incompat::from_bits_retain(1 << 30),
            ro_compat: RoCompat::empty(),
        };
        assert_eq!(features.names(), ["has_journal", "FEATURE_C20", "FEATURE_I30"]);
        assert_eq!(features.unreadable().bits(), 1 << 30);
    }

    #[test]
    fn an_unknown_read_only_feature_refuses_writing_but_not_reading() {
        let features = Features { ro_compat: RoCompat::from_bits_retain(1 << 25), ..Features::default() };
        assert!(features.unreadable().is_empty());
        assert_eq!(features.unwritable().ro_compat.bits(), 1 << 25);
    }
}
