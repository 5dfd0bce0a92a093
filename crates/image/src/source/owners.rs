//! Names of owners, from the source itself: `/etc/passwd` and `/etc/group` of the tree, never those of this
//! machine, where the same name may mean another number.

use super::attributes::Ids;
use super::catalogue::{Catalogue, NodeKind};
use super::error::SourceError;
use super::filter::{FilterError, Owner, OwnerId};
use crate::archive::names::{MOST, number_of};
use ondisk::units::bounded;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
                let found = table.as_deref().and_then(|table| number_of(table, name.as_bytes()));
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
    let mut bytes = vec![0; bounded::<usize>(metadata.size)];
    catalogue.reader().read_file(node, 0, &mut bytes)?;
    Ok(Some(bytes))
}
