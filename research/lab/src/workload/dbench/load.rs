//! A load of our own in dbench's client format: work on documents. Large files are put down first; then in each round
//! names are tried by empty files, documents are read, saved under temporary names and renamed over the old, prints are
//! written and removed, and files of a server are read whole and written over at their begin.
//!
//! Each round makes, reads, writes and removes as much as each of the 129 rounds of the load that comes with dbench 4.0
//! (`client.txt`), by counts of its lines: 124 files made, 67 of which are removed empty, and 26 renamed; 7.9 MB written, half of
//! it in files that stay, and 11.4 MB read in some 1,000 reads; 350 names that are not there and 370 that are. Only what was counted is
//! taken from it: sizes are drawn within classes of that load, names are ours.

use std::fmt::Write;

use crate::numbers::Numbers;

/// Bytes of a large piece, and of what is read of one before its last page.
const PIECE: u64 = 65_536;
const HEAD: u64 = 61_440;
const PAGE: u64 = 4_096;

/// Files put down first that nothing is done to, and bytes of each.
const FILLERS: u64 = 5;
const FILLER: u64 = 1 << 20;

/// Files that stay: bytes, and pieces at their begin that are written over.
const SEEDS: [(&str, u64, u64); 3] =
    [("SMALL.FIL", 5 * PIECE, 2), ("MEDIUM.FIL", 16 * PIECE, 4), ("LARGE.FIL", 28 * PIECE + 32_768, 8)];
/// How often in a round these are written, and how often read.
const WRITTEN: u64 = 4;
const WHOLE: u64 = 3;
/// Bytes at most that are read of one.
const READ: [u64; 3] = [5, 10, 28];

/// Directories, and documents that stay in each, of pages of 4 KiB each.
const PROGRAMS: [&str; 8] = ["WORD", "SHEET", "SLIDES", "DRAW", "LETTER", "LAYOUT", "TABLES", "RECORDS"];
const KEPT: u64 = 5;
const KEPT_PAGES: u64 = 40;
/// Pages that are read of these in a round.
const PAGES_READ: u64 = 640;

/// Names that are tried by empty files in a round.
const EMPTY: u64 = 67;
/// Names that are looked for in a round: not there, there; and how often directories are listed.
const MISSED: u64 = 350;
const FOUND: u64 = 370;
const LISTED: u64 = 215;

/// Files that are saved in a round: how many, of how many bytes, how many of them take the place of the one before by a new
/// name, and how many pages of each are read and written again.
const SAVED: [(u64, [u64; 2], u64, u64); 6] = [
    (3, [53, 64], 0, 0),
    (16, [2_048, 4_096], 2, 1),
    (10, [8_192, 15_360], 10, 1),
    (13, [18_000, 57_088], 8, 1),
    (11, [62_591, 105_000], 6, 3),
    (4, [388_778, 647_422], 0, 0),
];

struct Script {
    text: String,
    handle: u32,
    numbers: Numbers,
}

