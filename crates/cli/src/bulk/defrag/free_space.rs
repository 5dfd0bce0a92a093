//! Free space in longer runs: files leave the stretches of the volume in which little is in use.

use std::collections::{BTreeMap, HashMap};

use ondisk::units::{Group, InodeNumber};
use platfs::{Error, Relocation, State, Towards, Volume};

use super::Work;
use crate::bulk::Halt;

/// Clusters of a stretch that is emptied: a chunk of the placement engine.
const CHUNK: u64 = 512;

/// Files in more pieces than that stay where they are.
const PIECES: u64 = 64;

/// How often the volume is looked over.
const ROUNDS: u32 = 3;

/// A stretch in which all that is in use belongs to files that may move.
struct Stretch {
    chunk: u64,
    files: Vec<InodeNumber>,
    /// Blocks that move if it is emptied.
    cost: u64,
}

/// Each cluster of a volume: whether it is in use.
fn each_cluster(volume: &Volume, mut visit: impl FnMut(u64, bool)) -> Result<(), Error> {
    let geometry = &volume.format().geometry;
    let mut first = 0;
    for group in (0..geometry.groups).map(Group) {
        let bitmap = volume.block_bitmap(group)?;
        let count = geometry.group_clusters(group);
        for index in 0..count {
            let byte = bitmap.get(index as usize / 8).copied().unwrap_or(0xFF);
            visit(first + u64::from(index), byte >> (index % 8) & 1 == 1);
        }
        first += u64::from(count);
    }
    Ok(())
}

/// Lengths of the free runs, in clusters, and how many there are of each.
pub(super) fn lengths(volume: &Volume) -> Result<BTreeMap<u64, u64>, Error> {
    let (mut lengths, mut open) = (BTreeMap::new(), 0);
    let mut close = |open: u64| {
        if open > 0 {
            *lengths.entry(open).or_default() += 1;
        }
    };
    each_cluster(volume, |_, used| match used {
        true => close(std::mem::take(&mut open)),
        false => open += 1,
    })?;
    close(open);
    Ok(lengths)
}

impl Work<'_> {
    /// Empties stretches, those first that cost least.
    pub(super) fn gather_free_space(&self) -> Result<(), Halt> {
        for _ in 0..ROUNDS {
            let before = self.report.borrow().moved;
            for stretch in self.stretches()? {
                self.empty(&stretch)?;
            }
            self.settle()?;
            if self.report.borrow().moved == before || self.is_spent() {
                break;
            }
        }
        Ok(())
    }

    fn empty(&self, stretch: &Stretch) -> Result<(), Halt> {
        let geometry = &self.job.volume.format().geometry;
        let start = geometry.cluster_start(ondisk::units::Cluster(stretch.chunk * CHUNK)).0;
        let end = start + (CHUNK << geometry.cluster_log2);
        for number in &stretch.files {
            let node = self.job.volume.inode(*number);
            let Ok((pieces, _)) = node.pieces() else { continue };
            let towards = Towards::Outside { start, end };
            let wish = Relocation { most_pieces: pieces, towards, directory: None };
            if self.relocate(*number, format!("inode {number}").as_bytes(), &wish)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// The stretches that are worth it: at most half in use, and only by files that may move.
    fn stretches(&self) -> Result<Vec<Stretch>, Halt> {
        let (mut used, failed) = (HashMap::new(), Halt::at(b"/"));
        let counted = each_cluster(self.job.volume, |cluster, is_used| {
            *used.entry(cluster / CHUNK).or_insert(0_u64) += u64::from(is_used);
        });
        counted.map_err(failed)?;
        let mut users: HashMap<u64, (u64, Vec<(InodeNumber, u64)>)> = HashMap::new();
        for number in &self.files {
            self.job.go_on()?;
            self.note(*number, &mut users);
        }
        let mut stretches: Vec<Stretch> = Vec::new();
        for (chunk, (clusters, files)) in users {
            let is_sparse = clusters <= CHUNK / 2 && used.get(&chunk) == Some(&clusters);
            let cost = files.iter().map(|(_, blocks)| blocks).sum();
            if is_sparse && self.is_worth(cost) {
                let files = files.into_iter().map(|(number, _)| number).collect();
                stretches.push(Stretch { chunk, files, cost });
            }
        }
        stretches.sort_by_key(|stretch| (stretch.cost, stretch.chunk));
        Ok(stretches)
    }

    /// Whether it pays to move so many blocks for an empty stretch.
    fn is_worth(&self, blocks: u64) -> bool {
        blocks <= (2 * CHUNK) << self.job.volume.format().geometry.cluster_log2
    }

    /// Notes in which stretches a file lies.
    fn note(&self, number: InodeNumber, users: &mut HashMap<u64, (u64, Vec<(InodeNumber, u64)>)>) {
        let geometry = &self.job.volume.format().geometry;
        // One that is gone, or broken, is no reason to end.
        let Ok((pieces, blocks)) = self.job.volume.inode(number).pieces() else { return };
        let Ok(map) = self.job.volume.map(number) else { return };
        if pieces > PIECES || !self.is_worth(blocks) {
            return;
        }
        let mut clusters = BTreeMap::new();
        for segment in map.map_while(Result::ok) {
            let (State::Mapped(start) | State::Unwritten(start)) = segment.state else { continue };
            let first = geometry.cluster_of(start).0;
            let last = geometry.cluster_of(ondisk::units::Block(start.0 + segment.count - 1)).0;
            (first..=last).for_each(|cluster| drop(clusters.insert(cluster, ())));
        }
        for cluster in clusters.into_keys() {
            let (used, files) = users.entry(cluster / CHUNK).or_default();
            *used += 1;
            if files.last().is_none_or(|(last, _)| *last != number) {
                files.push((number, blocks));
            }
        }
    }
}
