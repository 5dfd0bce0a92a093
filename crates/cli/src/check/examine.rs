//! A check with its repairs in memory, and the second look at what came of them: whether a volume is repaired is
//! found out, never assumed.

use std::sync::Arc;

use platfs::check::{Options, Outcome, Summary, check};
use platfs::device::Device;

use super::findings::{Findings, Listener, Policy};
use super::progress::Meter;
use crate::console::Failure;
use crate::reading::no_superblock;
use platfs_open::names::Names;

/// Checks of what was repaired in memory: repairs of repairs settle in the first or the second.
const ROUNDS: usize = 5;

/// A check that was made, with its repairs in memory.
pub struct Made {
    /// Issues that were found.
    pub findings: Findings,
    /// Paths of what it is about.
    pub names: Names,
    /// The volume as it was repaired in memory.
    pub outcome: Outcome,
    /// Number of issues that a look at the repaired volume still finds.
    pub left: u64,
    /// True if each repair, also those of later looks, loses nothing.
    pub safe: bool,
}

/// Checks a device, and repairs it in memory as `policy` says. What was repaired is looked at again: without questions
/// it is repaired further, until nothing is left or no more helps.
///
/// # Errors
/// There is nothing to check.
pub fn examine(
    device: &Arc<dyn Device>,
    name: &str,
    options: &Options,
    policy: Policy<'_>,
    meter: &mut Meter,
) -> Result<Made, Failure> {
    let failed = |error: platfs::Error| {
        let what = match &error {
            platfs::Error::Corrupt(_) => no_superblock(&**device, name, &error),
            _ => error.to_string(),
        };
        Failure::about(name, what)
    };
    let asked = matches!(policy, Policy::Ask(_));
    let mut listener = Listener::new(policy, meter);
    let outcome = check(Arc::clone(device), options, &mut listener).map_err(failed)?;
    let findings = listener.findings;
    let mut names =
        if findings.count() == 0 { Names::default() } else { Names::of(findings.inodes(), &outcome) };
    if !asked && names.lack_any(findings.inodes()) {
        // What a repair took away had its name before.
        let mut silent = Meter::silent();
        let mut looker = Listener::new(Policy::Look, &mut silent);
        let before = check(Arc::clone(device), options, &mut looker).map_err(failed)?;
        names.add(findings.inodes(), &before);
    }
    let safe = findings.all_safe();
    let mut made = Made { findings, names, outcome, left: 0, safe };
    if !made.outcome.repaired.is_unchanged() {
        let options = Options { superblock: None, ..options.clone() };
        second_look(&mut made, &options, asked, meter).map_err(failed)?;
    }
    Ok(made)
}

fn second_look(made: &mut Made, options: &Options, asked: bool, meter: &mut Meter) -> platfs::Result<()> {
    let rounds = if asked { 1 } else { ROUNDS };
    for _ in 0..rounds {
        let policy = if asked { Policy::Look } else { Policy::All };
        let mut listener = Listener::new(policy, meter);
        let device = Arc::clone(&made.outcome.repaired) as Arc<dyn Device>;
        let again = check(device, options, &mut listener)?;
        made.left = listener.findings.count();
        if made.left == 0 || asked {
            break;
        }
        made.safe &= listener.findings.all_safe();
        if again.repaired.is_unchanged() {
            break;
        }
        again.repaired.apply().map_err(|source| platfs::Error::io("repairing further in memory", source))?;
        made.outcome.summary = Summary {
            issues: made.outcome.summary.issues,
            repaired: made.outcome.summary.repaired,
            ..again.summary
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ondisk::group::RawGroupDescriptor;
    use platfs::device::MemoryDevice;
    use platfs::mkfs::{FsType, Options as MkfsOptions, Plan};

    use super::*;

    const SIZE: u64 = 8 << 20;
    /// Where the checksum of the superblock stands.
    const CHECKSUM: u64 = 1024 + 1020;

    /// An empty volume of which only the checksum of the superblock is wrong, checked once: all is safe.
    fn checked_once() -> Made {
        let device = MemoryDevice::new(SIZE);
        let mut options = MkfsOptions::new(FsType::Ext4);
        options.block_size = Some(4096);
        Plan::new(&options, SIZE).unwrap().write(&device).unwrap();
        let mut byte = [0];
        device.read_at(CHECKSUM, &mut byte).unwrap();
        device.write_at(CHECKSUM, &[byte[0] ^ 1]).unwrap();
        let device: Arc<dyn Device> = Arc::new(device);
        let options = Options::default();
        let made = examine(&device, "a.img", &options, Policy::All, &mut Meter::silent()).ok().unwrap();
        assert!(made.safe && made.left == 0 && made.findings.count() == 1);
        made
    }

    /// As if a repair had cleared the inode of lost+found, which is called 11 by its name still.
    fn harm(made: &Made) {
        let repaired = &made.outcome.repaired;
        let mut descriptor = [0; 64];
        repaired.read_at(4096, &mut descriptor).unwrap();
        let table = RawGroupDescriptor::parse(&descriptor).inode_table().0;
        repaired.write_at(table * 4096 + 10 * 256, &[0; 256]).unwrap();
    }

    /// Losses that only a later look finds count, though the first found nothing that loses anything.
    #[test]
    fn a_later_look_that_takes_something_away_is_not_safe() {
        let mut made = checked_once();
        harm(&made);
        second_look(&mut made, &Options::default(), false, &mut Meter::silent()).unwrap();
        assert_eq!((made.safe, made.left), (false, 0));
        // Where each is asked about nothing more is repaired, and it is left.
        let mut made = checked_once();
        harm(&made);
        second_look(&mut made, &Options::default(), true, &mut Meter::silent()).unwrap();
        assert!(made.left > 0);
    }
}
