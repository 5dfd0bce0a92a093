//! Comparison of two catalogues, for tests that compare trees.

use platfs_image::Source;
use platfs_image::source::{Catalogue, NodeId, NodeKind};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// How exactly times are compared.
#[derive(Clone, Copy)]
pub enum Clock {
    Nanoseconds,
    Seconds,
    Never,
}

/// Fields to compare.
#[derive(Clone, Copy)]
pub struct Rules {
    pub clock: Clock,
    pub xattrs: bool,
    pub holes: bool,
    pub sockets: bool,
    /// The root itself, whose times mke2fs sets to now.
    pub root: bool,
    /// The kinds whose further names the packer knows as such.
    pub linked: &'static [NodeKind],
}

pub const GNU: &[NodeKind] = &[NodeKind::File, NodeKind::Symlink];
pub const ALL: Rules =
    Rules { clock: Clock::Nanoseconds, xattrs: true, holes: true, sockets: false, root: true, linked: GNU };

/// The facts of every name, by path.
pub fn facts(catalogue: &Catalogue, rules: Rules) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    if rules.root {
        facts.insert(String::new(), fact(catalogue, catalogue.root(), rules));
    }
    let mut above = vec![String::new()];
    let mut firsts: HashMap<NodeId, String> = HashMap::new();
    for step in catalogue.walk() {
        above.truncate(step.depth);
        let path = format!("{}{}", above[step.depth - 1], step.name.escape_ascii());
        above.push(format!("{path}/"));
        let kind = catalogue.metadata(step.node).kind;
        if kind == NodeKind::Socket && !rules.sockets {
            continue;
        }
        if !rules.linked.contains(&kind) {
            facts.insert(path, fact(catalogue, step.node, rules));
            continue;
        }
        let first = firsts.entry(step.node).or_insert_with(|| path.clone()).clone();
        facts.insert(path, format!("{} first {first}", fact(catalogue, step.node, rules)));
    }
    facts
}

pub fn fact(catalogue: &Catalogue, node: NodeId, rules: Rules) -> String {
    let meta = catalogue.metadata(node);
    let time = meta.stamps.modified;
    let time = match rules.clock {
        Clock::Nanoseconds => (time.seconds, time.nanoseconds),
        Clock::Seconds => (time.seconds, 0),
        Clock::Never => (0, 0),
    };
    let runs: Vec<(u64, u64)> = catalogue.extents(node).map(|e| (e.file_offset, e.len)).collect();
    format!(
        "{:?} {:o} {:?} {time:?} size {} {:?} {:x} xattrs {:?} runs {:?} to {}",
        meta.kind,
        meta.mode,
        meta.ids,
        meta.size,
        meta.device,
        digest(catalogue, node),
        if rules.xattrs { catalogue.xattrs(node) } else { &[] },
        if rules.holes { runs } else { Vec::new() },
        catalogue.target(node).escape_ascii(),
    )
}

/// A digest of data and their places, zeros left out, so that it does not depend on holes.
pub fn digest(catalogue: &Catalogue, node: NodeId) -> u64 {
    let mut reader = catalogue.reader();
    let mut digest = 0_u64;
    for extent in catalogue.extents(node) {
        let mut skip = 0;
        while skip < extent.len {
            let data = reader.window(&extent, skip, usize::MAX).unwrap();
            for (place, &byte) in (extent.file_offset + skip..).zip(data).filter(|(_, byte)| **byte != 0) {
                digest = digest.wrapping_add(
                    (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                        ^ u64::from(byte).wrapping_mul(0xff51_afd7),
                );
            }
            skip += data.len() as u64;
        }
    }
    digest
}

pub fn read(path: &Path) -> Catalogue {
    Source::open(path).unwrap_or_else(|error| panic!("{error}")).into_catalogue()
}

#[track_caller]
pub fn assert_same(left: &Catalogue, right: &Catalogue, rules: Rules) {
    let (left, right) = (facts(left, rules), facts(right, rules));
    for path in left.keys().chain(right.keys()) {
        assert_eq!(left.get(path), right.get(path), "{path:?}");
    }
}
