//! Sums over many images, and the table of what differed.

use std::collections::BTreeMap;
use std::fmt;

use super::trial::Finding;

/// Numbers of images kept as examples of a difference.
const EXAMPLES: usize = 4;

/// Sums.
#[derive(Default)]
pub struct Tally {
    images: u64,
    /// Of these, e2fsck found nothing.
    sound: u64,
    differs: u64,
    /// Images that could be repaired at all, of which these were not pleasing.
    repaired: u64,
    not_pleased: u64,
    not_settled: u64,
    refused: u64,
    lost: u64,
    broken: u64,
    slow: u64,
    rows: BTreeMap<String, (u64, Vec<u64>)>,
}

impl Tally {
    pub fn add(&mut self, number: u64, findings: Vec<Finding>) {
        self.images += 1;
        for finding in findings {
            let row = match finding {
                Finding::Sound => {
                    self.sound += 1;
                    continue;
                }
                Finding::Repaired => {
                    self.repaired += 1;
                    continue;
                }
                Finding::Missed { they } => {
                    self.differs += 1;
                    format!("1 only e2fsck: {they}")
                }
                Finding::Invented { we } => {
                    self.differs += 1;
                    format!("2 only we: {we}")
                }
                Finding::NotPleased { they, we } => {
                    self.not_pleased += 1;
                    format!("3 after our repair: {they} ({we})")
                }
                Finding::NotSettled { again, we } => {
                    self.not_settled += 1;
                    format!("4 our second run: {again} ({we})")
                }
                Finding::Lost { inode, we } => {
                    self.lost += 1;
                    format!("5 LOST: {inode} ({we})")
                }
                Finding::Refused { why, alone } => {
                    self.refused += 1;
                    self.differs += u64::from(alone);
                    format!("6 not checked by {}: {why}", if alone { "us" } else { "both" })
                }
                Finding::Broken { how } => {
                    self.broken += 1;
                    format!("0 BROKEN: {how}")
                }
                Finding::Slow => {
                    self.slow += 1;
                    "7 e2fsck takes too long".into()
                }
            };
            let (count, examples) = self.rows.entry(row).or_default();
            *count += 1;
            if examples.len() < EXAMPLES {
                examples.push(number);
            }
        }
    }

    fn judged(&self) -> u64 {
        self.images - self.slow
    }

    /// Fails with the table unless enough thousandths agree and satisfy e2fsck, every second run was silent,
    /// and nothing was lost.
    pub fn demand(&self, agreed: u64, pleased: u64) {
        let per_mille = |part: u64, whole: u64| (part * 1000).checked_div(whole).unwrap_or(1000);
        let agrees = per_mille(self.judged() - self.differs, self.judged());
        let pleases = per_mille(self.repaired - self.not_pleased, self.repaired);
        assert!(self.broken + self.lost + self.not_settled == 0, "{self}");
        assert!(agrees >= agreed && pleases >= pleased, "{self}");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        let judged = self.judged();
        writeln!(
            f,
            "{} images, {} sound, {} too slow for e2fsck\n{:.2} % agree ({} differ)",
            self.images,
            self.sound,
            self.slow,
            percent(judged - self.differs, judged),
            self.differs
        )?;
        writeln!(
            f,
            "{} repaired: {:.2} % e2fsck-clean, {:.2} % silent in our second run; {} refused, {} lost something, {} broken",
            self.repaired,
            percent(self.repaired - self.not_pleased, self.repaired),
            percent(self.repaired - self.not_settled, self.repaired),
            self.refused,
            self.lost,
            self.broken
        )?;
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(row, (count, _))| (row.as_bytes()[0], std::cmp::Reverse(*count)));
        for (row, (count, examples)) in rows {
            writeln!(f, "{count:>6}  {row}  {examples:?}")?;
        }
        Ok(())
    }
}