/// The load of one client: the same text for the same seed.
pub(super) fn generate(seed: u64, rounds: u64) -> String {
    let mut script = Script { text: String::new(), handle: 10_000, numbers: Numbers::new(seed) };
    script.line(r#"Deltree "\clients\client1""#, true);
    script.directory("");
    (0..FILLERS).for_each(|filler| script.save(&format!(r"\filler.{filler:03}"), FILLER));
    script.directory(r"\work");
    script.directory(r"\work\SEED");
    for program in PROGRAMS {
        script.directory(&format!(r"\work\{program}"));
        for number in 0..KEPT {
            script.save(&kept(program, number), KEPT_PAGES * PAGE);
        }
    }
    SEEDS.iter().for_each(|(name, size, _)| script.save(&format!(r"\work\SEED\{name}"), *size));
    (0..rounds).for_each(|round| script.round(round));
    script.line(r#"Deltree "\clients\client1""#, true);
    script.text
}

fn kept(program: &str, number: u64) -> String {
    format!(r"\work\{program}\KEPT{number}.DAT")
}

/// How much of `all` is done in a turn, where it is spread evenly over `turns` of them; turns are counted from 0.
fn share(all: u64, turn: u64, turns: u64) -> u64 {
    all * (turn + 1) / turns - all * turn / turns
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

    fn remove(&mut self, path: &str) {
        self.line(&format!(r#"Unlink "\clients\client1{path}" 0x6"#), true);
    }

    fn write(&mut self, handle: u32, at: u64, len: u64) {
        self.line(&format!("WriteX {handle} {at} {len} {len}"), true);
    }

    fn read(&mut self, handle: u32, at: u64, len: u64) {
        self.line(&format!("ReadX {handle} {at} {len} {len}"), true);
    }

    /// Makes a file: the last byte of its first piece goes first, as programs do to learn that there is room.
    fn save(&mut self, path: &str, size: u64) {
        let handle = self.open(path, 0x40, 2);
        self.line(&format!("WriteX {handle} {} 1 1", size.min(PAGE) - 1), true);
        for at in (0..size).step_by(usize::try_from(PIECE).unwrap_or(1)) {
            self.write(handle, at, PIECE.min(size - at));
        }
        self.close(handle);
    }

    /// Runs a round in each directory, and between them on the files that stay.
    fn round(&mut self, round: u64) {
        let turns = PROGRAMS.len() as u64;
        for (program, turn) in PROGRAMS.into_iter().zip(0..) {
            self.try_names(program, share(EMPTY, turn, turns));
            (0..share(MISSED, turn, turns)).for_each(|_| self.look(&format!(r"\work\{program}\NONE"), false));
            (0..share(FOUND, turn, turns)).for_each(|at| self.look(&kept(program, at % KEPT), true));
            let list = format!(r#"FIND_FIRST "\clients\client1\work\{program}\*.DAT" 260 1366 0"#);
            (0..share(LISTED, turn, turns)).for_each(|_| self.line(&list, true));
            self.read_kept(program, share(PAGES_READ, turn, turns));
            let classes = SAVED.into_iter().enumerate();
            for (class, (count, sizes, renamed, again)) in classes {
                // In each class those that are renamed are the first of a round.
                let before = count * turn / turns;
                for number in before..before + share(count, turn, turns) {
                    let name = format!(r"\work\{program}\{class}.{number}");
                    self.save_again(&name, round, sizes, (number < renamed, again));
                }
            }
            (0..share(WRITTEN, turn, turns)).for_each(|_| self.write_over());
            (0..share(WHOLE, turn, turns)).for_each(|_| self.read_whole());
        }
    }

    fn try_names(&mut self, program: &str, count: u64) {
        for number in 0..count {
            let path = format!(r"\work\{program}\TRY{number}.TMP");
            let handle = self.open(&path, 0x40, 2);
            self.close(handle);
            self.remove(&path);
        }
    }

    fn read_kept(&mut self, program: &str, pages: u64) {
        for number in 0..KEPT {
            let handle = self.open(&kept(program, number), 0x40, 1);
            self.line(&format!("QUERY_FILE_INFORMATION {handle} 258"), true);
            let first = self.numbers.below(KEPT_PAGES);
            for page in 0..share(pages, number, KEPT) {
                self.read(handle, (first + page) % KEPT_PAGES * PAGE, PAGE);
            }
            self.close(handle);
        }
    }

    /// A file that takes the place of that of the round before: under a temporary name, which is then changed; or it is
    /// removed first.
    fn save_again(&mut self, name: &str, round: u64, sizes: [u64; 2], (renamed, again): (bool, u64)) {
        let size = sizes[0] + self.numbers.below(sizes[1] - sizes[0] + 1);
        let (document, temporary) = (format!("{name}.DOC"), format!("{name}.TMP"));
        let path = if renamed { &temporary } else { &document };
        if round > 0 && !renamed {
            self.remove(&document);
        }
        self.save(path, size);
        let handle = self.open(path, 0x40, 1);
        for page in 0..again {
            self.read(handle, page * PAGE, PAGE.min(size));
            self.write(handle, page * PAGE, PAGE.min(size));
        }
        self.line(&format!("Flush {handle}"), true);
        self.close(handle);
        if renamed {
            if round > 0 {
                self.remove(&document);
            }
            self.line(&format!(r#"Rename "\clients\client1{temporary}" "\clients\client1{document}""#), true);
        }
    }

    /// Of each piece that is written over the last page is read before.
    fn write_over(&mut self) {
        for (name, _, pieces) in SEEDS {
            let handle = self.open(&format!(r"\work\SEED\{name}"), 0x40, 1);
            (0..pieces).for_each(|piece| self.read(handle, piece * PIECE + HEAD, PAGE));
            (0..pieces).for_each(|piece| self.write(handle, piece * PIECE, PIECE));
            self.close(handle);
        }
    }

    fn read_whole(&mut self) {
        for ((name, ..), pieces) in SEEDS.into_iter().zip(READ) {
            let handle = self.open(&format!(r"\work\SEED\{name}"), 0x40, 1);
            for piece in 0..pieces {
                self.read(handle, piece * PIECE, HEAD);
                self.read(handle, piece * PIECE + HEAD, PAGE);
            }
            self.close(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of lines of a kind, and the sum of their last numbers.
    fn counts(text: &str, kind: &str) -> (u64, u64) {
        let of = text.lines().filter(|line| line.starts_with(kind));
        let bytes = |line: &str| line.split(' ').nth_back(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        of.fold((0, 0), |(lines, sum), line| (lines + 1, sum + bytes(line)))
    }

    /// Of a round of the load of dbench 4.0, counted in it: 124.0 files removed, 26.0 renamed; 306 writes of 7.88 MB, 963
    /// reads of 11.41 MB; 352 names missed and 368 found.
    #[test]
    fn a_round_does_what_each_of_dbench_s_own_load_does() {
        let [two, three] = [2, 3].map(|rounds| generate(1, rounds));
        let more = |kind: &str| {
            let (before, after) = (counts(&two, kind), counts(&three, kind));
            (after.0 - before.0, after.1 - before.1)
        };
        assert_eq!((more("Unlink").0, more("Rename").0), (67 + 57, 26));
        assert_eq!(more("QUERY_PATH").0, 350 + 370);
        let ((writes, written), (reads, read)) = (more("WriteX"), more("ReadX"));
        assert!(
            (270..=310).contains(&writes) && (7_500_000..8_100_000).contains(&written),
            "{writes} {written}"
        );
        assert!((930..=1_030).contains(&reads) && (11_000_000..11_800_000).contains(&read), "{reads} {read}");
    }
}
