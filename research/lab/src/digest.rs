//! Digests of what a stored figure hangs on: the program, the files it read, and the figure itself.
//!
//! A figure is taken from an earlier run only if none of them changed. The program is taken as a whole: whatever line of
//! it was changed, no figure of before is printed as one of now.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The digest of the program that runs, as text; empty where its file can't be read.
pub(crate) fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let own = std::env::current_exe().and_then(|path| of_file(&path));
        own.unwrap_or_default()
    })
}

/// The digest of a text that this program wrote.
pub(crate) fn of_text(text: &str) -> String {
    hex(Sha256::new().chain_update(program()).chain_update(text))
}

/// Digests of the files that settings name.
pub(crate) fn of_files(settings: &BTreeMap<String, String>) -> Value {
    let named = settings.iter().filter(|(_, value)| Path::new(value).is_file());
    // A file that can't be read fails where it is used.
    let digests =
        named.map(|(name, value)| (name.clone(), of_file(Path::new(value)).unwrap_or_default().into()));
    Value::Object(digests.collect::<Map<_, _>>())
}

fn of_file(path: &Path) -> io::Result<String> {
    let (mut file, mut digest) = (File::open(path)?, Sha256::new());
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex(digest)),
            len => digest.update(piece.get(..len).unwrap_or_default()),
        }
    }
}

/// Half of a digest: enough for what nobody forges.
fn hex(digest: Sha256) -> String {
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_files_have_digests_of_their_own() {
        assert!(!program().is_empty());
        assert_ne!(of_text("a"), of_text("b"));
        assert_eq!(of_text("a"), of_text("a"));
        let own = std::env::current_exe().unwrap().to_string_lossy().into_owned();
        let settings = BTreeMap::from([("load".into(), own), ("clients".into(), "8".into())]);
        assert_eq!(of_files(&settings), serde_json::json!({ "load": program() }));
    }
}
