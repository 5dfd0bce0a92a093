//! The text of `strace -f -ttt -y`: calls that succeeded, with their arguments, and paths made whole by what it shows
//! of directories. Any bytes are read; what is no call is passed over.

use std::collections::BTreeMap;

/// Longest path that is taken: the kernel's limit.
const LONGEST: usize = 4096;

/// A call that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) process: u64,
    /// Nanoseconds.
    pub(super) time: u64,
    pub(super) name: String,
    /// All arguments as recorded.
    pub(super) text: String,
    pub(super) result: u64,
    arguments: Vec<String>,
    /// Path that the result is a handle of.
    file: Option<String>,
    /// The directory in which the process works.
    directory: String,
}

/// All calls, in the order in which they ended, and as `exited` the end of each process.
pub(super) fn calls(text: &str) -> Vec<Call> {
    let (mut begun, mut places) = (BTreeMap::<u64, String>::new(), BTreeMap::<u64, String>::new());
    let (mut last, mut found) = (String::from("/"), Vec::new());
    for line in text.lines() {
        let Some((process, time, rest)) = head(line) else { continue };
        if rest.starts_with("+++ ") {
            found.push(Call { process, time, name: "exited".into(), ..Call::default() });
            continue;
        }
        let whole = if let Some(start) = rest.strip_suffix("<unfinished ...>") {
            begun.insert(process, start.trim_end().into());
            continue;
        } else if let Some(end) = rest.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            let Some(start) = begun.remove(&process) else { continue };
            start + end.1
        } else {
            rest.to_string()
        };
        let Some(mut call) = call(&whole) else { continue };
        (call.process, call.time) = (process, time);
        // A process begins where the one that made it works; only later calls show it.
        let place = places.entry(process).or_insert_with(|| last.clone());
        let stated = call.arguments.iter().find_map(|argument| handle(argument.strip_prefix("AT_FDCWD")?));
        if let Some(stated) = stated {
            place.clone_from(&stated);
        }
        call.directory.clone_from(place);
        let moved = match &*call.name {
            "chdir" => call.path(0),
            "fchdir" => call.file(0),
            "getcwd" => Some(call.string(0)),
            _ => None,
        };
        if let Some(moved) = moved.and_then(|path| plain(&path)) {
            *place = moved;
        }
        last.clone_from(place);
        found.push(call);
    }
    found
}

/// Process, time and the rest of a line. The number of the process is left out where there is only one.
fn head(line: &str) -> Option<(u64, u64, &str)> {
    let line = line.strip_prefix("[pid").map_or(line, |rest| rest.trim_start());
    let (first, rest) = line.trim_start().split_once([' ', ']'])?;
    let (process, time, rest) = if first.contains('.') {
        (0, first, rest)
    } else {
        let (time, rest) = rest.trim_start().split_once(' ')?;
        (first.parse().ok()?, time, rest)
    };
    let (seconds, part) = time.split_once('.')?;
    let part: u64 = part.get(..6)?.parse().ok()?;
    let time = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part * 1000)?;
    Some((process, time, rest.trim_start()))
}

/// A call with its arguments, if it succeeded.
fn call(text: &str) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let (arguments, end) = arguments(rest);
    let result = rest.get(end..)?.trim_start().strip_prefix('=')?.trim_start();
    let digits = result.find(|c: char| !c.is_ascii_digit()).unwrap_or(result.len());
    let file = handle(result.get(digits..)?);
    let result = result.get(..digits)?.parse().ok()?;
    let text = rest.get(..end)?.to_string();
    Some(Call { name: name.into(), text, result, arguments, file, ..Call::default() })
}

/// The arguments up to the closing bracket, and the byte behind it.
fn arguments(text: &str) -> (Vec<String>, usize) {
    let (mut all, mut start, mut depth, mut quoted, mut skip) = (Vec::new(), 0, 0u32, false, false);
    let mut push = |part: &str| all.push(part.trim().to_string());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if skip => skip = false,
            b'\\' => skip = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            // An arrow is no bracket.
            b'>' if at > 0 && matches!(text.as_bytes().get(at - 1), Some(b'-' | b'=')) => {}
            b')' if depth == 0 => {
                push(text.get(start..at).unwrap_or_default());
                return (all, at + 1);
            }
            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    (all, text.len())
}

/// The path in `<...>` at the start of a text, if it is one.
fn handle(text: &str) -> Option<String> {
    let inner = text.strip_prefix('<')?;
    let path = unescaped(inner.get(..inner.rfind('>')?)?);
    path.starts_with('/').then_some(path)
}

