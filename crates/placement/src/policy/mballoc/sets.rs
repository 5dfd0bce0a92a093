//! Groups sorted by what they offer: by largest free order, and by mean free run.

use std::collections::{BTreeMap, BTreeSet};

/// Sets of groups under a small number. Within a set, groups are visited in the order in which
/// they came, as in the lists of 6.1 to 6.16, or by number, as in the arrays of 6.17.
#[derive(Default)]
pub(super) struct Sets {
    by_age: BTreeMap<u32, BTreeMap<u64, u32>>,
    by_number: BTreeMap<u32, BTreeSet<u32>>,
    places: BTreeMap<u32, (u32, u64)>,
    clock: u64,
}

impl Sets {
    /// Puts a group under `key`, or nowhere.
    pub(super) fn insert(&mut self, group: u32, key: Option<u32>) {
        let before = self.places.get(&group).copied();
        if before.map(|(key, _)| key) == key {
            return;
        }
        if let Some((old, stamp)) = before {
            let ages = self.by_age.get_mut(&old).and_then(|set| set.remove(&stamp));
            debug_assert_eq!(ages, Some(group), "a group is in the set of its key");
            let is_there = self.by_number.get_mut(&old).is_some_and(|set| set.remove(&group));
            debug_assert!(is_there, "both orders have the same groups");
            self.places.remove(&group);
        }
        if let Some(key) = key {
            self.clock += 1;
            self.by_age.entry(key).or_default().insert(self.clock, group);
            self.by_number.entry(key).or_default().insert(group);
            self.places.insert(group, (key, self.clock));
        }
    }

    /// Groups under `key`, those that came first before the others.
    pub(super) fn by_age(&self, key: u32) -> impl Iterator<Item = u32> + '_ {
        self.by_age.get(&key).into_iter().flat_map(|set| set.values().copied())
    }

    /// Groups under `key` from `from` to before `to`, rising.
    pub(super) fn by_number(&self, key: u32, from: u32, to: u32) -> impl Iterator<Item = u32> + '_ {
        self.by_number.get(&key).into_iter().flat_map(move |set| set.range(from..to).copied())
    }
}
