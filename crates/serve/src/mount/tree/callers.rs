//! The caller of a request, its groups and capabilities: FUSE sends a user, a group and a thread; the rest stands
//! in `/proc`.
//!
//! Owns: reading and judging credentials. Excludes what they allow. What is kept from one request to the next are open
//! files of `/proc`, and capabilities that are asked for again before they count: what is read is of the moment, while
//! the caller waits for its answer, and a number that another thread got meanwhile leads nowhere.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, OnceLock};

use fuse::Caller;
use platfs::rights::{Credentials, Powers};
use platfs_host::{Directory, system};
use rustix::fs::OFlags;
use rustix::thread::Pid;

use crate::bulk::{Actor, is_owner_of_server};
use crate::mount::outside;
use crate::sandbox;
use platfs_open::locks::locked;

/// Threads whose files stay open.
const KEPT: usize = 16;
/// Longest status that is read: room for all the groups that Linux allows.
const STATUS_MAX: usize = 1 << 20;
/// Mapping of the user namespace of a machine's own users.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

thread_local! {
    static CALLER: Cell<Caller> = const { Cell::new(Caller { uid: u32::MAX, gid: u32::MAX, pid: 0 }) };
}

/// Notes who makes the request that this thread serves next.
pub(super) fn begin(caller: Caller) {
    CALLER.set(caller);
}

/// The caller of the request that this thread serves.
pub(super) fn current() -> Caller {
    CALLER.get()
}

/// A thread in `/proc`.
struct Task {
    number: u32,
    directory: Directory,
    status: File,
    /// Result of the last look, if that was a program of the mount's user acting as itself.
    seen: Option<Seen>,
    /// True if it is in the user namespace of this process, once somebody outside of its cage was asked.
    said: Option<bool>,
}

/// Rights of a program of the mount's user, and its identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    who: (u32, u32),
    permitted: u64,
    effective: u64,
}

impl Seen {
    /// Of a status; `None` where that is not all that there is to be judged.
    fn of(status: &Status, caller: Caller, user: (u32, u32), is_ours: bool) -> Option<Self> {
        let who = (caller.uid, caller.gid);
        let is_itself = (status.uids[3], status.gids[3]) == who && status.is_of(user);
        let Status { permitted, effective, .. } = *status;
        (is_itself && is_ours).then_some(Seen { who, permitted, effective })
    }
}

impl Task {
    fn open(number: u32) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let directory = Directory::from(OwnedFd::from(system::open(format!("/proc/{number}"), flags)?));
        let (status, _) = directory.open_listed("status")?;
        Ok(Task { number, directory, status, seen: None, said: None })
    }

    fn status(&self, text: &mut Vec<u8>) -> io::Result<()> {
        text.resize(text.capacity().max(4096), 0);
        let mut len = 0;
        loop {
            match self.status.read_at(text.get_mut(len..).unwrap_or_default(), len as u64) {
                Ok(0) if len < text.len() => break,
                Ok(0) if len >= STATUS_MAX => return Err(ErrorKind::FileTooLarge.into()),
                Ok(0) => text.resize(len.saturating_mul(2), 0),
                Ok(count) => len += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        text.truncate(len);
        Ok(())
    }

    fn namespace(&self) -> io::Result<OsString> {
        namespace(&self.directory)
    }

    /// Returns true if its capabilities are about the user namespace `own`, which is that of this process. In a cage another
    /// process looks, once; that the thread has not left it since is seen from the users that its namespace has.
    fn is_in(&mut self, own: &OsString) -> bool {
        let Some(outside) = outside::this() else { return self.namespace().is_ok_and(|found| found == *own) };
        let directory = &self.directory;
        *self.said.get_or_insert_with(|| outside.is_ours(directory)) && self.has_the_users_of_this_process()
    }

    fn has_the_users_of_this_process(&self) -> bool {
        let map = || -> io::Result<Vec<u8>> {
            let (file, _) = self.directory.open_listed("uid_map")?;
            let mut text = vec![0; MAP_MAX];
            let len = file.read_at(&mut text, 0)?;
            text.truncate(len);
            Ok(text)
        };
        map().is_ok_and(|found| {
            found == *OWN_USERS.get_or_init(|| system::read("/proc/self/uid_map").unwrap_or_default())
        })
    }
}

/// The users of the namespace of this process, as `/proc` shows them.
static OWN_USERS: OnceLock<Vec<u8>> = OnceLock::new();
/// Longest such text: 340 lines.
const MAP_MAX: usize = 16 << 10;

/// The user namespace of a thread.
fn namespace(thread: impl AsFd) -> io::Result<OsString> {
    #[expect(clippy::disallowed_methods, reason = "a link of the kernel, below an open directory of `/proc`")]
    let link = rustix::fs::readlinkat(thread, "ns/user", Vec::new())?;
    Ok(std::ffi::OsStr::from_bytes(link.to_bytes()).to_owned())
}

/// Returns true if a thread, given by its directory in `/proc`, is in the user namespace of this process.
pub(in crate::mount) fn is_in_our_namespace(thread: &OwnedFd) -> bool {
    let own = Task::open(std::process::id()).and_then(|me| me.namespace());
    namespace(thread).is_ok_and(|found| own.is_ok_and(|own| own == found))
}

/// Credentials in a status: real, effective, saved and file system's.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Status {
    uids: [u32; 4],
    gids: [u32; 4],
    groups: Vec<u32>,
    permitted: u64,
    effective: u64,
    umask: u16,
}

