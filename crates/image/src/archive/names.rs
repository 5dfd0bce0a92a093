//! Numbers of users and groups by the tables of a tree, `/etc/passwd` and `/etc/group`: never by those of this machine,
//! where the same name may mean another number.

use super::entry::EntryKind;
use super::reader::{Input, Reader};
use ondisk::units::bounded;
use std::collections::HashMap;

/// Longer tables are not read.
pub(crate) const MOST: u64 = 16 << 20;

/// The number of a name. Lines are `NAME:PASSWORD:NUMBER:...`, in both tables.
pub(crate) fn number_of(table: &[u8], name: &[u8]) -> Option<u32> {
    let lines = table.split(|byte| *byte == b'\n').filter_map(of_line);
    lines.filter(|(of, _)| *of == name).map(|(_, number)| number).next()
}

/// Longest table that is looked at for lists: each entry may name all that it holds.
pub const TABLE_MOST: u64 = 1 << 20;

/// Names and numbers of users and groups, as the tables of a tree have them.
#[derive(Clone, Debug, Default)]
pub struct Names {
    passwd: HashMap<Box<[u8]>, u32>,
    group: HashMap<Box<[u8]>, u32>,
}

/// All names of a table. The first line of a name counts.
fn numbers(table: &[u8]) -> HashMap<Box<[u8]>, u32> {
    let mut numbers = HashMap::new();
    for line in table.split(|byte| *byte == b'\n') {
        if let Some((name, number)) = of_line(line) {
            numbers.entry(name.into()).or_insert(number);
        }
    }
    numbers
}

/// The name and number of a line.
fn of_line(line: &[u8]) -> Option<(&[u8], u32)> {
    let mut fields = line.split(|byte| *byte == b':');
    let (name, number) = (fields.next()?, fields.nth(1)?);
    Some((name, std::str::from_utf8(number).ok()?.parse().ok()?))
}

impl Names {
    /// Reads tables, `/etc/passwd` and `/etc/group`.
    #[must_use]
    pub fn of(passwd: &[u8], group: &[u8]) -> Self {
        Names { passwd: numbers(passwd), group: numbers(group) }
    }

    /// Looks for them in a whole archive. What can't be read there is an error of whoever reads the archive.
    pub(super) fn find(input: &dyn Input) -> Self {
        let (mut tables, mut reader) = (Names::default(), Reader::without_lists(input));
        while let Ok(Some(entry)) = reader.next_entry() {
            let path = entry.path.strip_prefix(b".").unwrap_or(&entry.path);
            let table = match path.strip_prefix(b"/").unwrap_or(path) {
                b"etc/passwd" => &mut tables.passwd,
                b"etc/group" => &mut tables.group,
                _ => continue,
            };
            let [run] = entry.runs.as_slice() else { continue };
            if entry.kind != EntryKind::File || run.len > TABLE_MOST {
                continue;
            }
            let mut bytes = vec![0; bounded::<usize>(run.len)];
            if input.read_exact_at(run.archive_offset, &mut bytes).is_ok() {
                *table = numbers(&bytes);
            }
        }
        tables
    }

    /// The number of a user's name, or of a group's.
    pub(super) fn number(&self, name: &[u8], group: bool) -> Option<u32> {
        let table = if group { &self.group } else { &self.passwd };
        table.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_with_the_name_counts() {
        let table = b"root:x:0:0::/root:/bin/sh\nbroken\n\xff:x:1\nweb:x:33:33\nweb:x:34:34\nno:x:-1\n";
        assert_eq!((number_of(table, b"root"), number_of(table, b"web")), (Some(0), Some(33)));
        assert_eq!(
            (number_of(table, b"no"), number_of(table, b"broken"), number_of(table, b"")),
            (None, None, None)
        );
        let all = numbers(table);
        assert_eq!((all.len(), all.get(&b"web"[..])), (3, Some(&33)));
    }
}
