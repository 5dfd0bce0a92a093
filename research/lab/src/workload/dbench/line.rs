//! Lines of a load file: a call's name, its arguments, and what it returned.

/// Call that a line asks for. Handles are the load file's own numbers.
#[derive(Debug)]
pub(super) enum Call {
    /// A name is looked for, whether or not it is there.
    Look(Box<str>),
    List(Box<str>),
    MakeDirectory(Box<str>),
    Open {
        name: Box<str>,
        handle: u32,
        create: bool,
    },
    Write {
        handle: u32,
        offset: u64,
        len: u64,
    },
    Read {
        handle: u32,
        offset: u64,
        len: u64,
    },
    Flush {
        handle: u32,
    },
    Close {
        handle: u32,
    },
    Remove(Box<str>),
    Rename(Box<str>, Box<str>),
    RemoveTree(Box<str>),
    /// Locks, questions about an open file or the volume.
    Nothing,
}

/// The option of an open that says that it is for a directory, and the dispositions that make a new file.
const DIRECTORY: u64 = 1;
const MAKES_NEW: [u64; 3] = [0, 2, 5];

/// All lines of a load file; empty ones and those that begin with `#` are passed over.
///
/// # Errors
/// A line that is no call, by number.
pub(super) fn parse(text: &str) -> Result<Vec<Call>, String> {
    let lines = (1u64..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let call = |(number, line): (u64, &str)| {
        call(line).ok_or_else(|| format!("line {number} of the load file is no call: {line}"))
    };
    lines.map(call).collect()
}

/// The words of a line; names stand in quotes and may hold spaces.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word);
        rest = behind.trim_start();
    }
    words
}

fn number(word: Option<&&str>) -> Option<u64> {
    let word = word?;
    match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

fn call(line: &str) -> Option<Call> {
    let words = words(line);
    let (name, arguments) = words.split_first()?;
    let done = *words.last()? == "NT_STATUS_OK";
    let path = |at: usize| arguments.get(at).map(|word| Box::from(*word));
    let handle = |at| u32::try_from(number(arguments.get(at))?).ok();
    Some(match *name {
        "NTCreateX" if !done => Call::Look(path(0)?),
        "NTCreateX" if number(arguments.get(1))? & DIRECTORY != 0 => Call::MakeDirectory(path(0)?),
        "NTCreateX" => {
            let create = MAKES_NEW.contains(&number(arguments.get(2))?);
            Call::Open { name: path(0)?, handle: handle(3)?, create }
        }
        // Wanted and done: what was done is what counts.
        "WriteX" => Call::Write {
            handle: handle(0)?,
            offset: number(arguments.get(1))?,
            len: number(arguments.get(3))?,
        },
        "ReadX" => Call::Read {
            handle: handle(0)?,
            offset: number(arguments.get(1))?,
            len: number(arguments.get(3))?,
        },
        "Flush" => Call::Flush { handle: handle(0)? },
        "Close" => Call::Close { handle: handle(0)? },
        "Unlink" if done => Call::Remove(path(0)?),
        "Unlink" | "QUERY_PATH_INFORMATION" => Call::Look(path(0)?),
        "Rename" if done => Call::Rename(path(0)?, path(1)?),
        "Rename" => Call::Look(path(0)?),
        "FIND_FIRST" => Call::List(path(0)?),
        "Mkdir" => Call::MakeDirectory(path(0)?),
        "Rmdir" | "Deltree" => Call::RemoveTree(path(0)?),
        "LockX"
        | "UnlockX"
        | "SET_FILE_INFORMATION"
        | "QUERY_FILE_INFORMATION"
        | "QUERY_FS_INFORMATION"
        | "Sfileinfo" => Call::Nothing,
        _ => return None,
    })
}