impl Status {
    fn parse(text: &[u8]) -> Option<Self> {
        let line = |name: &str| {
            let mut lines = text.split(|byte| *byte == b'\n');
            lines
                .find_map(|line| line.strip_prefix(name.as_bytes()))
                .and_then(|rest| str::from_utf8(rest).ok())
        };
        let numbers = |name: &str| -> Option<Vec<u32>> {
            line(name)?.split_whitespace().map(|word| word.parse().ok()).collect()
        };
        let bits = |name: &str| u64::from_str_radix(line(name)?.trim(), 16).ok();
        Some(Status {
            uids: numbers("Uid:")?.try_into().ok()?,
            gids: numbers("Gid:")?.try_into().ok()?,
            groups: numbers("Groups:")?,
            permitted: bits("CapPrm:")?,
            effective: bits("CapEff:")?,
            umask: u16::from_str_radix(line("Umask:")?.trim(), 8).ok()? & 0o777,
        })
    }

    /// Returns true if it is a program of this user and group, as the kernel asks of callers of a mount without
    /// `allow_other`: by its real, effective and saved ids.
    fn is_of(&self, user: (u32, u32)) -> bool {
        self.uids.iter().zip(&self.gids).take(3).all(|(uid, gid)| (*uid, *gid) == user)
    }
}

/// The callers of a mount.
pub(super) struct Callers {
    namespace: OsString,
    /// User and group of this server, whose mount it is.
    user: (u32, u32),
    tasks: Mutex<VecDeque<Task>>,
}

impl Callers {
    /// Gets ready to read credentials.
    ///
    /// # Errors
    /// Why they can't be known here.
    pub(super) fn new() -> Result<Self, String> {
        let me = std::process::id();
        let user = own_user();
        if !sandbox::powers_before().contains(Powers::SYS_ADMIN) {
            return Err("only mounts of administrators (CAP_SYS_ADMIN) can".into());
        }
        if user != (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()) {
            return Err("this program acts as another user".into());
        }
        let same = system::link("/proc/self").is_ok_and(|link| link.as_os_str() == me.to_string().as_str());
        let task = Task::open(me).ok().filter(|_| same).ok_or("/proc is not that of this process")?;
        let map = system::text("/proc/self/uid_map").unwrap_or_default();
        if !map.split_whitespace().eq(ALL_USERS) {
            return Err("this is not the machine's own user namespace".into());
        }
        // With it, users beside the mount's come in, whose capabilities are no reason to let them do everything.
        let parameter =
            system::read("/sys/module/fuse/parameters/allow_sys_admin_access").unwrap_or_default();
        if parameter.starts_with(b"Y") {
            return Err("fuse.allow_sys_admin_access lets others in".into());
        }
        let namespace = task.namespace().map_err(|error| format!("/proc/self/ns/user: {error}"))?;
        Ok(Callers { namespace, user, tasks: Mutex::default() })
    }

