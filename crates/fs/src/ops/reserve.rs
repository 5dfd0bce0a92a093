//! Callers that may take the reserved blocks.

use ondisk::superblock::RawSuperblock;

use crate::context::Context;
use crate::volume::Volume;

/// True if it is for this user or group that the superblock reserves blocks. Group 0 stands for none there.
fn may_take_all(raw: &RawSuperblock, uid: u32, gid: u32) -> bool {
    let join = |low: u16, high: u16| u32::from(high) << 16 | u32::from(low);
    let user = join(raw.s_def_resuid.get(), raw.s_def_resuid_hi.get());
    let group = join(raw.s_def_resgid.get(), raw.s_def_resgid_hi.get());
    uid == user || group != 0 && gid == group
}

impl Volume {
    /// Returns a handle that acts for a user without capabilities. If the superblock does not reserve blocks for that
    /// user, the volume is full for him when only reserved blocks are left. Limits of quota bind him. A user with
    /// `CAP_SYS_RESOURCE` needs no such handle.
    #[must_use]
    pub fn on_behalf_of(&self, uid: u32, gid: u32) -> Volume {
        let reserved = |raw: RawSuperblock| {
            let reserved = raw.reserved_blocks_count() >> self.format.geometry.cluster_log2;
            if may_take_all(&raw, uid, gid) { 0 } else { reserved }
        };
        self.with(Context { spared: reserved(self.superblock()), limited: true, ..self.context() })
    }
}
