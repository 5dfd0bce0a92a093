//! System calls: what seccomp lets this process ask of the kernel.
//!
//! Owns: the lists, by what they are for. They stand for what strace shows with glibc (`scripts/count-calls.sh`, and
//! `counted.txt` beside this file); what musl calls beside is from its source, and by each call that was not seen there
//! stands its reason ([security](../../../../docs/security.md#cages)). A call that is not listed fails with EPERM, and nothing is killed: a
//! library that only tries one goes on without. Threads are made by `clone`, whose flags can be looked at: `clone3` is said
//! not to exist.

use super::Plan;

/// Purposes of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Asking for the user, the groups and the directory of this process; reading links below open directories; giving up the
    /// processor; waiting for descriptors. A server of bytes does without them.
    Caller,
    /// Writing bytes of what is open.
    Bytes,
    /// Changing an image, alone.
    Image,
    /// Making files.
    Output,
    /// Giving files owners, modes, times and attributes by their names. Landlock does not look at that: it holds for all files
    /// that this user may change.
    Attributes,
    /// Reading files of the host with all that is known of them.
    Sources,
    /// Removing files.
    Remove,
    /// Answering at sockets that are open.
    Answer,
    /// Requests of FUSE: threads that have a class and a processor.
    Fuse,
    /// Requests over io_uring, whose rings do what no filter sees.
    Ring,
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) use known::{NO_FCNTLS, NO_IOCTLS, apply, errno, is_one_of, is_other_than, restrict, with};