    /// User and group of this server, whose mount it is.
    pub(super) fn user(&self) -> (u32, u32) {
        self.user
    }

    /// The credentials of a caller. `for_access`: it asks by access(2), which counts the real user and the capabilities
    /// that it could have.
    pub(super) fn credentials(&self, caller: Caller, for_access: bool) -> Credentials {
        let least = Credentials::new(caller.uid, caller.gid);
        // No number: it is in another namespace of processes, or the kernel itself.
        match self.read(caller) {
            Some((status, is_ours)) => self.judge(least, status, is_ours, for_access),
            None => least,
        }
    }

    /// The capabilities of a caller that has those, and that user and group, with which it was read last. To read and
    /// write all of a status costs many times as much. Groups may have changed; what a caller may not by this alone
    /// is judged by [`Callers::credentials`].
    pub(super) fn known_powers(&self, caller: Caller) -> Option<Powers> {
        let number = i32::try_from(caller.pid).ok().and_then(Pid::from_raw)?;
        let mut tasks = locked(&self.tasks);
        let task = tasks.iter_mut().find(|task| task.number == caller.pid)?;
        let seen = task.seen.filter(|seen| seen.who == (caller.uid, caller.gid))?;
        let now = rustix::thread::capabilities(Some(number)).ok()?;
        let is_same = (now.permitted.bits(), now.effective.bits()) == (seen.permitted, seen.effective);
        // Asked of the directory that is kept: if its thread has ended, the number is another's.
        let is_ours = is_same && task.is_in(&self.namespace);
        is_ours.then(|| Powers::from_bits(seen.effective))
    }

    fn read(&self, caller: Caller) -> Option<(Status, bool)> {
        let number = caller.pid;
        if number == 0 {
            return None;
        }
        let mut tasks = locked(&self.tasks);
        let at = tasks.iter().position(|task| task.number == number);
        let kept = at.and_then(|at| tasks.remove(at));
        let mut text = Vec::with_capacity(4096);
        // What is kept may be of a thread that has ended, whose number is another's now.
        let kept = kept.filter(|task| task.status(&mut text).is_ok());
        let mut task = match kept {
            Some(task) => task,
            None => Task::open(number).and_then(|task| task.status(&mut text).map(|()| task)).ok()?,
        };
        let is_ours = task.is_in(&self.namespace);
        let status = Status::parse(&text);
        task.seen = status.as_ref().and_then(|status| Seen::of(status, caller, self.user, is_ours));
        tasks.push_front(task);
        tasks.truncate(KEPT);
        drop(tasks);
        status.map(|status| (status, is_ours))
    }

    /// Credentials of a status.
    ///
    /// The kernel lets in programs of the mount's user only. A caller that is none was lent credentials by the kernel:
    /// those of who mounted an overlay on top of this, say. They are that user's, with the capabilities that this server
    /// began with.
    fn judge(&self, least: Credentials, status: Status, is_ours: bool, for_access: bool) -> Credentials {
        if !status.is_of(self.user) {
            return Credentials { powers: sandbox::powers_before(), ..least };
        }
        shown(least, status, is_ours, for_access)
    }
}

/// User and group that this server acts as.
fn own_user() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Reads a program's status from the system, and returns true with it if its capabilities are about this user namespace.
fn status_of(caller: Caller) -> Option<(Status, bool)> {
    if caller.pid == 0 {
        return None;
    }
    let (mut task, mut text) = (Task::open(caller.pid).ok()?, Vec::new());
    task.status(&mut text).ok()?;
    let here = Task::open(std::process::id()).and_then(|me| me.namespace()).ok()?;
    let is_ours = task.is_in(&here);
    Some((Status::parse(&text)?, is_ours))
}

