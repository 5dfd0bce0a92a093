//! Soundness of a quota file: every way through its tree leads to a record, every record is led to, and its lists are
//! of blocks that belong there.
//!
//! Owns: what programs rely on that change such a file where it stands. Excludes: what the records say.

use std::collections::{BTreeMap, BTreeSet};

use super::parts::{self, Header};
use super::{QUOTA_BLOCK, QuotaKind, RECORDS_PER_BLOCK};

/// The first thing for which programs could not find, add or change a record; `None` where there is none.
#[must_use]
pub fn flaw(kind: QuotaKind, file: &[u8]) -> Option<String> {
    let found = Header::parse(kind, file, file.len() as u64).and_then(|header| {
        let mut tree = Tree { file, blocks: header.blocks, nodes: BTreeSet::new(), leaves: BTreeMap::new() };
        tree.walk()?;
        tree.leaves_are_whole()?;
        tree.leaves_with_room(header.free_leaf)?;
        tree.unused_blocks(header.free_block)
    });
    found.err()
}

struct Tree<'f> {
    file: &'f [u8],
    blocks: u32,
    nodes: BTreeSet<u32>,
    /// Number of ids that lead to each leaf.
    leaves: BTreeMap<u32, usize>,
}

impl<'f> Tree<'f> {
    fn block(&self, number: u32) -> Result<&'f [u8], String> {
        let at = (number as usize).saturating_mul(QUOTA_BLOCK);
        let bytes = at.checked_add(QUOTA_BLOCK).and_then(|end| self.file.get(at..end));
        bytes.ok_or_else(|| format!("block {number} is behind its end"))
    }

    /// Every way from the root to a leaf. No node is met twice, so that it ends.
    fn walk(&mut self) -> Result<(), String> {
        let mut waiting = vec![(parts::ROOT_BLOCK, 0, 0_u32)];
        while let Some((number, level, id)) = waiting.pop() {
            if !self.nodes.insert(number) {
                return Err(format!("block {number} stands in the tree twice"));
            }
            let node = self.block(number)?;
            for slot in 0..=u8::MAX {
                let below = parts::child(node, usize::from(slot));
                if below == 0 {
                    continue;
                }
                if below <= parts::ROOT_BLOCK || below >= self.blocks {
                    return Err(format!("block {number} leads to block {below} of {}", self.blocks));
                }
                let id = id << 8 | u32::from(slot);
                if level + 1 < parts::DEPTH {
                    waiting.push((below, level + 1, id));
                } else {
                    self.leaf(below, id)?;
                }
            }
        }
        Ok(())
    }

    fn leaf(&mut self, number: u32, id: u32) -> Result<(), String> {
        if parts::find(self.block(number)?, id).is_none() {
            return Err(format!("the leaf for id {id} has no record of it"));
        }
        *self.leaves.entry(number).or_default() += 1;
        Ok(())
    }

    fn leaves_are_whole(&self) -> Result<(), String> {
        for (number, ids) in &self.leaves {
            let leaf = self.block(*number)?;
            let (is, says) = (parts::count(leaf), parts::used(leaf));
            if self.nodes.contains(number) {
                return Err(format!("block {number} is a node and a leaf"));
            }
            if is != *ids || says != *ids {
                return Err(format!("leaf {number} has {is} records and counts {says}, of {ids} ids"));
            }
        }
        Ok(())
    }

    fn leaves_with_room(&self, first: u32) -> Result<(), String> {
        let (mut at, mut before) = (first, 0);
        for _ in 0..=self.leaves.len() {
            if at == 0 {
                return Ok(());
            }
            let leaf = self.block(at)?;
            let has = self.leaves.get(&at).copied().unwrap_or(0);
            let (next, back) = parts::links(leaf);
            // One to which nothing leads yet has no record.
            if parts::count(leaf) != has || parts::used(leaf) != has {
                return Err(format!("leaf {at} has records to which nothing leads"));
            }
            if self.nodes.contains(&at) || has >= RECORDS_PER_BLOCK || back != before {
                return Err(format!("block {at} has no room, and is listed as one with room"));
            }
            (at, before) = (next, at);
        }
        Err("its list of blocks with room does not end".to_owned())
    }

    fn unused_blocks(&self, first: u32) -> Result<(), String> {
        let mut at = first;
        for _ in 0..self.blocks {
            if at == 0 {
                return Ok(());
            }
            if self.nodes.contains(&at) || self.leaves.contains_key(&at) || at >= self.blocks {
                return Err(format!("block {at} is listed as unused"));
            }
            at = parts::links(self.block(at)?).0;
        }
        Err("its list of unused blocks does not end".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Usage, encode};
    use super::*;

    /// A file of 40 ids, far apart: nodes, a full leaf and one with room.
    fn file() -> Vec<u8> {
        let usage = (0..40).map(|id| (id * 777, Usage { bytes: 4096, inodes: 1 })).collect();
        encode(QuotaKind::User, &usage)
    }

    fn flaw_with(edit: impl FnOnce(&mut [u8], &Header)) -> String {
        let mut file = file();
        let header = Header::parse(QuotaKind::User, &file, file.len() as u64).unwrap();
        edit(&mut file, &header);
        flaw(QuotaKind::User, &file).unwrap_or_default()
    }

    #[test]
    fn what_we_make_is_sound() {
        assert_eq!(flaw(QuotaKind::User, &file()), None);
        assert_eq!(flaw(QuotaKind::User, &encode(QuotaKind::User, &BTreeMap::new())), None);
    }

    #[test]
    fn parts_of_two_moments_are_found() {
        let of = |block: u32| block as usize * QUOTA_BLOCK;
        // A leaf is as it was before its last record.
        let older = flaw_with(|file, header| {
            let leaf = &mut file[of(header.free_leaf)..][..QUOTA_BLOCK];
            let last = 16 + 72 * (parts::used(leaf) - 1);
            leaf[last..last + 72].fill(0);
            parts::set_used(leaf, parts::used(leaf) - 1);
        });
        assert!(older.contains("has no record of it"), "{older}");
        // The tree is older than a leaf, or a leaf than its count.
        let stray = flaw_with(|file, header| {
            let leaf = &mut file[of(header.free_leaf)..][..QUOTA_BLOCK];
            let at = parts::room(leaf).unwrap();
            parts::put(leaf, at, &parts::Record { id: 3, ..parts::Record::default() });
        });
        assert!(stray.contains("records and counts"), "{stray}");
        // The header is older than a full leaf, the file longer than it says, or shorter.
        let full = flaw_with(|file, header| {
            let full = parts::Header { free_leaf: 5, ..*header };
            full.store(file);
        });
        assert!(full.contains("listed as one with room"), "{full}");
        let short = flaw_with(|file, header| {
            Header { blocks: header.blocks - 1, free_leaf: 0, ..*header }.store(file)
        });
        assert!(short.contains("leads to block"), "{short}");
        let apart = flaw_with(|file, header| {
            let node = (2..header.free_leaf)
                .map(of)
                .find(|at| (0..256).any(|slot| parts::child(&file[*at..], slot) == header.free_leaf));
            file[node.unwrap()..][..QUOTA_BLOCK].fill(0);
        });
        assert!(!apart.is_empty());
        let unused = flaw_with(|file, header| Header { free_block: 2, ..*header }.store(file));
        assert!(unused.contains("listed as unused"), "{unused}");
    }

    #[test]
    fn what_points_back_ends() {
        for (at, to) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2)] {
            let found = flaw_with(|file, _| {
                (0..256).for_each(|slot| parts::set_child(&mut file[at * QUOTA_BLOCK..], slot, to));
            });
            assert!(!found.is_empty(), "{at} {to}");
        }
    }
}
