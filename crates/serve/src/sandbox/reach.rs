//! Refusals for commands on a mount, which may open any file that their users name: other programs and processes, the
//! network, and changes of the system.
//!
//! Owns: the list of calls that such a command is refused. Excludes the lists of cages (`calls`), which name what is
//! allowed: here all else is.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) use known::restrict;

/// There is no list for this processor.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(super) fn restrict() -> Result<(), ()> {
    Err(())
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod known {
    use std::collections::BTreeMap;

    use libc::c_long;
    use seccompiler::{Error, SeccompAction, SeccompRule};

    use super::super::calls::{apply, errno, is_one_of, is_other_than, with};

    /// Calls that start programs, reach other processes, or change the system.
    const NEVER: &[c_long] = &[
        libc::SYS_acct,
        libc::SYS_add_key,
        libc::SYS_adjtimex,
        libc::SYS_bind,
        libc::SYS_bpf,
        libc::SYS_chroot,
        libc::SYS_clock_adjtime,
        libc::SYS_clock_settime,
        libc::SYS_delete_module,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_finit_module,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fsopen,
        libc::SYS_fspick,
        libc::SYS_init_module,
        libc::SYS_io_uring_setup,
        libc::SYS_kcmp,
        libc::SYS_kexec_load,
        libc::SYS_keyctl,
        libc::SYS_kill,
        libc::SYS_listen,
        libc::SYS_migrate_pages,
        libc::SYS_mount,
        libc::SYS_mount_setattr,
        libc::SYS_move_mount,
        libc::SYS_move_pages,
        libc::SYS_open_by_handle_at,
        libc::SYS_open_tree,
        libc::SYS_perf_event_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_send_signal,
        libc::SYS_pivot_root,
        libc::SYS_process_madvise,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_ptrace,
        libc::SYS_quotactl,
        libc::SYS_reboot,
        libc::SYS_request_key,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_setdomainname,
        libc::SYS_sethostname,
        libc::SYS_setns,
        libc::SYS_settimeofday,
        libc::SYS_swapoff,
        libc::SYS_swapon,
        libc::SYS_umount2,
        libc::SYS_unshare,
        libc::SYS_userfaultfd,
        // musl raises signals of its own thread by it.
        #[cfg(not(target_env = "musl"))]
        libc::SYS_tkill,
        #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
        libc::SYS_kexec_file_load,
        #[cfg(target_env = "gnu")]
        libc::SYS_process_mrelease,
        #[cfg(target_env = "gnu")]
        libc::SYS_quotactl_fd,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_ioperm,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_iopl,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork,
    ];

    /// The second numbers that x86-64 has for each call (x32), and calls with numbers of their own among them: `execve`,
    /// `ptrace`, `rt_sigqueueinfo`, `kexec_load`, `move_pages`, `rt_tgsigqueueinfo`, `process_vm_readv` and `writev`,
    /// `execveat`.
    #[cfg(target_arch = "x86_64")]
    const SECOND: c_long = 0x4000_0000;
    #[cfg(target_arch = "x86_64")]
    const OF_SECOND: [c_long; 9] = [520, 521, 524, 528, 533, 536, 539, 540, 545];

    /// Restricts this thread, and those that it starts.
    pub(in super::super) fn restrict() -> Result<(), Error> {
        let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
            NEVER.iter().map(|number| (*number, Vec::new())).collect();
        let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
        rules.insert(libc::SYS_clone, with(0, thread, 0)?);
        let own = u64::from(std::process::id());
        rules.insert(libc::SYS_tgkill, is_other_than(0, &[own])?);
        rules.insert(libc::SYS_prlimit64, is_other_than(0, &[0, own])?);
        // The channel of a mount is such a socket.
        rules.insert(libc::SYS_socket, is_other_than(0, &[u64::from(libc::AF_UNIX.cast_unsigned())])?);
        rules.insert(libc::SYS_ioctl, is_one_of(1, super::super::calls::NO_IOCTLS)?);
        rules.insert(libc::SYS_fcntl, is_one_of(1, super::super::calls::NO_FCNTLS)?);
        #[cfg(target_arch = "x86_64")]
        {
            let again: Vec<_> = rules.iter().map(|(number, rule)| (number | SECOND, rule.clone())).collect();
            rules.extend(again);
            rules.extend(OF_SECOND.iter().map(|number| (number | SECOND, Vec::new())));
            rules.insert(SECOND | 514, is_one_of(1, super::super::calls::NO_IOCTLS)?); // `ioctl`
            rules.insert(SECOND | libc::SYS_clone3, Vec::new());
        }
        apply(rules, SeccompAction::Allow, errno(libc::EPERM))
    }
}
