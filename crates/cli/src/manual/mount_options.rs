//! The topic `mount-options`: the words of `plat mount -o`, but for second names of the same and words that are only accepted.
//! docs/mount.md says why each is as it is.

use super::topics::Part::{Item, Text};
use super::topics::Topic;

pub(super) const TOPIC: Topic = Topic {
    name: "mount-options",
    title: "Mount options",
    parts: &[
        Text("Words of `plat mount -o`, with ext4's names where ext4 has them. Later ones win."),
        Item(
            "ro, rw",
            "`ro`: for reading only. `rw`: for writing, and no mount if the image can't be written. Neither: for writing if the image \
             can be written",
        ),
        Item("noload, norecovery", "with `ro`: without what the journal holds"),
        Item("remount", "changes a mount that is there"),
        Item("errors=continue|remount-ro|panic", "what happens on damage; `remount-ro` if nothing is said"),
        Item("check, nocheck", "the whole volume is checked before it is opened for writing, or never"),
        Item("normal, softdep, async", "the order in which changes reach the image; `unordered` is `async`"),
        Item("data=ordered|writeback|journal", "how contents go with the journal"),
        Item("sync, dirsync", "each change is stable when it is answered; only changes of names"),
        Item("commit=SECONDS", "after so long what was written is on its way to the device"),
        Item("delalloc, nodelalloc", "blocks are chosen late, or at each write"),
        Item("writeback_cache, nowriteback_cache", "the kernel may keep written pages for a while"),
        Item("discard, nodiscard", "freed space is given back to the device"),
        Item("noatime, relatime, strictatime", "when reading changes times of access"),
        Item("uid=N, gid=N", "all files are shown with this owner"),
        Item("umask=M, fmask=M, dmask=M", "permission bits that are not shown: of all, files, directories"),
        Item("fakeroot", "who comes in is root in the image"),
        Item("allow_other", "other users may come in (`user_allow_other` in /etc/fuse.conf)"),
        Item("default_permissions, own_permissions", "the kernel, or the mount, checks permissions"),
        Item(
            "suid, nosuid, dev, nodev, exec, noexec",
            "set-id bits, devices, programs; `nosuid,nodev` if nothing is said",
        ),
        Item("acl, noacl", "access control lists count, or not"),
        Item("user_xattr, nouser_xattr", "attributes of users"),
        Item("xattr, noxattr", "attributes at all"),
        Item("quota, noquota", "limits of quota count"),
        Item("key=FILE", "a key of encrypted files"),
        Item(
            "alloc=POLICY, dirs=POLICY",
            "how blocks and directories are placed; `plat placement` lists policies and their parameters, which are words here, too",
        ),
        Item("orlov, oldalloc, reservation, noreservation", "the same in the words of ext3 and ext4"),
        Item("stripe=BLOCKS", "stripes of a RAID"),
        Item("flush=store|local", "of a volume of a store: where a sync ends"),
        Item("patience=TIME", "how long a store that does not answer is waited for: `90s`, `5m`"),
        Item("sandbox=auto|off|require", "what the server gives up before it looks at the image"),
        Item("transport=auto|uring|device", "how requests come from the kernel"),
        Item("giveway=auto|never|always", "when serving threads let the programs go first"),
        Item("fsname=NAME", "the source that lists of mounts show"),
    ],
};
