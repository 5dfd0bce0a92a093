//! The cage of this process: all that it gives up before it looks at bytes of a stranger.
//!
//! | module | owns |
//! | --- | --- |
//! | `paths` | files, the network and signals, by Landlock |
//! | `calls` | system calls, by seccomp |
//! | `reach` | system calls that are refused to commands on a mount, which enter no cage |
//! | `planted` | for tests, in no release: what a program in a stranger's hands would try |
//!
//! Owns: the plan of a cage as plain data, its order, and the account of what holds. Excludes which server or command needs
//! what: they hand in a plan. Both parts hold for the thread that enters and for those that it starts later, so that a cage is
//! entered before there are others. There is no way out.

mod calls;
mod paths;
#[cfg(debug_assertions)]
mod planted;
mod reach;

use std::path::PathBuf;
use std::sync::OnceLock;

pub use calls::Group;
use platfs::rights::Powers;
use platfs_open::process;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Extent of a cage that there must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// None.
    Off,
    /// As much as this kernel has.
    #[default]
    Auto,
    /// All of it: without, nothing is done.
    Require,
}

impl Mode {
    /// The modes by their names.
    pub const NAMES: [(&'static str, Mode); 3] =
        [("auto", Mode::Auto), ("off", Mode::Off), ("require", Mode::Require)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, mode)| *mode == self).map_or("auto", |(name, _)| name)
    }
}

/// Things that a process keeps. Without network it has no sockets but those that are open.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Files, and directories with all below them, that are read.
    pub reads: Vec<PathBuf>,
    /// Files that are written as well, and directories in which anything is made.
    pub writes: Vec<PathBuf>,
    /// Directories that are listed, with all below them.
    pub lists: Vec<PathBuf>,
    /// Directories from which files are removed.
    pub removes: Vec<PathBuf>,
    /// It connects to servers.
    pub network: bool,
    /// System calls beside those of every process.
    pub calls: Vec<Group>,
    /// Capabilities, as far as it has them.
    pub keeps: CapabilitySet,
}

impl Default for Plan {
    fn default() -> Self {
        let [reads, writes, lists, removes] = [const { Vec::new() }; 4];
        let (network, calls, keeps) = (false, Vec::new(), CapabilitySet::empty());
        Plan { reads, writes, lists, removes, network, calls, keeps }
    }
}

/// The cage that holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    landlock: u8,
    seccomp: bool,
    kept: CapabilitySet,
}

static BEFORE: OnceLock<CapabilitySet> = OnceLock::new();
static HELD: OnceLock<Held> = OnceLock::new();

/// Least version of Landlock that holds all writing: an earlier one lets files be cut off.
const LEAST: u8 = 3;

/// Gives up all that is not in the plan.
///
/// # Errors
/// With [`Mode::Require`], the part that can't be had.
pub fn enter(plan: &Plan, mode: Mode) -> Result<(), String> {
    if !process::is_own() || HELD.get().is_some() {
        return Ok(());
    }
    let pretender = pretender();
    if let Some(name) = pretender.filter(|_| mode == Mode::Require) {
        return Err(format!(
            "{name} answers system calls of this process (LD_PRELOAD), and makes others, so that no cage holds"
        ));
    }
    if mode == Mode::Off || pretender.is_some() {
        #[cfg(debug_assertions)]
        planted::run();
        return Ok(());
    }
    let _ = BEFORE.set(effective());
    let _ = rustix::thread::set_no_new_privs(true);
    process::leave_no_core();
    let landlock = paths::restrict(plan);
    let kept = keep(plan.keeps);
    let seccomp = calls::restrict(plan);
    let lacking = [
        ("Landlock", landlock.as_ref().is_ok_and(|version| *version >= LEAST)),
        ("capabilities that can be given up", kept.is_some()),
        ("seccomp for this processor", seccomp.is_ok()),
    ];
    let held = Held {
        landlock: landlock.unwrap_or(0),
        seccomp: seccomp.is_ok(),
        kept: kept.unwrap_or_else(effective),
    };
    let _ = HELD.set(held);
    #[cfg(debug_assertions)]
    planted::run();
    match lacking.iter().find(|(_, there)| !there) {
        Some((what, _)) if mode == Mode::Require => {
            Err(format!("the kernel has no {what} for a cage; `--sandbox=auto` goes on with what there is"))
        }
        _ => Ok(()),
    }
}

/// A library that pretends to this process that it is root: it asks a process of its own by calls that no cage allows.
fn pretender() -> Option<&'static str> {
    const NAMES: [&str; 3] = ["libfakeroot", "libfakechroot", "libpseudo"];
    let preloaded = std::env::var_os("LD_PRELOAD")?.to_string_lossy().into_owned();
    NAMES.into_iter().find(|name| preloaded.contains(name))
}

/// The capabilities of this process before it gave any up, which say whose server it is.
#[must_use]
pub fn powers_before() -> Powers {
    Powers::from_bits(BEFORE.get().copied().unwrap_or_else(effective).bits())
}

/// Account of the cage that holds, for people; `none` where none does.
#[must_use]
pub fn account() -> String {
    let Some(held) = HELD.get() else { return "none".to_owned() };
    let landlock = (held.landlock > 0).then(|| format!("landlock {}", held.landlock));
    let seccomp = held.seccomp.then(|| "seccomp".to_owned());
    let kept: Vec<String> = held.kept.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
    let kept = if kept.is_empty() {
        "no capabilities".to_owned()
    } else {
        format!("capabilities {}", kept.join(" "))
    };
    landlock.into_iter().chain(seccomp).chain([kept]).collect::<Vec<_>>().join(", ")
}

/// Gives up what no command on a mount needs: other programs and processes, the network, and changes of the system. Files
/// stay, and so do the capabilities, by which the mount's server judges what the command may do.
pub fn give_up_others(mode: Mode) {
    if !process::is_own() || HELD.get().is_some() {
        return;
    }
    if mode != Mode::Off && pretender().is_none() {
        let _ = rustix::thread::set_no_new_privs(true);
        process::leave_no_core();
        // A kernel without it leaves all as it was.
        let _ = reach::restrict();
    }
    #[cfg(debug_assertions)]
    planted::run();
}

fn effective() -> CapabilitySet {
    rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

/// Gives up all other capabilities; those that are left.
fn keep(wanted: CapabilitySet) -> Option<CapabilitySet> {
    let now = rustix::thread::capabilities(None).ok()?;
    let left = |set: CapabilitySet| set & wanted;
    let sets = CapabilitySets {
        effective: left(now.effective),
        permitted: left(now.permitted),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).ok()?;
    Some(sets.effective)
}