/// There is no list for this processor.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(super) fn restrict(_: &Plan) -> Result<(), ()> {
    Err(())
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod known {
    use std::collections::BTreeMap;

    use libc::c_long;
    use seccompiler::{
        BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch, apply_filter,
    };

    use super::{Group, Plan};

    /// A call, by its name for the test that compares it with what was counted.
    type Call = (&'static str, c_long);

    macro_rules! calls {
        ($($(#[$when:meta])* $name:ident,)*) => {
            &[$($(#[$when])* (stringify!($name), libc::$name),)*]
        };
    }

    /// Memory, threads, time, signals, and reading files.
    const EVERY: &[Call] = calls![
        SYS_brk,
        SYS_clock_nanosleep,
        SYS_clone3,
        SYS_close,
        SYS_exit,
        SYS_exit_group,
        SYS_fcntl,
        SYS_flock,
        SYS_fstat,
        SYS_futex,
        SYS_getdents64,
        SYS_getrandom,
        SYS_gettid,
        SYS_ioctl,
        SYS_lseek,
        SYS_madvise,
        SYS_mmap,
        SYS_mprotect,
        SYS_munmap,
        SYS_newfstatat,
        SYS_openat,
        SYS_prctl,
        SYS_pread64,
        SYS_read,
        SYS_rseq,
        SYS_rt_sigaction,
        SYS_rt_sigprocmask,
        SYS_rt_sigtimedwait,
        SYS_sched_getaffinity,
        SYS_set_robust_list,
        SYS_sigaltstack,
        SYS_statx,
        SYS_write,
        #[cfg(target_arch = "x86_64")]
        SYS_open,
        // The user of this process, by whom it knows its own files and peers.
        SYS_geteuid,
        // Seen now and then, and not in each count: blocks of memory that grow, the limit of memory, links in `/sys`.
        SYS_mremap,
        SYS_prlimit64,
        #[cfg(target_arch = "x86_64")]
        SYS_readlink,
        #[cfg(not(target_arch = "x86_64"))]
        SYS_readlinkat,
        // The C library asks for the time by it where the kernel has no page for that.
        SYS_clock_gettime,
        // A process that aborts: no memory is left, or a panic happens in a panic.
        SYS_getpid,
        // Where a handler of a signal ends.
        SYS_rt_sigreturn,
        // A call that waited when its process was stopped goes on by this one.
        SYS_restart_syscall,
        // musl has these where glibc has others: names of files, and a thread that signals itself.
        #[cfg(all(target_env = "musl", target_arch = "x86_64"))]
        SYS_lstat,
        #[cfg(all(target_env = "musl", target_arch = "x86_64"))]
        SYS_stat,
        #[cfg(target_env = "musl")]
        SYS_readv,
        #[cfg(target_env = "musl")]
        SYS_tkill,
        #[cfg(target_env = "musl")]
        SYS_writev,
    ];

    const CALLER: &[Call] = calls![
        // Is a directory a mount of plat's?
        SYS_fstatfs,
        // Owners of files that are made, of mounts and of what is asked for them.
        SYS_getegid,
        SYS_getgid,
        SYS_getuid,
        // Links below open directories, and locks that wait.
        #[cfg(target_arch = "x86_64")]
        SYS_readlinkat,
        SYS_sched_yield,
        // What waits for requests over a ring, for a host or for the name of one.
        SYS_ppoll,
        #[cfg(target_arch = "x86_64")]
        SYS_poll,
        // A bar on a terminal: is this job in front?
        #[cfg(target_arch = "x86_64")]
        SYS_getpgrp,
        #[cfg(target_arch = "aarch64")]
        SYS_getpgid,
    ];

    const BYTES: &[Call] = calls![SYS_fallocate, SYS_fdatasync, SYS_pwrite64,];

    const IMAGE: &[Call] = calls![
        SYS_ftruncate,
        // The mark that keeps other hosts off (MMP) names this host, and is read again from the disk, past the kernel's pages.
        SYS_fadvise64,
        SYS_uname,
    ];

    const OUTPUT: &[Call] = calls![
        SYS_fchmod,
        SYS_fsync,
        SYS_ftruncate,
        SYS_linkat,
        SYS_mkdirat,
        SYS_renameat,
        SYS_unlinkat,
        // An output is not to replace anything.
        SYS_renameat2,
        // A cache has a place that is named by the working directory, and fills only a part of what is free.
        SYS_getcwd,
        SYS_statfs,
    ];

    const ATTRIBUTES: &[Call] = calls![
        SYS_fchownat,
        SYS_fsetxattr,
        SYS_mknodat,
        SYS_symlinkat,
        SYS_utimensat,
        // Modes of devices, pipes and sockets are set by names of open files in `/proc`, and so are attributes.
        #[cfg(target_arch = "x86_64")]
        SYS_chmod,
        #[cfg(target_arch = "aarch64")]
        SYS_fchmodat,
        SYS_setxattr,
    ];

    const SOURCES: &[Call] = calls![
        SYS_copy_file_range,
        SYS_fgetxattr,
        SYS_flistxattr,
        // By names of open files in `/proc`: of devices, pipes and sockets.
        SYS_getxattr,
        SYS_lgetxattr,
        SYS_listxattr,
        SYS_llistxattr,
        // A name in a layout leads through links.
        SYS_openat2,
    ];

    const REMOVE: &[Call] = calls![SYS_unlinkat,];

    const ANSWER: &[Call] = calls![
        SYS_accept4,
        SYS_getsockopt,
        SYS_recvfrom,
        SYS_sendto,
        SYS_setsockopt,
        SYS_shutdown,
        // Pages that a client will read next.
        SYS_fadvise64,
    ];

    const FUSE: &[Call] = calls![
        SYS_chdir,
        SYS_fsetxattr,
        SYS_getcwd,
        SYS_getpriority,
        SYS_recvmsg,
        SYS_sched_setscheduler,
        SYS_sendmsg,
        SYS_setpriority,
        SYS_setsid,
        SYS_umask,
        SYS_wait4,
        SYS_writev,
        #[cfg(target_arch = "x86_64")]
        SYS_dup2,
        #[cfg(target_arch = "aarch64")]
        SYS_dup3,
        // Capabilities of a caller of root's, where the mount checks permissions; binding threads to a processor.
        SYS_capget,
        SYS_sched_setaffinity,
    ];

    const RING: &[Call] = calls![SYS_io_uring_enter, SYS_io_uring_register, SYS_io_uring_setup,];

    const NETWORK: &[Call] = calls![
        SYS_bind,
        SYS_connect,
        SYS_epoll_create1,
        SYS_epoll_ctl,
        SYS_epoll_pwait,
        SYS_eventfd2,
        SYS_getpeername,
        SYS_getsockname,
        SYS_pipe2,
        SYS_sendmmsg,
        SYS_socket,
        SYS_socketpair,
        SYS_recvmsg,
        SYS_sendmsg,
        // What asks for the names of hosts.
        SYS_faccessat,
        SYS_getcwd,
        SYS_readv,
        SYS_uname,
        SYS_writev,
        #[cfg(target_arch = "x86_64")]
        SYS_access,
        #[cfg(target_arch = "x86_64")]
        SYS_epoll_wait,
    ];

    fn of(group: Group) -> &'static [Call] {
        match group {
            Group::Caller => CALLER,
            Group::Bytes => BYTES,
            Group::Image => IMAGE,
            Group::Output => OUTPUT,
            Group::Attributes => ATTRIBUTES,
            Group::Sources => SOURCES,
            Group::Remove => REMOVE,
            Group::Answer => ANSWER,
            Group::Fuse => FUSE,
            Group::Ring => RING,
        }
    }

    /// A rule for calls with this argument, as far as the mask shows it.
    pub(in super::super) fn with(argument: u8, mask: u64, value: u64) -> Result<Vec<SeccompRule>, Error> {
        let compared = SeccompCmpOp::MaskedEq(mask);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compared, value)?;
        Ok(vec![SeccompRule::new(vec![condition])?])
    }

    /// A rule for calls whose argument is none of these.
    pub(in super::super) fn is_other_than(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, Error> {
        let differs =
            |value: &u64| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *value);
        Ok(vec![SeccompRule::new(values.iter().map(differs).collect::<Result<_, _>>()?)?])
    }

    /// Rules for calls whose argument is one of these.
    pub(in super::super) fn is_one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, Error> {
        let rules = values.iter().map(|value| with(argument, u64::from(u32::MAX), *value));
        Ok(rules.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Typing into a terminal, and having signals sent (`asm-generic/ioctls.h`, `asm-generic/sockios.h`): TIOCSTI, TIOCLINUX,
    /// FIOSETOWN, SIOCSPGRP.
    pub(in super::super) const NO_IOCTLS: &[u64] = &[0x5412, 0x541c, 0x8901, 0x8902];
    /// Having signals sent: F_SETOWN, F_SETSIG, F_SETOWN_EX (`asm-generic/fcntl.h`).
    pub(in super::super) const NO_FCNTLS: &[u64] = &[8, 10, 15];

    pub(in super::super) fn errno(number: i32) -> SeccompAction {
        SeccompAction::Errno(number.unsigned_abs())
    }

    /// The lists of a plan.
    fn lists(groups: &[Group], network: bool) -> impl Iterator<Item = &'static Call> {
        let lists = [EVERY].into_iter().chain(groups.iter().map(|group| of(*group)));
        let for_network = network.then_some([NETWORK, ANSWER]);
        lists.chain(for_network.into_iter().flatten()).flatten()
    }

    /// Restricts this thread, and those that it starts.
    pub(in super::super) fn restrict(plan: &Plan) -> Result<(), Error> {
        let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
            lists(&plan.calls, plan.network).map(|(_, number)| (*number, Vec::new())).collect();
        let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
        rules.insert(libc::SYS_clone, with(0, thread, thread)?);
        let own = u64::from(std::process::id());
        let all = u64::from(u32::MAX);
        rules.insert(libc::SYS_tgkill, with(0, all, own)?);
        rules.insert(libc::SYS_prlimit64, [with(0, all, 0)?, with(0, all, own)?].concat());
        rules.insert(libc::SYS_ioctl, is_other_than(1, NO_IOCTLS)?);
        rules.insert(libc::SYS_fcntl, is_other_than(1, NO_FCNTLS)?);
        if plan.network {
            let family = |family: i32| with(0, all, u64::from(family.cast_unsigned()));
            rules.insert(libc::SYS_socket, [family(libc::AF_INET)?, family(libc::AF_INET6)?].concat());
        }
        apply(rules, errno(libc::EPERM), SeccompAction::Allow)
    }

    /// Answers calls of which there are rules in one way, and all others in another. Threads are made by `clone` only.
    pub(in super::super) fn apply(
        rules: BTreeMap<c_long, Vec<SeccompRule>>,
        others: SeccompAction,
        listed: SeccompAction,
    ) -> Result<(), Error> {
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let unknown = SeccompFilter::new(unknown, SeccompAction::Allow, errno(libc::ENOSYS), arch)?;
        let listed = SeccompFilter::new(rules, others, listed, arch)?;
        // The stricter answer of the two counts.
        for filter in [unknown, listed] {
            apply_filter(&BpfProgram::try_from(filter)?)?;
        }
        Ok(())
    }

    #[cfg(test)]
    mod tests {
        use std::collections::BTreeSet;

        use super::*;

        /// Calls that `scripts/count-calls.sh` has seen of processes in cages: a kind and a call in each line.
        #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
        const COUNTED: &str = include_str!("counted.txt");

        /// Kinds of the count, with what their plans have, and tenths of what was seen that they may allow at most.
        #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
        const KINDS: [(&str, &[Group], usize); 7] = [
            ("read", &[Group::Caller], 15),
            ("output", &[Group::Caller, Group::Bytes, Group::Output, Group::Attributes], 16),
            ("write", &[Group::Caller, Group::Bytes, Group::Image, Group::Output], 16),
            ("make", &[Group::Caller, Group::Bytes, Group::Image, Group::Output, Group::Sources], 17),
            ("store", &[Group::Caller, Group::Bytes, Group::Image, Group::Output], 14),
            ("mount", &[Group::Caller, Group::Bytes, Group::Image, Group::Answer, Group::Fuse], 12),
            ("serve", &[Group::Bytes, Group::Answer, Group::Remove], 12),
        ];

        fn names(groups: &[Group]) -> BTreeSet<&'static str> {
            let listed = lists(groups, false).map(|(name, _)| name.trim_start_matches("SYS_"));
            // These have rules of their own; the first is said not to exist.
            listed.filter(|name| *name != "clone3").chain(["clone", "tgkill"]).collect()
        }

        #[test]
        #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
        fn what_was_counted_is_allowed_and_little_else() {
            for (kind, groups, most) in KINDS {
                let allowed = names(groups);
                let lines = COUNTED.lines().filter_map(|line| line.split_once(' '));
                let seen: BTreeSet<&str> =
                    lines.filter(|(of, _)| *of == kind).map(|(_, name)| name).collect();
                let refused: Vec<_> = seen.difference(&allowed).collect();
                assert!(refused.is_empty(), "{kind}: {refused:?} are refused");
                let unseen: Vec<_> = allowed.difference(&seen).collect();
                println!("{kind}: {} allowed, {} seen; not seen: {unseen:?}", allowed.len(), seen.len());
                assert!(allowed.len() * 10 <= seen.len() * most, "{kind}: {unseen:?} were never seen");
            }
        }

        #[test]
        fn no_list_has_a_call_that_reaches_other_programs() {
            let all =
                [Group::Bytes, Group::Image, Group::Output, Group::Attributes, Group::Sources, Group::Remove];
            let all = [&all[..], &[Group::Caller, Group::Answer, Group::Fuse, Group::Ring]].concat();
            let allowed = names(&all);
            let never =
                ["execve", "execveat", "fork", "vfork", "ptrace", "kill", "mount", "setns", "unshare"];
            let never = [&never[..], &["socket", "connect", "process_vm_writev", "bpf", "keyctl"]].concat();
            assert!(never.iter().all(|name| !allowed.contains(name)));
        }
    }
}
