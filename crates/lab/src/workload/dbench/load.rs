//! A load of our own in dbench's client format: work on documents. Large files are put
//! down first; then in each round documents are looked for, read in small pieces, saved under a temporary name
//! in larger ones, renamed over the old, and temporary files come and go.
//!
//! The shares are those of office work on a file server as dbench's description has them: more is read than
//! written, half of the opens look for what isn't there, most files that are made are soon removed.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::numbers::Numbers;

/// Files put down first, and bytes of each.
const FILLERS: u64 = 20;
const FILLER: u64 = 1 << 20;

/// Programs with a directory each, and documents of each.
const PROGRAMS: [&str; 4] = ["WORD", "SHEET", "SLIDES", "MAIL"];
const DOCUMENTS: u64 = 6;

struct Script {
    text: String,
    handle: u32,
    numbers: Numbers,
    /// Documents that are there, and bytes of each.
    documents: BTreeMap<String, u64>,
}

/// The load of one client: the same text for the same seed.
pub(super) fn generate(seed: u64, rounds: u64) -> String {
    let numbers = Numbers::new(seed);
    let mut script = Script { text: String::new(), handle: 10_000, numbers, documents: BTreeMap::new() };
    script.line(r#"Deltree "\clients\client1""#, true);
    script.directory("");
    for filler in 0..FILLERS {
        script.save(&format!(r"\filler.{filler:03}"), FILLER, 65_536);
    }
    script.directory(r"\work");
    PROGRAMS.iter().for_each(|program| script.directory(&format!(r"\work\{program}")));
    for round in 0..rounds {
        for program in PROGRAMS {
            script.round(program, round);
        }
    }
    script.line(r#"Deltree "\clients\client1""#, true);
    script.text
}

impl Script {
    fn line(&mut self, call: &str, found: bool) {
        let status = if found { "NT_STATUS_OK" } else { "NT_STATUS_OBJECT_NAME_NOT_FOUND" };
        // Writing to a string can't fail.
        let _ = writeln!(self.text, "{call} {status}");
    }

    fn open(&mut self, path: &str, options: u32, disposition: u32) -> u32 {
        self.handle += 1;
        let handle = self.handle;
        self.line(
            &format!(r#"NTCreateX "\clients\client1{path}" {options:#x} {disposition:#x} {handle}"#),
            true,
        );
        handle
    }

    fn close(&mut self, handle: u32) {
        self.line(&format!("Close {handle}"), true);
    }

    fn directory(&mut self, path: &str) {
        let handle = self.open(path, 1, 2);
        self.close(handle);
    }

    fn look(&mut self, path: &str, found: bool) {
        self.line(&format!(r#"QUERY_PATH_INFORMATION "\clients\client1{path}" 1004"#), found);
    }

    /// Makes a file: a byte at its end first, as some programs do to have the room, then all of it.
    fn save(&mut self, path: &str, size: u64, piece: u64) {
        let handle = self.open(path, 0x40, 2);
        self.line(&format!("WriteX {handle} {} 1 1", size - 1), true);
        for at in (0..size).step_by(usize::try_from(piece).unwrap_or(1)) {
            let len = piece.min(size - at);
            self.line(&format!("WriteX {handle} {at} {len} {len}"), true);
        }
        if self.numbers.below(4) == 0 {
            self.line(&format!("Flush {handle}"), true);
        }
        self.close(handle);
    }

    /// Reads a file of a size, in order or at random.
    fn read(&mut self, path: &str, size: u64, piece: u64, count: u64) {
        let handle = self.open(path, 0x40, 1);
        self.line(&format!("QUERY_FILE_INFORMATION {handle} 258"), true);
        let pieces = (size / piece).max(1);
        let in_order = self.numbers.below(2) == 0;
        for i in 0..count {
            let at = if in_order { i % pieces } else { self.numbers.below(pieces) } * piece;
            let len = piece.min(size - at);
            self.line(&format!("ReadX {handle} {at} {piece} {len}"), true);
        }
        self.close(handle);
    }

    /// A program's work in a round.
    fn round(&mut self, program: &str, round: u64) {
        for number in 0..DOCUMENTS {
            let document = format!(r"\work\{program}\DOC{number}.DAT");
            let temporary = format!(r"\work\{program}\~TMP{round:04}{number}.TMP");
            let old = self.documents.get(&document).copied();
            // Half of the names that are looked up do not exist.
            self.look(&temporary, false);
            self.look(&document, old.is_some());
            if let Some(size) = old {
                self.read(&document, size, 4_096, size / 4_096);
            }
            self.change(&document, &temporary, old.is_some());
            let filler = format!(r"\filler.{:03}", self.numbers.below(FILLERS));
            self.read(&filler, FILLER, 61_440, 2);
        }
        self.line(&format!(r#"FIND_FIRST "\clients\client1\work\{program}\*.DAT" 260 1366 0"#), true);
    }

    /// A new version is written, and replaces the document or is thrown away.
    fn change(&mut self, document: &str, temporary: &str, old: bool) {
        let size = 4_096 * (1 + self.numbers.below(24)) + self.numbers.below(4_096);
        let piece = [2_048, 4_096, 8_192, 65_536][self.numbers.index(4)];
        self.save(temporary, size, piece);
        self.read(temporary, size, 4_096, size / 4_096);
        if self.numbers.below(2) == 0 {
            if old {
                self.line(&format!(r#"Unlink "\clients\client1{document}" 0x6"#), true);
            }
            self.line(&format!(r#"Rename "\clients\client1{temporary}" "\clients\client1{document}""#), true);
            self.documents.insert(document.to_string(), size);
        } else {
            self.line(&format!(r#"Unlink "\clients\client1{temporary}" 0x6"#), true);
        }
    }
}