/// A program that waits for the answer to a request, on any mount; `None` if it can't be seen from here, as in another
/// namespace of processes.
pub(super) fn actor(caller: Caller) -> Option<Actor> {
    let (status, is_ours) = status_of(caller)?;
    let umask = status.umask;
    Some(Actor {
        credentials: shown(Credentials::new(caller.uid, caller.gid), status, is_ours, false),
        umask,
    })
}

/// Tells if the caller of a request has these capabilities. A program that can't be seen from here has none.
///
/// A request may come with another user than its program has: overlayfs acts as the user that mounted the overlay. If that
/// is this server's user, the capabilities are those that the server began with. Those of other users are not known.
pub(super) fn has(caller: Caller, powers: Powers) -> bool {
    let Some((status, is_ours)) = status_of(caller) else { return false };
    let is_lent = status.uids[3] != caller.uid && caller.uid == own_user().0;
    let least = Credentials::new(caller.uid, caller.gid);
    let known = if is_lent { sandbox::powers_before() } else { shown(least, status, is_ours, false).powers };
    known.contains(powers)
}

/// Tells if the caller of a request may do what is about all of the volume: whoever has the capabilities that Linux asks
/// for it, and the user whose mount it is where this server has none itself.
pub(super) fn keeps(caller: Caller, powers: Powers) -> bool {
    is_owner_of_server(caller.uid) || has(caller, powers)
}

