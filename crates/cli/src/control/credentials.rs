//! Who a program is: what the kernel says with its request, and what it says of it in `/proc`.
//!
//! A request has the user and the group of the program. Its other groups, its capabilities and its umask stand in
//! `/proc`, under the number of the thread that waits for the answer, and so can't be that of another one meanwhile.

use std::fs;

use fuse::{Caller, Errno};

use crate::bulk::actor::Actor;

/// The program that waits for the answer to a request.
///
/// # Errors
/// `EPERM` for one that can't be seen from here, as in another PID namespace.
pub fn actor_of(caller: Caller) -> Result<Actor, Errno> {
    if caller.pid == 0 {
        return Err(Errno::PERM);
    }
    let status = fs::read_to_string(format!("/proc/{}/status", caller.pid)).map_err(|_| Errno::PERM)?;
    let mut actor = parse(&status, caller.uid, caller.gid).ok_or(Errno::PERM)?;
    // Capabilities of another user namespace are about what belongs to that.
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/user")).ok();
    let ours = namespace("self");
    if ours.is_none() || namespace(&caller.pid.to_string()) != ours {
        actor.capabilities = 0;
    }
    Ok(actor)
}

fn parse(status: &str, uid: u32, gid: u32) -> Option<Actor> {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let groups = field("Groups")?.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let capabilities = u64::from_str_radix(field("CapEff")?, 16).ok()?;
    let umask = field("Umask").map_or(Some(0o022), |mask| u16::from_str_radix(mask, 8).ok())?;
    Some(Actor { uid, gid, groups, umask: umask & 0o777, capabilities })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_groups_capabilities_and_umask() {
        let status =
            "Name:\tx\nUmask:\t0027\nUid:\t7\t7\t7\t7\nGroups:\t4 24 1000 \nCapEff:\t000001ffffffffff\n";
        let actor = parse(status, 7, 8).unwrap();
        assert_eq!((actor.uid, actor.gid, actor.umask), (7, 8, 0o027));
        assert_eq!((&actor.groups[..], actor.capabilities), (&[4, 24, 1000][..], 0x1ff_ffff_ffff));
        for broken in ["", "Groups:\t\n", "Groups:\tx\nCapEff:\t0\n", "Groups:\t\nCapEff:\tz\n"] {
            assert_eq!(parse(broken, 0, 0), None, "{broken}");
        }
    }

    #[test]
    fn this_process_is_itself() {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let actor = actor_of(Caller { uid, gid, pid: std::process::id() }).unwrap();
        let is_root = uid == 0;
        assert!(is_root || actor.capabilities == 0);
        assert_eq!(actor_of(Caller { uid, gid, pid: 0 }), Err(Errno::PERM));
    }
}
