//! Negotiation of features before the first request (`FUSE_INIT`).

use super::Malformed;
use super::fields::Fields;
use super::reply::Out;
use crate::attach::Options;

/// The protocol's version, and the newest minor one that is known here.
const MAJOR: u32 = 7;
const MINOR: u32 = 45;
/// The oldest kernel that is served (Linux 5.4): older ones have shorter layouts.
const MINOR_LEAST: u32 = 31;
/// Requests that the kernel keeps under way without anybody waiting for them: read-ahead and write-back.
const BACKGROUND: u16 = 64;

/// Bits that are offered and asked for.
pub(super) mod flag {
    pub(in crate::wire) const ASYNC_READ: u64 = 1;
    pub(in crate::wire) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(in crate::wire) const BIG_WRITES: u64 = 1 << 5;
    pub(in crate::wire) const DONT_MASK: u64 = 1 << 6;
    pub(in crate::wire) const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub(in crate::wire) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(in crate::wire) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(in crate::wire) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(in crate::wire) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(in crate::wire) const POSIX_ACL: u64 = 1 << 20;
    pub(in crate::wire) const MAX_PAGES: u64 = 1 << 22;
    pub(in crate::wire) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(in crate::wire) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(in crate::wire) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(in crate::wire) const SETXATTR_EXT: u64 = 1 << 29;
    pub(in crate::wire) const INIT_EXT: u64 = 1 << 30;
    pub(in crate::wire) const OVER_IO_URING: u64 = 1 << 41;
}

/// Features and limits that the kernel offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) read_ahead: u32,
    pub(crate) flags: u64,
}

impl Offer {
    pub(super) fn decode(mut fields: Fields<'_>) -> Result<Self, Malformed> {
        let (major, minor) = (fields.u32()?, fields.u32()?);
        // Another major version has a layout of its own after these two.
        if major != MAJOR {
            return Ok(Offer { major, minor, read_ahead: 0, flags: 0 });
        }
        let (read_ahead, low) = (fields.u32()?, u64::from(fields.u32()?));
        let high = if low & flag::INIT_EXT != 0 { u64::from(fields.u32()?) } else { 0 };
        Ok(Offer { major, minor, read_ahead, flags: low | high << 32 })
    }

    /// Returns true if requests can come over rings.
    pub(crate) fn has_rings(&self) -> bool {
        self.flags & flag::OVER_IO_URING != 0
    }
}

/// Features that the mount asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub(crate) read_only: bool,
    pub(crate) acl: bool,
    pub(crate) writeback: bool,
    pub(crate) rings: bool,
    /// Most bytes of a read or write; whole pages.
    pub(crate) largest: u32,
    /// Nanoseconds that times are kept to.
    pub(crate) time_unit: u32,
}

impl Wish {
    pub(crate) fn new(options: &Options, rings: bool, largest: u32) -> Self {
        let Options { read_only, acl, own_permissions, writeback, time_unit, .. } = *options;
        // The kernel that knows the lists checks permissions.
        Wish { read_only, acl: acl && !own_permissions, writeback, rings, largest, time_unit }
    }
}

/// Features and limits in force after the negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    pub(crate) minor: u32,
    pub(crate) read_ahead: u32,
    pub(crate) flags: u64,
    pub(crate) largest: u32,
    pub(crate) pages: u16,
    pub(crate) time_unit: u32,
}

/// Answers an offer. `ASYNC_DIO` (1 << 15) is left out: with it, the kernel keeps its pages
/// of bytes whose direct write is still in flight when the call returns, and shows the old bytes.
/// Every other wish is granted if the kernel knows it, since each only saves requests, except the
/// flags that serving needs. `None`: this kernel can't be served.
pub(crate) fn agree(offer: &Offer, wish: &Wish) -> Option<Agreed> {
    use self::flag as is;
    if offer.major != MAJOR || offer.minor < MINOR_LEAST {
        return None;
    }
    let mut wanted = is::ASYNC_READ
        | is::EXPORT_SUPPORT
        | is::BIG_WRITES
        | is::HAS_IOCTL_DIR
        | is::DO_READDIRPLUS
        | is::NO_OPEN_SUPPORT
        | is::PARALLEL_DIROPS
        | is::MAX_PAGES
        | is::CACHE_SYMLINKS
        | is::NO_OPENDIR_SUPPORT
        | is::INIT_EXT;
    for (wished, flags) in [
        (wish.acl, is::POSIX_ACL),
        (!wish.read_only, is::DONT_MASK | is::HANDLE_KILLPRIV_V2 | is::SETXATTR_EXT),
        (!wish.read_only && wish.writeback, is::WRITEBACK_CACHE),
        (wish.rings, is::OVER_IO_URING),
    ] {
        if wished {
            wanted |= flags;
        }
    }
    // Without these the layouts, or the rules for modes, are others than those that are known here.
    let needed = if wish.read_only { 0 } else { is::DONT_MASK | is::SETXATTR_EXT } | is::MAX_PAGES;
    if needed & !offer.flags != 0 {
        return None;
    }
    let pages = (wish.largest / 4096).clamp(1, 256).try_into().unwrap_or(1);
    let (minor, read_ahead) = (offer.minor.min(MINOR), offer.read_ahead);
    let Wish { largest, time_unit, .. } = *wish;
    Some(Agreed { minor, read_ahead, flags: wanted & offer.flags, largest, pages, time_unit })
}

impl Agreed {
    /// The answer.
    pub(crate) fn encode(&self, out: &mut Out<'_>) {
        out.u32(MAJOR);
        out.u32(self.minor);
        out.u32(self.read_ahead);
        out.u32(low(self.flags));
        out.u16(BACKGROUND);
        out.u16(BACKGROUND / 4 * 3);
        out.u32(self.largest);
        out.u32(self.time_unit);
        out.u16(self.pages);
        out.u16(0);
        out.u32(low(self.flags >> 32));
        out.zeros(28);
    }

    /// Returns true if requests come over rings.
    pub(crate) fn has_rings(&self) -> bool {
        self.flags & flag::OVER_IO_URING != 0
    }
}

fn low(flags: u64) -> u32 {
    (flags & u64::from(u32::MAX)).try_into().unwrap_or_default()
}
