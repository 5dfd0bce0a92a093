//! Names of owners, from the source itself: `/etc/passwd` and `/etc/group` of the tree, never those of this
//! machine, where the same name may mean another number.

use super::attributes::Ids;
use super::catalogue::{Catalogue, NodeKind};
use super::error::SourceError;
use super::filter::{FilterError, Owner, OwnerId};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longer tables are not read.
const MOST: u64 = 16 << 20;

/// The numbers of a user and a group; `prefix` is where the source begins in the catalogue.
///
/// # Errors
/// [`FilterError::NoOwner`]; a table that can't be read.
pub(super) fn resolve(
    Owner { user, group }: &Owner,
    catalogue: &Catalogue,
    prefix: Option<&Path>,
) -> Result<Ids, SourceError> {
    let number = |owner: &OwnerId, file: &'static str| -> Result<u32, SourceError> {
        match owner {
            OwnerId::Number(number) => Ok(*number),
            OwnerId::Name(name) => {
                let table = table(catalogue, prefix, file)?;
                let found = table.as_deref().and_then(|table| number_of(table, name));
                found.ok_or_else(|| FilterError::NoOwner { name: name.clone(), file }.into())
            }
        }
    };
    Ok(Ids { uid: number(user, "/etc/passwd")?, gid: number(group, "/etc/group")? })
}

/// A table of the source; `None` if it has none.
fn table(catalogue: &Catalogue, prefix: Option<&Path>, file: &str) -> Result<Option<Vec<u8>>, SourceError> {
    let prefix = prefix.map_or(&b""[..], |prefix| prefix.as_os_str().as_bytes());
    let Some(node) = catalogue.find(&[prefix, file.as_bytes()].concat()) else { return Ok(None) };
    let metadata = catalogue.metadata(node);
    if metadata.kind != NodeKind::File || metadata.size > MOST {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(metadata.size).unwrap_or(0)];
    catalogue.reader().read_file(node, 0, &mut bytes)?;
    Ok(Some(bytes))
}

/// Lines are `NAME:PASSWORD:NUMBER:...`, in both tables.
fn number_of(table: &[u8], name: &str) -> Option<u32> {
    table.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let is_it = fields.next()? == name.as_bytes();
        let number = fields.nth(1)?;
        if is_it { std::str::from_utf8(number).ok()?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_with_the_name_counts() {
        let table = b"root:x:0:0::/root:/bin/sh\nbroken\n\xff:x:1\nweb:x:33:33\nweb:x:34:34\nno:x:-1\n";
        assert_eq!((number_of(table, "root"), number_of(table, "web")), (Some(0), Some(33)));
        assert_eq!(
            (number_of(table, "no"), number_of(table, "broken"), number_of(table, "")),
            (None, None, None)
        );
    }
}
