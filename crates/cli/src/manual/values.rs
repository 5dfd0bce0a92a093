//! Values that options are known to take, for the completion of shells.
//!
//! Owns: which option takes which list. Excludes the lists, which stand where text becomes values, and whether a value goes
//! with others.

use platfs::check::kinds;
use platfs::ondisk::features::FEATURE_NAMES;
use platfs::placement::inode::policy::DIRECTORY_POLICIES;
use platfs::placement::parameters::parameters;
use platfs::placement::policy::POLICIES;

use crate::format::words;

/// Command, option and values.
pub(super) type Known = (&'static str, &'static str, Vec<String>);

/// All of them, but for those that the parser knows.
pub(super) fn known() -> Vec<Known> {
    let of_formats = ["mkfs", "build"].into_iter().flat_map(|command| {
        let own = words::OF_VOLUMES.iter().map(move |(arg, list)| (command, *arg, owned(list())));
        own.chain([(command, "features", features())])
    });
    let of_changes = words::OF_CHANGES.iter().map(|(arg, list)| ("tune", *arg, owned(list())));
    let quotas = || owned(vec!["user", "group", "project"]);
    let others = [
        ("tune", "features", features()),
        ("check", "explain", kinds().map(|kind| kind.id.to_owned()).collect()),
        ("quota", "kind", quotas()),
        ("quota", "on", quotas()),
        ("quota", "off", quotas()),
        ("placement", "set", placing()),
        ("placement", "unset", placing_names()),
        ("build", "placement", placing()),
    ];
    of_formats.chain(of_changes).chain(others).collect()
}

fn owned(list: Vec<&str>) -> Vec<String> {
    list.into_iter().map(str::to_owned).collect()
}

fn features() -> Vec<String> {
    FEATURE_NAMES.iter().map(|feature| feature.name.to_owned()).collect()
}

/// Policies, and parameters up to their value.
pub(super) fn placing() -> Vec<String> {
    let of_blocks = POLICIES.iter().map(|row| format!("alloc={}", row.name));
    let of_directories = DIRECTORY_POLICIES.iter().map(|row| format!("dirs={}", row.name));
    let numbers = parameters().into_iter().map(|parameter| format!("{}=", parameter.tunable.name));
    of_blocks.chain(of_directories).chain(numbers).collect()
}

fn placing_names() -> Vec<String> {
    let numbers = parameters().into_iter().map(|parameter| parameter.tunable.name.to_owned());
    ["alloc", "dirs"].into_iter().map(str::to_owned).chain(numbers).collect()
}
