//! System calls: what seccomp lets this process ask of the kernel.
//!
//! Owns: the lists, by what they are for. They stand for what strace shows of the tests with glibc; what musl calls beside is from its source
//! ([security](../../../../docs/security.md#cages)). A call that is not listed fails with EPERM, and nothing is killed: a
//! library that only tries one goes on without. Threads are made by `clone`, whose flags can be looked at: `clone3` is said
//! not to exist.

use super::Plan;

/// Purposes of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Writing an image that is open.
    Image,
    /// Making files.
    Output,
    /// Giving files owners, modes, times and attributes by their names. Landlock does not look at that: it holds for all files
    /// that this user may change.
    Attributes,
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
pub(super) use known::restrict;

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

    /// Memory, threads, time, signals, and reading files.
    const EVERY: &[c_long] = &[
        libc::SYS_brk,
        libc::SYS_capget,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_clone3,
        libc::SYS_close,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_faccessat,
        libc::SYS_fcntl,
        libc::SYS_fstat,
        libc::SYS_fstatfs,
        libc::SYS_ftruncate,
        libc::SYS_futex,
        libc::SYS_getdents64,
        libc::SYS_getcwd,
        libc::SYS_getegid,
        libc::SYS_geteuid,
        libc::SYS_getgid,
        libc::SYS_getpgid,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_gettid,
        libc::SYS_getuid,
        libc::SYS_ioctl,
        libc::SYS_lseek,
        libc::SYS_madvise,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_newfstatat,
        libc::SYS_openat,
        libc::SYS_prctl,
        libc::SYS_pread64,
        libc::SYS_prlimit64,
        libc::SYS_read,
        libc::SYS_readlinkat,
        libc::SYS_readv,
        // A call that waited when its process was stopped goes on by this one.
        libc::SYS_restart_syscall,
        libc::SYS_rseq,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_yield,
        libc::SYS_seccomp,
        libc::SYS_set_robust_list,
        libc::SYS_sigaltstack,
        libc::SYS_statx,
        libc::SYS_uname,
        libc::SYS_write,
        libc::SYS_writev,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_access,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_getpgrp,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lstat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_readlink,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat,
        #[cfg(target_arch = "aarch64")]
        libc::SYS_ppoll,
        // By which musl has a thread signal itself.
        #[cfg(target_env = "musl")]
        libc::SYS_tkill,
    ];

    const IMAGE: &[c_long] = &[
        libc::SYS_copy_file_range,
        libc::SYS_fallocate,
        libc::SYS_fdatasync,
        libc::SYS_flock,
        libc::SYS_fsync,
        libc::SYS_pwrite64,
        libc::SYS_pwritev,
    ];

    const OUTPUT: &[c_long] = &[
        libc::SYS_fchmod,
        libc::SYS_fchown,
        libc::SYS_fgetxattr,
        libc::SYS_flistxattr,
        libc::SYS_fremovexattr,
        libc::SYS_fsetxattr,
        libc::SYS_linkat,
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_renameat,
        libc::SYS_renameat2,
        libc::SYS_statfs,
        libc::SYS_symlinkat,
        libc::SYS_umask,
        libc::SYS_unlinkat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rmdir,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink,
    ];

    const ATTRIBUTES: &[c_long] = &[
        libc::SYS_fchmodat,
        libc::SYS_fchownat,
        // Of links, and by names of open files in `/proc`.
        libc::SYS_getxattr,
        libc::SYS_lgetxattr,
        libc::SYS_listxattr,
        libc::SYS_llistxattr,
        libc::SYS_lremovexattr,
        libc::SYS_lsetxattr,
        libc::SYS_removexattr,
        libc::SYS_setxattr,
        libc::SYS_utimensat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod,
    ];

    const REMOVE: &[c_long] = &[
        libc::SYS_unlinkat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink,
    ];

    const ANSWER: &[c_long] = &[
        libc::SYS_accept4,
        libc::SYS_fadvise64,
        libc::SYS_getsockopt,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_sendto,
        libc::SYS_setsockopt,
        libc::SYS_shutdown,
        libc::SYS_wait4,
    ];

    const FUSE: &[c_long] = &[
        libc::SYS_chdir,
        libc::SYS_dup3,
        libc::SYS_fgetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_getpriority,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_setpriority,
        libc::SYS_setsid,
        libc::SYS_umask,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2,
    ];

    const RING: &[c_long] =
        &[libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_io_uring_setup];

    const NETWORK: &[c_long] = &[
        libc::SYS_bind,
        libc::SYS_connect,
        libc::SYS_epoll_create1,
        libc::SYS_epoll_ctl,
        libc::SYS_epoll_pwait,
        libc::SYS_eventfd2,
        libc::SYS_getpeername,
        libc::SYS_getsockname,
        libc::SYS_pipe2,
        libc::SYS_sendmmsg,
        libc::SYS_socket,
        libc::SYS_socketpair,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait,
    ];

    fn of(group: Group) -> &'static [c_long] {
        match group {
            Group::Image => IMAGE,
            Group::Output => OUTPUT,
            Group::Attributes => ATTRIBUTES,
            Group::Remove => REMOVE,
            Group::Answer => ANSWER,
            Group::Fuse => FUSE,
            Group::Ring => RING,
        }
    }

    /// A rule for calls with this argument, as far as the mask shows it.
    fn with(argument: u8, mask: u64, value: u64) -> Result<Vec<SeccompRule>, Error> {
        let compared = SeccompCmpOp::MaskedEq(mask);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compared, value)?;
        Ok(vec![SeccompRule::new(vec![condition])?])
    }

    /// A rule for calls whose argument is none of these.
    fn without(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, Error> {
        let differs =
            |value: &u64| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *value);
        Ok(vec![SeccompRule::new(values.iter().map(differs).collect::<Result<_, _>>()?)?])
    }

    /// Typing into a terminal, and having signals sent (`asm-generic/ioctls.h`, `asm-generic/sockios.h`): TIOCSTI, TIOCLINUX,
    /// FIOSETOWN, SIOCSPGRP.
    const NO_IOCTLS: &[u64] = &[0x5412, 0x541c, 0x8901, 0x8902];
    /// Having signals sent: F_SETOWN, F_SETSIG, F_SETOWN_EX (`asm-generic/fcntl.h`).
    const NO_FCNTLS: &[u64] = &[8, 10, 15];

    fn errno(number: i32) -> SeccompAction {
        SeccompAction::Errno(number.unsigned_abs())
    }

    /// Restricts this thread, and those that it starts.
    pub(in super::super) fn restrict(plan: &Plan) -> Result<(), Error> {
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let unknown = SeccompFilter::new(unknown, SeccompAction::Allow, errno(libc::ENOSYS), arch)?;
        let lists = [EVERY].into_iter().chain(plan.calls.iter().map(|group| of(*group)));
        let network = plan.network.then_some(NETWORK);
        let lists = lists.chain(network).chain(plan.network.then_some(ANSWER));
        let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
            lists.flatten().map(|number| (*number, Vec::new())).collect();
        let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
        rules.insert(libc::SYS_clone, with(0, thread, thread)?);
        let own = u64::from(std::process::id());
        let all = u64::from(u32::MAX);
        rules.insert(libc::SYS_tgkill, with(0, all, own)?);
        rules.insert(libc::SYS_prlimit64, [with(0, all, 0)?, with(0, all, own)?].concat());
        rules.insert(libc::SYS_ioctl, without(1, NO_IOCTLS)?);
        rules.insert(libc::SYS_fcntl, without(1, NO_FCNTLS)?);
        if plan.network {
            let family = |family: i32| with(0, all, u64::from(family.cast_unsigned()));
            rules.insert(libc::SYS_socket, [family(libc::AF_INET)?, family(libc::AF_INET6)?].concat());
        }
        let listed = SeccompFilter::new(rules, errno(libc::EPERM), SeccompAction::Allow, arch)?;
        // The stricter answer of the two counts.
        for filter in [unknown, listed] {
            apply_filter(&BpfProgram::try_from(filter)?)?;
        }
        Ok(())
    }
}
