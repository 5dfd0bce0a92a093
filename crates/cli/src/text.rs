//! Facts of a volume as text, and bytes in JSON. How names are shown is decided by [`platfs_image::text`], the words of
//! all else by [`platfs_forensics::words`].

use serde_json::{Map, Value};

pub use platfs_forensics::words::{
    acl, flag_letters, flag_names, hex, lossy, mode, time, type_letter, type_name, uuid, whole_seconds,
};
pub use platfs_image::text::Shown;

/// Puts bytes into a JSON object: `key` holds the text, with U+FFFD where it is none; then
/// `key_hex` holds all bytes exactly.
pub fn put_bytes(object: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            object.insert(key.to_owned(), text.into());
        }
        Err(_) => {
            object.insert(key.to_owned(), String::from_utf8_lossy(bytes).into());
            object.insert(format!("{key}_hex"), hex(bytes).into());
        }
    }
}
