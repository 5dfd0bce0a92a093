//! A table of the places where a kernel put the files of some workloads. A test compares the port with it on machines
//! without that kernel. Owns: the form of the table. Excludes the judgement.
//!
//! The table has a line for each workload (`# name seed files gib streams`), and below it one for each file: its path, and
//! its pieces as `file block:block+blocks`. It must be recorded on a rotating device: the test takes
//! `mb_max_linear_groups` as it is there, and the table does not name it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use super::FidelityOptions;
use super::sides::{Files, possible_processors};
use super::workloads::Workload;

/// Adds a workload's files to a table.
///
/// # Errors
/// The table can't be written.
pub(super) fn add(
    table: &Path,
    workload: &Workload,
    options: &FidelityOptions,
    files: &Files,
) -> Result<(), String> {
    let count = options.files.unwrap_or(workload.count);
    let streams = possible_processors();
    let mut text = format!("# {} {} {count} {} {streams}\n", workload.name, options.seed, options.size);
    for (path, pieces) in files {
        text.push_str(path);
        for [logical, start, count] in pieces {
            let _ = write!(text, " {logical}:{start}+{count}");
        }
        text.push('\n');
    }
    let file = std::fs::File::options().append(true).create(true).open(table);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", table.display()))
}

/// A workload of a table: its name, its seed, files, GiB and streams, and where its files lie.
#[cfg(test)]
pub(super) type Part = (String, [u64; 4], Files);

/// Reads a table.
#[cfg(test)]
fn read(table: &str) -> Option<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    for line in table.lines() {
        let mut words = line.split(' ');
        let first = words.next()?;
        if first == "#" {
            let name = words.next()?.to_owned();
            let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            parts.push((name, numbers.try_into().ok()?, Files::new()));
        } else {
            let pieces: Option<Vec<[u64; 3]>> = words.map(piece).collect();
            parts.last_mut()?.2.insert(first.to_owned(), pieces?);
        }
    }
    Some(parts)
}

#[cfg(test)]
fn piece(word: &str) -> Option<[u64; 3]> {
    let (logical, place) = word.split_once(':')?;
    let (start, count) = place.split_once('+')?;
    Some([logical.parse().ok()?, start.parse().ok()?, count.parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::super::sides::by_port;
    use super::super::{Comparison, Outcome, WorkDir, chosen};
    use super::*;
    use platfs::placement::BlockPolicyKind;

    const TABLE: &str = include_str!("recorded.txt");

    /// Recorded on Linux 6.18 with a rotating loop device.
    #[test]
    fn files_lie_where_a_kernel_put_them() {
        let place = WorkDir::new(&std::env::temp_dir()).unwrap();
        let parts = read(TABLE).unwrap();
        assert!(!parts.is_empty());
        for (name, [seed, count, size, streams], files) in parts {
            let workload = chosen(std::slice::from_ref(&name)).unwrap()[0];
            let free = workload.shape.make(&place.copy(), size << 30, seed).unwrap();
            let calls = workload.calls(seed, count, free);
            let streams = u32::try_from(streams).unwrap();
            let tunables = vec![("mb_max_linear_groups", 4), ("streams", streams)];
            let port = by_port(&place, BlockPolicyKind::Mballoc, workload.delays, &tunables, &calls).unwrap();
            let kernel = Outcome { counts: Default::default(), files, inodes: Default::default() };
            let found = Comparison { kernel, port };
            assert_eq!(found.identical(), found.files(), "{name}");
        }
    }
}
