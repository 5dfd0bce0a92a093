//! The modules at the top of a crate, and which of them name which.
//!
//! Owns: the graph as the compiler sees it, re-exports at the root included, tests excluded. Excludes which arrows are
//! allowed ([`super::ladder`]).

use super::paths::{own_paths, uses};
use super::source::Code;
use std::collections::{BTreeMap, BTreeSet};

/// A place where one module names another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrow {
    pub(super) from: String,
    pub(super) to: String,
    /// File and line.
    pub(super) place: String,
}

/// The modules of a crate and the arrows between them.
#[derive(Default)]
pub(super) struct Modules {
    pub(super) names: BTreeSet<String>,
    pub(super) arrows: Vec<Arrow>,
}

/// A file of a crate: the module it is, as names from the root on, where it lies, and its code.
pub(super) struct Unit {
    pub(super) module: Vec<String>,
    pub(super) shown: String,
    pub(super) code: Code,
}

impl Unit {
    /// `inside` is the file's path below `src`.
    pub(super) fn new(shown: &str, inside: &str, text: &str) -> Self {
        let names = inside.trim_end_matches(".rs").split('/').filter(|name| *name != "mod");
        Unit { module: names.map(String::from).collect(), shown: shown.into(), code: Code::of(text) }
    }

    fn is_root(&self) -> bool {
        self.module.len() == 1 && self.module.first().is_some_and(|name| name == "lib" || name == "main")
    }
}

/// Leaves out the files of modules that only tests have.
pub(super) fn without_tests(units: Vec<Unit>) -> Vec<Unit> {
    let declared = |unit: &Unit| {
        let above = if unit.is_root() { Vec::new() } else { unit.module.clone() };
        let names = unit.code.test_modules.clone();
        names.into_iter().map(move |name| [above.clone(), vec![name]].concat())
    };
    let tests: Vec<Vec<String>> = units.iter().flat_map(declared).collect();
    units.into_iter().filter(|unit| !tests.iter().any(|test| unit.module.starts_with(test))).collect()
}

impl Modules {
    /// The graph of a crate's files, tests left out.
    pub(super) fn of(units: &[Unit]) -> Self {
        let inner = || units.iter().filter(|unit| !unit.is_root());
        let names: BTreeSet<String> = inner().filter_map(|unit| unit.module.first().cloned()).collect();
        let at_root = root_names(units, &names);
        let mut arrows = BTreeSet::new();
        for unit in inner() {
            let Some(from) = unit.module.first() else { continue };
            for path in own_paths(&unit.code, &unit.module) {
                let Some(first) = path.names.first() else { continue };
                let to = if names.contains(first) { Some(first) } else { at_root.get(first) };
                if let Some(to) = to.filter(|to| *to != from) {
                    let place = format!("{}:{}", unit.shown, unit.code.line(path.at));
                    arrows.insert(Arrow { from: from.clone(), to: to.clone(), place });
                }
            }
        }
        Modules { names, arrows: arrows.into_iter().collect() }
    }

    fn below(&self, name: &str) -> BTreeSet<&str> {
        self.arrows.iter().filter(|arrow| arrow.from == name).map(|arrow| arrow.to.as_str()).collect()
    }

    /// Every module that can be reached from this one by arrows.
    fn reached(&self, name: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut pending: Vec<&str> = self.below(name).into_iter().collect();
        while let Some(name) = pending.pop() {
            if reached.insert(name) {
                pending.extend(self.below(name));
            }
        }
        reached
    }

    /// The knots: modules that reach each other, two or more.
    pub(super) fn knots(&self) -> Vec<Vec<String>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.names.iter().map(|name| (name.as_str(), self.reached(name))).collect();
        let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
        let mut knots: Vec<Vec<String>> = Vec::new();
        for name in self.names.iter().filter(|name| reaches(name, name)) {
            match knots
                .iter_mut()
                .find(|knot| knot.iter().all(|one| reaches(one, name) && reaches(name, one)))
            {
                Some(knot) => knot.push(name.clone()),
                None => knots.push(vec![name.clone()]),
            }
        }
        knots
    }

    /// Rungs from the top: each module as low as what it names allows, each knot on one.
    pub(super) fn rungs(&self) -> Vec<Vec<String>> {
        let knots = self.knots();
        let together = |name: &str, other: &str| {
            knots.iter().any(|knot| knot.iter().any(|one| one == name) && knot.iter().any(|one| one == other))
        };
        let mut left: BTreeSet<&str> = self.names.iter().map(String::as_str).collect();
        let mut rungs: Vec<Vec<String>> = Vec::new();
        while !left.is_empty() {
            let waits =
                |name: &str| self.reached(name).iter().any(|to| left.contains(to) && !together(name, to));
            let ready: Vec<&str> = left.iter().copied().filter(|name| !waits(name)).collect();
            left.retain(|name| !ready.contains(name));
            rungs.push(ready.into_iter().map(String::from).collect());
        }
        rungs.reverse();
        rungs
    }
}

/// Names that the root of a crate re-exports or imports, and the module that each comes from.
fn root_names(units: &[Unit], modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let trees = units.iter().filter(|unit| unit.is_root()).flat_map(|unit| uses(&unit.code));
    let named = trees.filter_map(|names| {
        let own = names.iter().position(|name| name != "crate" && name != "self")?;
        let (first, last) = (names.get(own)?, names.last()?);
        (names.len() > own + 1 && modules.contains(first)).then(|| (last.clone(), first.clone()))
    });
    named.collect()
}
