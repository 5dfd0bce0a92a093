//! The calls that `plat mount --trace` wrote down (docs/trace.md), for the replay above. Any text is read; a line that is none of
//! the format is an error with its number.

use std::ops::Range;

use super::{LARGEST, Replay};
use crate::system::{Op, Slot};

/// The first line.
pub(super) const HEAD: &str = "PLATCALLS 1";
/// Handles of this many files are kept: a mount does not learn when files are closed.
const OPEN: usize = 64;
/// Longest path that is taken: the kernel's limit.
const LONGEST: usize = 4096;
/// The process of all handles: they are found by path.
const MOUNT: u64 = u64::MAX;

/// A call, its paths as they were escaped.
struct Call<'t> {
    /// Nanoseconds.
    time: u64,
    verb: &'t str,
    rest: Vec<&'t str>,
}

/// All calls of a trace; `each` gets each with its time.
///
/// # Errors
/// The number of the line that is wrong, and why.
pub(super) fn read(
    text: &str,
    replay: &mut Replay,
    mut each: impl FnMut(&mut Replay, usize, u64),
) -> Result<(), String> {
    for (number, line) in (1_u64..).zip(text.lines()).skip(1) {
        let known = replay.calls.len();
        let failure = |error: String| format!("line {number}: {error}");
        let call = call(line).map_err(failure)?;
        replay.mounted(&call).map_err(failure)?;
        each(replay, known, call.time);
    }
    Ok(())
}

fn call(line: &str) -> Result<Call<'_>, String> {
    let mut words = line.split(' ');
    let (Some(time), Some(process), Some(verb)) = (words.next(), words.next(), words.next()) else {
        return Err("a call is a time, a process, a verb and what it was about".into());
    };
    process.parse::<u32>().map_err(|_| format!("`{process}` is no number of a process"))?;
    let parsed = time.split_once('.').filter(|(_, part)| part.len() == 9).and_then(|(seconds, part)| {
        let (seconds, part) = (seconds.parse::<u64>().ok()?, part.parse::<u64>().ok()?);
        seconds.checked_mul(1_000_000_000)?.checked_add(part)
    });
    let time = parsed.ok_or_else(|| format!("`{time}` is no time"))?;
    Ok(Call { time, verb, rest: words.collect() })
}

impl Call<'_> {
    fn word(&self, at: usize) -> Result<&str, String> {
        self.rest.get(at).copied().ok_or_else(|| format!("`{}` says too little", self.verb))
    }

    /// A number that a file can have.
    fn number(&self, at: usize) -> Result<u64, String> {
        let word = self.word(at)?;
        word.parse()
            .ok()
            .filter(|number| *number < LARGEST)
            .ok_or_else(|| format!("`{word}` is no place in a file"))
    }

    /// Offset and length of a part of a file.
    fn part(&self, at: usize) -> Result<(u64, u64), String> {
        let (offset, len) = (self.number(at)?, self.number(at + 1)?);
        if offset + len < LARGEST {
            Ok((offset, len))
        } else {
            Err(format!("{offset} and {len} bytes are too much"))
        }
    }
}

