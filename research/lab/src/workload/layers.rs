//! Layers of container images: each is unpacked into a directory of its own, later ones with new versions of files
//! below and whiteouts for what they remove; the oldest go when there are too many.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Scale, tree};
use crate::numbers::{Numbers, count};
use crate::system::{Op, Phase, Stream};
use crate::tar::{Member, MemberKind};

pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("clients", "images pulled at once"),
    ("layers", "layers of each, the first one the base"),
    ("files", "files of the base"),
    ("keep", "layers that are kept"),
];

/// Files of a directory of the base, in the mean.
const FILES: u64 = 12;

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let clients = scale.number("clients", 2, 2)?.max(1);
    let layers = scale.number("layers", 20, 6)?;
    let files = scale.number("files", 5_000, 100)?.max(1);
    let keep = usize::try_from(scale.number("keep", 6, 3)?).unwrap_or(usize::MAX);
    let streams = (0..clients).map(|client| -> Stream {
        let mut numbers = Numbers::new(scale.seed.wrapping_mul(512).wrapping_add(client));
        let base = names(files, &mut numbers);
        let mut kept: VecDeque<Arc<Vec<Member>>> = VecDeque::new();
        let calls = (0..layers).flat_map(move |layer| {
            let members = Arc::new(members(client, layer, &base, &mut numbers));
            let mut calls: Vec<Op> = members.iter().flat_map(tree::make).collect();
            kept.push_back(members);
            if kept.len() > keep {
                calls.extend(kept.pop_front().iter().flat_map(|old| tree::remove(old)));
            }
            calls
        });
        Box::new(calls)
    });
    let sync: Stream = Box::new(std::iter::once(Op::SyncAll));
    Ok(vec![Phase::new("pull", streams.collect()), Phase::new("sync", vec![sync])])
}

/// Paths of the base's files, in the order of an archive: directories of up to three levels.
fn names(files: u64, numbers: &mut Numbers) -> Vec<String> {
    let directories = files.div_ceil(FILES);
    let mut paths: Vec<String> = (0..files)
        .map(|file| {
            let directory = numbers.below(directories);
            format!("d{}/d{}/d{directory}/f{file}", directory % 8, directory % 64)
        })
        .collect();
    paths.sort_unstable();
    paths
}

/// A layer: all files as the base, a tenth of them later, one in ten of those as a whiteout.
fn members(client: u64, layer: u64, base: &[String], numbers: &mut Numbers) -> Vec<Member> {
    let top = format!("layer.{client}.{layer}");
    let directory = |path: &str| Member { path: path.into(), what: MemberKind::Directory };
    let mut found = vec![directory(&top)];
    let mut above: Vec<String> = Vec::new();
    for path in base.iter().filter(|_| layer == 0 || numbers.chance(0.1)).collect::<Vec<_>>() {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let ends = parent.match_indices('/').map(|(at, _)| at).chain([parent.len()]);
        for prefix in ends.map(|end| format!("{top}/{}", &parent[..end])) {
            if !above.contains(&prefix) {
                found.push(directory(&prefix));
                above.push(prefix);
            }
        }
        // Paths are sorted: only the directories above the last file matter.
        above.retain(|prefix| format!("{top}/{parent}/").starts_with(&format!("{prefix}/")));
        let whiteout = layer > 0 && numbers.chance(0.1);
        let len = u64::from(count(numbers.lognormal(8.5, 2.2), 16 << 20));
        let (name, len) = if whiteout { (format!(".wh.{name}"), 0) } else { (name.to_string(), len) };
        found.push(Member { path: format!("{top}/{parent}/{name}"), what: MemberKind::File(len) });
    }
    found
}
