//! The ladder inside each crate: every module has a rung and names modules of lower rungs only.
//!
//! Owns: the rule, and what it says of a table that no longer fits. The tables are in [`super::rungs`].

use super::modules::Modules;
use super::rungs::Ladder;

/// A table as it is read: the rung of each module, counted from the top.
struct Rungs<'a>(Vec<(&'a str, usize)>);

impl<'a> Rungs<'a> {
    fn of(ladder: &'a Ladder) -> Self {
        let rungs = ladder.rungs.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate();
        Rungs(rungs.flat_map(|(rung, line)| line.split_whitespace().map(move |name| (name, rung))).collect())
    }

    fn rung(&self, module: &str) -> Option<usize> {
        self.0.iter().find(|(name, _)| *name == module).map(|(_, rung)| *rung)
    }
}

/// Arrows that go up or sideways, modules without a rung, rungs without a module.
pub(super) fn check(ladder: &Ladder, modules: &Modules, found: &mut Vec<String>) {
    let (path, rungs) = (ladder.path, Rungs::of(ladder));
    for name in modules.names.iter().filter(|name| rungs.rung(name).is_none()) {
        found.push(format!("{path}: module `{name}` has no rung; give it one in xtask/src/tidy/rungs.rs"));
    }
    for (name, _) in rungs.0.iter().filter(|(name, _)| !modules.names.contains(*name)) {
        found.push(format!(
            "{path}: the rung of `{name}` in xtask/src/tidy/rungs.rs has no such module; take it out"
        ));
    }
    for arrow in &modules.arrows {
        let (Some(from), Some(to)) = (rungs.rung(&arrow.from), rungs.rung(&arrow.to)) else { continue };
        if from < to || in_one_knot(ladder, &arrow.from, &arrow.to) {
            continue;
        }
        let (place, from_name, to_name) = (&arrow.place, &arrow.from, &arrow.to);
        let how = if from == to { "across to" } else { "up to" };
        found.push(format!(
            "{place}: {from_name} calls {how} {to_name}; return data instead, or pass a value down"
        ));
    }
}

/// Knots of the table that are larger than those of the code.
pub(super) fn slack(ladder: &Ladder, modules: &Modules, found: &mut Vec<String>) {
    let knots = modules.knots();
    for (listed, _) in ladder.knots {
        let mut listed: Vec<&str> = listed.split_whitespace().collect();
        listed.sort_unstable();
        let inside = |knot: &&Vec<String>| knot.iter().any(|name| listed.contains(&name.as_str()));
        let real: Vec<&str> = knots.iter().filter(inside).flatten().map(String::as_str).collect();
        for name in listed.iter().filter(|name| !real.contains(name)) {
            found
                .push(format!("{}: `{name}` is in no circle any more; take it out of its knot", ladder.path));
        }
    }
}

fn in_one_knot(ladder: &Ladder, from: &str, to: &str) -> bool {
    let holds = |knot: &str, name: &str| knot.split_whitespace().any(|one| one == name);
    ladder.knots.iter().any(|(knot, _)| holds(knot, from) && holds(knot, to))
}