/// The bytes of an escaped word. Those that are no text are replaced: names count here, not what they mean.
fn plain(word: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'\\' {
            let digits = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
            bytes.push(byte.ok_or_else(|| format!("`{word}`: a backslash and no three digits"))?);
            rest = &tail[3..];
        } else {
            bytes.push(*first);
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns true if a path is one that a mount has: every part a name.
fn is_path(path: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 255 && !part.contains('\0');
    path == "/"
        || path.len() <= LONGEST && path.strip_prefix('/').is_some_and(|path| path.split('/').all(part))
}

impl Replay {
    /// The path of a call below the root; none for what lies elsewhere, has no name any more, or is the root, nor
    /// for what every volume has and a directory need not.
    fn path_of(&self, call: &Call<'_>, at: usize) -> Result<Option<String>, String> {
        let word = call.word(at)?;
        let path = plain(word)?;
        match &*path {
            "-" | "/lost+found" => Ok(None),
            path if is_path(path) => Ok(self.below(path)),
            _ => Err(format!("`{word}` is no path")),
        }
    }

    fn mounted(&mut self, call: &Call<'_>) -> Result<(), String> {
        match call.verb {
            "sync" => self.calls.push(Op::SyncAll),
            "rename" | "exchange" | "link" | "copy" => self.mounted_pair(call)?,
            "read" | "write" | "truncate" | "allocate" | "fsync" | "fdatasync" => {
                let path = self.path_of(call, 0)?;
                self.mounted_file(call, path)?;
            }
            "create" | "mknod" | "mkdir" | "symlink" | "unlink" | "rmdir" | "list" | "stat" | "readlink"
            | "attributes" | "setxattr" | "removexattr" => {
                let path = self.path_of(call, 0)?;
                let target = if call.verb == "symlink" { plain(call.word(1)?)? } else { String::new() };
                path.into_iter().for_each(|path| self.mounted_name(call.verb, path, target.clone()));
            }
            verb => return Err(format!("`{verb}` is no call")),
        }
        Ok(())
    }

    fn mounted_name(&mut self, verb: &str, path: String, target: String) {
        match verb {
            "create" | "mknod" if self.room(&path) => {
                self.make(&path, false);
                let slot = self.slot();
                self.calls.push(Op::Open { slot, path: path.as_str().into(), create: true });
                self.keep(slot, path);
            }
            "mkdir" if self.room(&path) => {
                self.make(&path, true);
                self.calls.push(Op::MakeDirectory(path.into()));
            }
            "symlink" if self.room(&path) => {
                self.make(&path, false);
                self.calls.push(Op::Symlink { target: target.into(), path: path.into() });
            }
            "unlink" => {
                self.shut(&path);
                self.remove(&path, false);
            }
            "rmdir" => self.remove(&path, true),
            "list" if self.there(&path, true) => self.calls.push(Op::List(path.into())),
            "stat" | "readlink" if self.nodes.contains_key(&path) => self.calls.push(Op::Status(path.into())),
            _ => {}
        }
    }

    fn mounted_file(&mut self, call: &Call<'_>, path: Option<String>) -> Result<(), String> {
        // Errors are reported for a file without a name, too.
        let (offset, len) = match call.verb {
            "read" | "write" => call.part(1)?,
            "allocate" => call.part(2)?,
            "truncate" => (0, call.number(1)?),
            _ => (0, 0),
        };
        let Some((slot, path)) = path.and_then(|path| Some((self.held(&path)?, path))) else { return Ok(()) };
        match call.verb {
            "read" | "write" => self.mounted_bytes(&path, slot, offset..offset + len, call.verb == "write"),
            "allocate" if call.number(1)? == 0 => {
                self.reach(&path, offset + len, true);
                self.calls.push(Op::Reserve { slot, offset, len });
            }
            "allocate" => {}
            "truncate" => {
                self.nodes.entry(path).and_modify(|node| node.len = len);
                self.calls.push(Op::Truncate { slot, len });
            }
            verb => self.calls.push(Op::Sync { slot, data_only: verb == "fdatasync" }),
        }
        Ok(())
    }

    fn mounted_bytes(&mut self, path: &str, slot: Slot, range: Range<u64>, write: bool) {
        let (offset, len) = (range.start, range.end - range.start);
        if len > 0 {
            self.reach(path, offset + len, write);
            self.calls.push(if write {
                Op::Write { slot, offset, len }
            } else {
                Op::Read { slot, offset, len }
            });
        }
    }

    fn mounted_pair(&mut self, call: &Call<'_>) -> Result<(), String> {
        if call.verb == "copy" {
            let (at, len) = (call.number(1)?, call.number(4)?);
            let (offset, _) = call.part(3)?;
            for (which, place, write) in [(0, at, false), (2, offset, true)] {
                if place + len >= LARGEST {
                    return Err(format!("{place} and {len} bytes are too much"));
                }
                if let Some(path) = self.path_of(call, which)?
                    && let Some(slot) = self.held(&path)
                {
                    self.mounted_bytes(&path, slot, place..place + len, write);
                }
            }
            return Ok(());
        }
        let (Some(from), Some(to)) = (self.path_of(call, 0)?, self.path_of(call, 1)?) else { return Ok(()) };
        match call.verb {
            "link" if self.there(&from, false) && self.room(&to) => {
                self.make(&to, false);
                self.calls.push(Op::Link(from.into(), to.into()));
            }
            "rename" => self.mounted_rename(&from, &to),
            "exchange" => {
                let aside = format!("{from}~exchange");
                self.mounted_rename(&from, &aside);
                self.mounted_rename(&to, &from);
                self.mounted_rename(&aside, &to);
            }
            _ => {}
        }
        Ok(())
    }

    fn mounted_rename(&mut self, from: &str, to: &str) {
        if from != to {
            self.shut(to);
            // Over an empty directory, as over a file.
            if self.nodes.get(to).is_some_and(|node| node.directory) {
                self.remove(to, true);
            }
            self.rename(from, to);
        }
    }

    /// The handle of a file; opened, and before that made, where there is none.
    fn held(&mut self, path: &str) -> Option<Slot> {
        if let Some(handle) = self.handles.values().find(|handle| handle.path == path) {
            return Some(handle.slot);
        }
        if !self.there(path, false) {
            return None;
        }
        let slot = self.slot();
        self.calls.push(Op::Open { slot, path: path.into(), create: false });
        self.keep(slot, path.into());
        Some(slot)
    }

    /// Keeps a handle; closes another where there are many.
    fn keep(&mut self, slot: Slot, path: String) {
        if self.handles.len() >= OPEN
            && let Some(first) = self.handles.keys().next().copied()
        {
            self.close(first);
        }
        self.opened += 1;
        self.handles.insert((MOUNT, self.opened), super::Handle { slot, path, at: 0, append: false });
    }

    fn shut(&mut self, path: &str) {
        let key = self.handles.iter().find(|(_, handle)| handle.path == path).map(|(key, _)| *key);
        key.into_iter().for_each(|key| self.close(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> String {
        let text = format!("{HEAD}\n1.000000001 7 mkdir /a\n{line}\n");
        read(&text, &mut Replay::default(), |_, _, _| {}).unwrap_err()
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line() {
        let lines = [
            ("", "a call is"),
            ("1.5 7 sync", "is no time"),
            ("99999999999999999999.000000000 7 sync", "is no time"),
            ("18446744073709551615.000000000 7 sync", "is no time"),
            ("1.000000000 -7 sync", "no number of a process"),
            ("1.000000000 7 format /", "is no call"),
            ("1.000000000 7 write /f 0", "says too little"),
            ("1.000000000 7 write /f 0 99999999999999999999", "no place in a file"),
            ("1.000000000 7 write - 17592186044415 17592186044415", "too much"),
            ("1.000000000 7 copy /f 17592186044415 /g 0 9", "too much"),
            ("1.000000000 7 create /a/../b", "is no path"),
            ("1.000000000 7 create a", "is no path"),
            ("1.000000000 7 create /a\\0", "no three digits"),
            ("1.000000000 7 create /a\\777", "no three digits"),
            ("1.000000000 7 rename /a", "says too little"),
        ];
        for (line, expected) in lines {
            let error = error(line);
            assert!(error.starts_with("line 3: ") && error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn files_without_a_name_and_beyond_the_handles_are_no_matter() {
        let mut text = format!("{HEAD}\n1.000000000 7 write - 0 9\n");
        (0..300).for_each(|n| text += &format!("1.000000000 {n} write /f{n} 0 9\n"));
        (0..300).for_each(|n| {
            text += &format!("1.000000000 {n} rename /f{n} /g{n}\n1.000000000 7 unlink /g{n}\n")
        });
        let mut replay = Replay::default();
        read(&text, &mut replay, |_, _, _| {}).unwrap();
        let writes = replay.calls.iter().filter(|op| matches!(op, Op::Write { len: 9, .. })).count();
        assert_eq!((writes, replay.handles.len(), replay.nodes.len()), (300, 0, 0));
        assert!(replay.slots <= 65);
    }
}
