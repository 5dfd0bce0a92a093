//! Rust source as the rules read it: comments, strings and what only tests see are blanks.
//!
//! Owns: what of a file counts as code, with every line where it was. Excludes any rule.

/// A file's code. Everything that is left out is spaces, so that lines and columns stay.
pub(super) struct Code {
    /// The text.
    pub(super) text: String,
    /// Modules that are declared for tests only (`#[cfg(test)] mod name;`): their files are no code of the crate.
    pub(super) test_modules: Vec<String>,
}

impl Code {
    pub(super) fn of(source: &str) -> Self {
        let mut bytes = blank_words(source.as_bytes());
        let mut test_modules = Vec::new();
        let mut from = 0;
        while let Some((start, end, module)) = next_test_item(&bytes, from) {
            blank(&mut bytes, start, end);
            test_modules.extend(module);
            from = end;
        }
        // Only ASCII bytes were exchanged, each for a space; what is not ASCII is a finding of its own.
        Code { text: String::from_utf8_lossy(&bytes).into_owned(), test_modules }
    }

    /// The line, counted from 1, in which a place of the text lies.
    pub(super) fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }
}

/// Returns true if a byte may stand in a name.
pub(super) fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn blank(bytes: &mut [u8], start: usize, end: usize) {
    for byte in bytes.iter_mut().take(end).skip(start).filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// Blanks comments, strings and characters.
fn blank_words(source: &[u8]) -> Vec<u8> {
    let mut bytes = source.to_vec();
    let mut at = 0;
    while at < source.len() {
        let end = word_end(source, at);
        if end > at {
            blank(&mut bytes, at, end);
        }
        at = end.max(at + 1);
    }
    bytes
}

/// The end of the comment, string or character that begins here; the place itself if none does.
fn word_end(source: &[u8], at: usize) -> usize {
    let rest = &source[at..];
    let behind = |found: Option<usize>, len: usize| found.map_or(source.len(), |found| at + found + len);
    if rest.starts_with(b"//") {
        return behind(find(rest, b"\n"), 0);
    }
    if rest.starts_with(b"/*") {
        return behind(find(rest, b"*/"), 2);
    }
    let begins_name = at == 0 || !in_name(source[at - 1]);
    if let Some(close) = raw_string(rest).filter(|_| begins_name) {
        let open = close.len() + rest.iter().take_while(|byte| **byte != b'"').count();
        let body = rest.get(open..).unwrap_or_default();
        return behind(find(body, &close).map(|found| found + open), close.len());
    }
    match rest {
        [b'"', ..] => at + quoted(rest, b'"'),
        [b'\'', b'\\', ..] => at + quoted(rest, b'\''),
        // A lifetime has no second quote.
        [b'\'', _, b'\'', ..] => at + 3,
        _ => at,
    }
}

/// End of the raw string that begins here, if one does.
fn raw_string(rest: &[u8]) -> Option<Vec<u8>> {
    let rest = rest.strip_prefix(b"b").unwrap_or(rest).strip_prefix(b"r")?;
    let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
    (rest.get(hashes) == Some(&b'"')).then(|| [b"\"".to_vec(), vec![b'#'; hashes]].concat())
}

/// The length of a string or character with its quotes, in which a backslash hides the byte behind it.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// The next item that only tests have: where its attribute begins, where it ends, and its name if it is a module in a file
/// of its own.
fn next_test_item(bytes: &[u8], from: usize) -> Option<(usize, usize, Option<String>)> {
    const ATTRIBUTES: [&[u8]; 2] = [b"#[cfg(test", b"#[cfg(all(test"];
    let rest = bytes.get(from..)?;
    let start = from + ATTRIBUTES.iter().filter_map(|attribute| find(rest, attribute)).min()?;
    let item = start + find(bytes.get(start..)?, b"]")? + 1;
    let rest = bytes.get(item..)?;
    let stop = rest.iter().position(|byte| matches!(byte, b';' | b'{')).unwrap_or(rest.len());
    let head = String::from_utf8_lossy(&rest[..stop]).into_owned();
    if rest.get(stop) == Some(&b'{') && !head.split_whitespace().any(|word| word == "use") {
        return Some((start, item + stop + braced(&rest[stop..]), None));
    }
    let end = rest.iter().position(|byte| *byte == b';').map_or(bytes.len(), |end| item + end + 1);
    let mut words = head.split_whitespace().skip_while(|word| *word != "mod");
    Some((start, end, words.nth(1).map(String::from)))
}

/// The length of a block with its braces.
fn braced(rest: &[u8]) -> usize {
    let mut depth = 0usize;
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    rest.len()
}