/// Credentials of a status. A program that acts as another user (setfsuid, a server of NFS) has no capabilities, and
/// unless it shows that user, its groups are not known. In another user namespace capabilities are about other things.
/// For access(2) the kernel counts the capabilities that a program may have if its real user is 0, and else none.
fn shown(least: Credentials, status: Status, is_ours: bool, for_access: bool) -> Credentials {
    let shows = (status.uids[3], status.gids[3]) == (least.uid, least.gid);
    let bits = match for_access {
        true if least.uid == 0 => status.permitted,
        false if shows => status.effective,
        _ => 0,
    };
    let powers = if is_ours { Powers::from_bits(bits) } else { Powers::default() };
    Credentials { groups: (shows || for_access).then_some(status.groups), powers, ..least }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\tUid:\\n0\nUmask:\t0022\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nFDSize:\t64\n\
                        Groups:\t4 24 \nCapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\n\
                        CapEff:\t0000000000000002\n";

    fn status() -> Status {
        Status::parse(TEXT.as_bytes()).unwrap()
    }

    fn judged(status: Status, (uid, gid): (u32, u32), is_ours: bool, for_access: bool) -> Credentials {
        let callers = Callers { namespace: OsString::new(), user: (0, 0), tasks: Mutex::default() };
        callers.judge(Credentials::new(uid, gid), status, is_ours, for_access)
    }

    #[test]
    fn a_status_is_read_and_nothing_else_taken_for_one() {
        assert_eq!((status().groups, status().effective, status().umask), (vec![4, 24], 2, 0o022));
        assert_eq!(Status::parse(b""), None);
        assert_eq!(Status::parse(TEXT.replace("CapEff", "CapOff").as_bytes()), None);
        assert_eq!(Status::parse(TEXT.replace("Gid:\t0", "Gid:\t-1").as_bytes()), None);
    }

    #[test]
    fn capabilities_are_those_of_the_call() {
        let override_ = Powers::DAC_OVERRIDE;
        let plain = judged(status(), (0, 0), true, false);
        assert!(plain.powers.contains(override_) && !plain.powers.contains(Powers::CHOWN));
        assert!(judged(status(), (0, 0), true, true).powers.contains(Powers::CHOWN), "access(2)");
        assert_eq!(judged(status(), (0, 0), false, false).powers, Powers::default(), "another namespace");
        let other = judged(status(), (1000, 1000), true, false);
        assert_eq!((other.powers, other.groups), (Powers::default(), None), "a server of NFS");
        let callers = Callers { namespace: OsString::new(), user: (1000, 1000), tasks: Mutex::default() };
        let own = Status { uids: [1000; 4], gids: [1000; 4], ..status() };
        let by_access = callers.judge(Credentials::new(1000, 1000), own, true, true);
        assert_eq!(by_access.powers, Powers::default(), "access(2) of another user than root");
    }

    #[test]
    fn lent_credentials_have_what_the_server_began_with() {
        let user = Status { uids: [1000; 4], gids: [1000; 4], effective: 0, permitted: 0, ..status() };
        assert_eq!(judged(user.clone(), (0, 0), true, false).powers, sandbox::powers_before());
        assert_eq!(judged(user, (1000, 1000), true, false).powers, sandbox::powers_before());
        let fs_user = Status { uids: [0, 0, 0, 1000], gids: [0, 0, 0, 1000], effective: 0, ..status() };
        assert_eq!(judged(fs_user, (1000, 1000), true, false).groups, Some(vec![4, 24]));
    }

    #[test]
    fn this_process_can_be_read() {
        let Ok(callers) = Callers::new() else { return };
        let (uid, gid) = callers.user;
        let me = Caller { uid, gid, pid: std::process::id() };
        let found = callers.credentials(me, false);
        assert!(found.groups.is_some());
        assert_eq!(found, callers.credentials(me, false), "from the files that are kept");
        assert_eq!(actor(me).unwrap().credentials, found);
        assert_eq!(actor(Caller { pid: 0, ..me }), None);
        let nobody = Caller { pid: u32::MAX, ..me };
        assert_eq!(callers.credentials(nobody, false), Credentials::new(uid, gid));
    }

    #[test]
    fn a_caller_has_what_it_has_and_not_what_its_user_might() {
        let pid = std::process::id();
        let own = rustix::process::geteuid().as_raw();
        let sets = rustix::thread::capabilities(None).unwrap();
        let me = Caller { uid: own, gid: rustix::process::getegid().as_raw(), pid };
        assert_eq!(
            has(me, Powers::SYS_ADMIN),
            Powers::from_bits(sets.effective.bits()).contains(Powers::SYS_ADMIN)
        );
        assert!(!has(Caller { pid: 0, ..me }, Powers::CHOWN), "it can't be seen");
        assert!(!has(Caller { uid: own + 1, ..me }, Powers::CHOWN), "a server of NFS");
        let bare = std::thread::spawn(move || {
            let pid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective = rustix::thread::CapabilitySet::empty();
            rustix::thread::set_capabilities(None, sets).unwrap();
            (has(Caller { pid, ..me }, Powers::SYS_ADMIN), is_owner_of_server(own))
        });
        assert_eq!(bare.join().unwrap(), (false, true), "it gave all of them up");
    }

    #[test]
    fn capabilities_are_known_until_they_change() {
        if !testkit::tool::administers() {
            return testkit::tool::skip("capabilities_are_known_until_they_change", "needs capabilities");
        }
        let Ok(callers) = Callers::new() else { return };
        // A thread of its own: what it gives up is gone.
        let thread = std::thread::spawn(move || {
            let pid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let (uid, gid) = callers.user;
            let me = Caller { uid, gid, pid };
            assert_eq!(callers.known_powers(me), None, "it was not read");
            let powers = callers.credentials(me, false).powers;
            assert!(powers.contains(Powers::CHOWN));
            assert_eq!(callers.known_powers(me), Some(powers));
            assert_eq!(callers.known_powers(Caller { uid: uid + 1, ..me }), None, "as another user");
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(rustix::thread::CapabilitySet::CHOWN);
            rustix::thread::set_capabilities(None, sets).unwrap();
            assert_eq!(callers.known_powers(me), None, "it gave one up");
            let less = callers.credentials(me, false).powers;
            assert!(!less.contains(Powers::CHOWN));
            assert_eq!(callers.known_powers(me), Some(less));
            (callers, me)
        });
        let (callers, gone) = thread.join().unwrap();
        while std::path::Path::new(&format!("/proc/self/task/{}", gone.pid)).exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(callers.known_powers(gone), None, "it has ended");
    }
}
