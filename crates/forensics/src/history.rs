//! Past contents of blocks, by the transactions that still lie in the journal.
//!
//! Owns: the order of the transactions, the copies of each block in that order, and from where on nothing is missing.
//! Excludes: what the copies mean.

use std::collections::HashMap;

use ondisk::units::Block;
use platfs_device::Result;

use crate::log::{Copy, Journal, State, Transaction};
use crate::raw_image::RawImage;

/// A moment: the number of a transaction in the order in which they were written, from 1; 0 is before all of them.
pub type When = usize;

/// Transactions that follow each other in numbers have at most this distance. Linux leaves numbers out when a volume is
/// mounted.
const GAP_MAX: u32 = 3;

/// The past of a volume.
pub struct History {
    journal: Option<Journal>,
    /// Those that were committed, in order; the place of each in the journal's list.
    order: Vec<usize>,
    copies: HashMap<u64, Vec<(When, Copy)>>,
    revoked: HashMap<u64, Vec<When>>,
    /// From this moment on every transaction is there, up to now.
    whole_from: When,
}

impl History {
    /// Reads the journal of a volume as it stands on its device, before any replay.
    ///
    /// # Errors
    /// As [`Journal::read`].
    pub fn read(image: &RawImage) -> Result<History> {
        let journal = Journal::read(image)?;
        let transactions = journal.as_ref().map_or(&[][..], |journal| &journal.transactions);
        let order: Vec<usize> =
            (0..transactions.len()).filter(|at| transactions.get(*at).is_some_and(counts)).collect();
        let mut copies: HashMap<u64, Vec<(When, Copy)>> = HashMap::new();
        let mut revoked: HashMap<u64, Vec<When>> = HashMap::new();
        let past: Vec<&Transaction> = order.iter().filter_map(|at| transactions.get(*at)).collect();
        for (when, transaction) in (1..).zip(&past) {
            for copy in &transaction.copies {
                copies.entry(copy.block.0).or_default().push((when, *copy));
            }
            for block in &transaction.revoked {
                revoked.entry(*block).or_default().push(when);
            }
        }
        let first = journal.as_ref().map_or(0, |journal| journal.superblock().s_first.get());
        let mut whole_from = whole_from(&past, first);
        if let (Some(journal), Some(last)) = (&journal, past.last()) {
            whole_from = if is_up_to_date(image, journal, last) { whole_from } else { past.len() + 1 };
        }
        Ok(History { journal, order, copies, revoked, whole_from })
    }

    /// The moment of the last transaction.
    #[must_use]
    pub fn now(&self) -> When {
        self.order.len()
    }

    /// True if nothing of what happened at a moment and after it can be missing.
    #[must_use]
    pub fn is_whole_from(&self, when: When) -> bool {
        when >= self.whole_from && when > 0
    }

    /// When the transaction of a moment was committed, in seconds since 1970.
    #[must_use]
    pub fn seconds(&self, when: When) -> Option<u64> {
        let journal = self.journal.as_ref()?;
        let transaction = journal.transactions.get(*self.order.get(when.checked_sub(1)?)?)?;
        Some(transaction.time?.seconds)
    }

    /// The copies of a block, oldest first.
    #[must_use]
    pub fn copies(&self, block: Block) -> &[(When, Copy)] {
        self.copies.get(&block.0).map_or(&[], |copies| copies)
    }

    /// The blocks of which there are copies, in no order.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.copies.keys().copied().map(Block)
    }

    /// When copies of a block were revoked.
    #[must_use]
    pub fn revoked(&self, block: Block) -> &[When] {
        self.revoked.get(&block.0).map_or(&[], |revoked| revoked)
    }

    /// The bytes of a copy.
    ///
    /// # Errors
    /// The device's failure.
    pub fn contents(&self, copy: &Copy) -> Result<Vec<u8>> {
        self.journal.as_ref().map_or_else(|| Ok(Vec::new()), |journal| journal.contents(copy))
    }

    /// True if a block lies in the journal itself.
    #[must_use]
    pub fn has_journal(&self) -> bool {
        self.journal.is_some()
    }
}

/// True if what a transaction holds was once on the volume, or will be.
fn counts(transaction: &Transaction) -> bool {
    transaction.state != State::Cut && transaction.problems.is_empty()
}

/// From which moment on every transaction is followed by the next.
fn whole_from(past: &[&Transaction], first: u32) -> When {
    let mut from = past.len().max(1);
    for (at, pair) in past.windows(2).enumerate().rev() {
        let &[one, next] = pair else { break };
        if !follows(one, next, past.get(at + 1..).unwrap_or_default(), first) {
            break;
        }
        from = at + 1;
    }
    // Of one whose beginning is lost not all copies are there.
    while past.get(from.wrapping_sub(1)).is_some_and(|one| one.beginning_lost) {
        from += 1;
    }
    from
}

/// True if no transaction can have been between two.
fn follows(one: &Transaction, next: &Transaction, later: &[&Transaction], first: u32) -> bool {
    let distance = next.sequence.wrapping_sub(one.sequence);
    let is_next = next.first == one.end;
    // What would have followed has not been written over: it would still be there.
    let is_bare = next.first == first && !later.iter().any(|other| covers(other, one.end));
    !next.beginning_lost && (distance == 1 || distance <= GAP_MAX && distance > 0 && (is_next || is_bare))
}

/// True if a block of the log was written by a transaction.
fn covers(transaction: &Transaction, at: u32) -> bool {
    let Transaction { first, end, .. } = *transaction;
    if first < end { (first..end).contains(&at) } else { at >= first || at < end }
}

/// True if the volume has not been changed since its last transaction, as far as its superblock and that of its
/// journal tell.
fn is_up_to_date(image: &RawImage, journal: &Journal, last: &Transaction) -> bool {
    let raw = journal.superblock();
    let distance = raw.s_sequence.get().wrapping_sub(last.sequence);
    let checked = image.superblock().times().checked;
    let committed = last.time.map_or(0, |time| time.seconds);
    (!raw.is_clean() || (1..=GAP_MAX).contains(&distance)) && checked <= committed
}