/// A text without backslashes: letters, octal and hexadecimal numbers as C has them.
fn unescaped(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        let Some(&next) = tail.first().filter(|_| first == b'\\') else {
            bytes.push(first);
            continue;
        };
        let number = |digits: usize, skip: usize, base| {
            let digits = tail.get(skip..skip + digits).and_then(|digits| std::str::from_utf8(digits).ok())?;
            u8::from_str_radix(digits, base).ok().map(|byte| (byte, skip + digits.len()))
        };
        let octal = || (1..=3).rev().find_map(|digits| number(digits, 0, 8));
        let (byte, len) = match next {
            b'n' => (b'\n', 1),
            b't' => (b'\t', 1),
            b'r' => (b'\r', 1),
            b'x' => number(2, 1, 16).unwrap_or((b'x', 1)),
            b'0'..=b'7' => octal().unwrap_or((next, 1)),
            other => (other, 1),
        };
        bytes.push(byte);
        rest = tail.get(len..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A whole path without `.` and `..`.
pub(super) fn plain(path: &str) -> Option<String> {
    if !path.starts_with('/') || path.len() > LONGEST || path.contains('\0') {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

impl Call {
    pub(super) fn argument(&self, at: usize) -> &str {
        self.arguments.get(at).map_or("", |argument| argument)
    }

    /// The number at the start of an argument; 0 if there is none.
    pub(super) fn number(&self, at: usize) -> u64 {
        let argument = self.argument(at);
        let digits = argument.find(|c: char| !c.is_ascii_digit()).unwrap_or(argument.len());
        argument.get(..digits).and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    /// A string, without quotes.
    pub(super) fn string(&self, at: usize) -> String {
        let inner = self.argument(at).strip_prefix('"').and_then(|text| text.get(..text.rfind('"')?));
        inner.map(unescaped).unwrap_or_default()
    }

    /// Path that a handle argument is of.
    pub(super) fn file(&self, at: usize) -> Option<String> {
        let argument = self.argument(at);
        handle(argument.get(argument.find('<')?..)?)
    }

    /// Path that the result is a handle of.
    pub(super) fn opened(&self) -> Option<&str> {
        self.file.as_deref()
    }

    pub(super) fn flags(&self) -> &str {
        self.argument(if self.name == "open" { 1 } else { 2 })
    }

    /// The first or second path of a call, whole.
    pub(super) fn path(&self, which: usize) -> Option<String> {
        let at = match (&*self.name, which) {
            ("symlinkat", 1) => return self.within(1, 2),
            (name, _) if name.starts_with("fstat") => return self.file(0),
            ("openat2" | "statx" | "faccessat2" | "renameat2", which) => {
                return self.within(2 * which, 2 * which + 1);
            }
            (name, which) if name.ends_with("at") && name.len() > "stat".len() && name != "lstat" => {
                return self.within(2 * which, 2 * which + 1);
            }
            (_, which) => which,
        };
        self.joined(&self.directory, at)
    }

    /// A path from a directory that is known by its handle.
    fn within(&self, directory: usize, at: usize) -> Option<String> {
        let directory = self.file(directory)?;
        self.joined(&directory, at)
    }

    fn joined(&self, directory: &str, at: usize) -> Option<String> {
        if !self.argument(at).starts_with('"') {
            return None;
        }
        let path = self.string(at);
        plain(&if path.starts_with('/') { path } else { format!("{directory}/{path}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_with_their_paths() {
        let text = "\
            7 1700000000.000001 openat(AT_FDCWD</r/w>, \"a\\40b\\\"c\", O_RDWR|O_CREAT, 0644) = 3</r/w/a b\\\"c>\n\
            7 1700000000.000002 write(3</r/w/a b\\\"c>, \"x, (y\\\"\"..., 4096 <unfinished ...>\n\
            8 1700000000.000003 mkdir(\"sub/../d\", 0777) = 0\n\
            7 1700000000.000004 <... write resumed>) = 4096\n\
            7 1700000000.000005 unlink(\"nothing\") = -1 ENOENT (No such file or directory)\n\
            [pid     9] 1700000000.000006 renameat2(4</r>, \"x\", AT_FDCWD</other>, \"/r/y\", RENAME_NOREPLACE) = 0\n\
            9 1700000000.000007 chdir(\"/tmp\") = 0\n\
            9 1700000000.000008 stat(\"f\", {st_mode=S_IFREG|0644, st_size=1, ...}) = 0\n\
            9 1700000000.000009 +++ exited with 0 +++\n\
            9 1700000000.000010 --- SIGCHLD {si_signo=SIGCHLD} ---\n\
            nonsense\n";
        let found = calls(text);
        let names: Vec<_> = found.iter().map(|call| (call.process, &*call.name, call.result)).collect();
        let wanted = [
            (7, "openat", 3),
            (8, "mkdir", 0),
            (7, "write", 4096),
            (9, "renameat2", 0),
            (9, "chdir", 0),
            (9, "stat", 0),
            (9, "exited", 0),
        ];
        assert_eq!(names, wanted);
        let path = |at: usize, which| found[at].path(which).unwrap_or_default();
        assert_eq!(path(0, 0), "/r/w/a b\"c");
        assert_eq!((found[0].opened(), found[0].flags()), (Some("/r/w/a b\"c"), "O_RDWR|O_CREAT"));
        // Its directory is that of the one before it.
        assert_eq!(path(1, 0), "/r/w/d");
        assert_eq!((found[2].file(0), found[2].number(2)), (Some("/r/w/a b\"c".into()), 4096));
        assert_eq!((path(3, 0), path(3, 1)), ("/r/x".into(), "/r/y".into()));
        assert_eq!(path(5, 0), "/tmp/f");
        assert_eq!(found[5].time, 1_700_000_000_000_008_000);
    }

    #[test]
    fn any_text_is_read() {
        let line = "7 1700000000.000001 openat(AT_FDCWD</r>, \"a\\x4\\9\\\", {[<(, O_RDWR) = 3</r/a>";
        for end in 0..line.len() {
            calls(&line[..end]);
            calls(&format!("{}){}", &line[..end], &line[end..]));
        }
        assert!(
            calls("1 18446744073709551615.999999 close(3</r>) = 0\n1 1.5 x() = 0\n1.000000 (").is_empty()
        );
        assert_eq!(plain("/a/../../b/./c/"), Some("/b/c".into()));
    }
}
