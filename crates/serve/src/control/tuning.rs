//! Changes of the superblock of a volume that is mounted, as its server makes them.

use std::fs::File;
use std::io::Read;

use platfs::Volume;
use platfs_reshape::tune::{ENCODED_MAX, Request, tune_in_use};

use super::resizing::refused;
use crate::refusal::Refusal;

/// Reads what is to change, and changes it; nothing is odd about that.
pub(super) fn tune(volume: &Volume, file: &File) -> Result<Vec<String>, Refusal> {
    let mut bytes = Vec::new();
    let most = ENCODED_MAX as u64 + 1;
    file.take(most).read_to_end(&mut bytes)?;
    if bytes.len() > ENCODED_MAX {
        return Err("the changes can't be understood".into());
    }
    let request = Request::decode(&bytes).map_err(|error| error.to_string())?;
    let edit = |raw: &mut ondisk::superblock::RawSuperblock| {
        let before = *raw;
        let tuned = tune_in_use(raw, &request);
        if tuned.is_err() {
            *raw = before;
        }
        tuned
    };
    volume.change_fields(edit)?.map_err(refused)?;
    Ok(Vec::new())
}
