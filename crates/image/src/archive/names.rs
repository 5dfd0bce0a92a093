//! Numbers of users and groups by the tables of a tree, `/etc/passwd` and `/etc/group`: never by those of this machine,
//! where the same name may mean another number.

use super::entry::EntryKind;
use super::reader::{Input, Reader};

/// Longer tables are not read.
pub(crate) const MOST: u64 = 16 << 20;

/// The number of a name. Lines are `NAME:PASSWORD:NUMBER:...`, in both tables.
pub(crate) fn number_of(table: &[u8], name: &[u8]) -> Option<u32> {
    table.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let is_it = fields.next()? == name;
        let number = fields.nth(1)?;
        if is_it { std::str::from_utf8(number).ok()?.parse().ok() } else { None }
    })
}

/// The tables that an archive holds.
#[derive(Default)]
pub(super) struct Tables {
    passwd: Vec<u8>,
    group: Vec<u8>,
}

impl Tables {
    /// Looks for them in a whole archive. What can't be read there is an error of whoever reads the archive.
    pub(super) fn find(input: &dyn Input) -> Self {
        let (mut tables, mut reader) = (Tables::default(), Reader::without_lists(input));
        while let Ok(Some(entry)) = reader.next_entry() {
            let path = entry.path.strip_prefix(b".").unwrap_or(&entry.path);
            let table = match path.strip_prefix(b"/").unwrap_or(path) {
                b"etc/passwd" => &mut tables.passwd,
                b"etc/group" => &mut tables.group,
                _ => continue,
            };
            let [run] = entry.runs.as_slice() else { continue };
            if entry.kind != EntryKind::File || run.len > MOST {
                continue;
            }
            let mut bytes = vec![0; usize::try_from(run.len).unwrap_or(0)];
            if input.read_exact_at(run.archive_offset, &mut bytes).is_ok() {
                *table = bytes;
            }
        }
        tables
    }

    /// The number of a user's name, or of a group's.
    pub(super) fn number(&self, name: &[u8], group: bool) -> Option<u32> {
        number_of(if group { &self.group } else { &self.passwd }, name)
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
    }
}
