//! Under which policies the inodes of a volume are encrypted: a number for each policy, and for each inode
//! that of its own.
//!
//! Memory, on volumes with encrypted files only: half a byte per inode, sixteen times as much from the
//! fifteenth policy on; some hundred bytes per policy.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ondisk::units::{InodeNumber, saturated};

use super::paged::{Budget, Counters};

/// Most policies that are kept apart; beyond that all count as one.
const MOST: usize = 60_000;

/// A policy: the context of an inode without the number that only the inode has.
fn policy(context: &[u8]) -> &[u8] {
    let len = match context.first() {
        Some(1) => 12,
        Some(2) => 24,
        _ => context.len(),
    };
    context.get(..len).unwrap_or(context)
}

/// Policies and the inodes that have them.
pub(super) struct Policies {
    known: Mutex<HashMap<Box<[u8]>, u16>>,
    of: Counters,
}

impl Policies {
    pub(super) fn within(inodes: u64, budget: &Arc<Budget>) -> Self {
        Policies { known: Mutex::default(), of: Counters::within(inodes, budget) }
    }

    /// Notes the context of an encrypted inode.
    pub(super) fn note(&self, inode: InodeNumber, context: &[u8]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let next = saturated::<u16>(known.len().min(MOST) + 1);
        let number = match known.get(policy(context)) {
            Some(number) => *number,
            None if known.len() < MOST => *known.entry(policy(context).into()).or_insert(next),
            None => next,
        };
        self.of.store(u64::from(inode.index()), number);
    }

    /// Says that an inode is not encrypted after all.
    pub(super) fn forget(&self, inode: InodeNumber) {
        self.of.store(u64::from(inode.index()), 0);
    }

    /// Returns true if two inodes are encrypted alike.
    pub(super) fn agree(&self, one: InodeNumber, other: InodeNumber) -> bool {
        self.of.read(u64::from(one.index())) == self.of.read(u64::from(other.index()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_inode_has_makes_no_difference() {
        let policies = Policies::within(100, &Budget::endless());
        let context = |key: u8, nonce: u8| {
            let mut context = vec![2, 1, 4, 2, 0, 0, 0, 0];
            context.extend([key; 16]);
            context.extend([nonce; 16]);
            context
        };
        let [a, b, c, d] = [12, 13, 14, 15].map(InodeNumber::constant);
        policies.note(a, &context(1, 1));
        policies.note(b, &context(1, 2));
        policies.note(c, &context(2, 1));
        assert!(policies.agree(a, b));
        assert!(!policies.agree(a, c));
        assert!(!policies.agree(a, d));
    }
}
