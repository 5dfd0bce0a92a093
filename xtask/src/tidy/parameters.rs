//! Functions with more than five parameters, `self` included.
//!
//! Owns: finding and counting them. How many a crate may have is in [`super::rungs`].

use super::paths::words;
use super::source::{Code, in_name};

/// Most parameters of a function that are not counted.
const MOST: usize = 5;

/// Functions of a file with more than five parameters: line, name, how many.
pub(super) fn long_lists(code: &Code) -> Vec<(usize, String, usize)> {
    let found = words(&code.text, "fn").filter_map(|at| {
        let (name, count) = signature(&code.text.as_bytes()[at + 2..])?;
        (count > MOST).then(|| (code.line(at), name, count))
    });
    found.collect()
}

/// Name and number of parameters of the function whose name comes next; `None` for the type of one.
fn signature(rest: &[u8]) -> Option<(String, usize)> {
    let start = rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let name: Vec<u8> = rest[start..].iter().copied().take_while(|byte| in_name(*byte)).collect();
    let behind = start + name.len();
    if name.is_empty() {
        return None;
    }
    let generics = if rest.get(behind) == Some(&b'<') { bracketed(&rest[behind..])?.0 } else { 0 };
    let open = behind + generics;
    if rest.get(open) != Some(&b'(') {
        return None;
    }
    let (_, count) = bracketed(&rest[open..])?;
    Some((String::from_utf8_lossy(&name).into_owned(), count))
}

/// The length of what brackets hold, themselves included, and how many parts commas cut it into.
fn bracketed(rest: &[u8]) -> Option<(usize, usize)> {
    let (mut depth, mut parts, mut part_has_text) = (0usize, 0, false);
    for (at, byte) in rest.iter().enumerate() {
        // The arrow of a function type closes nothing.
        let is_arrow = *byte == b'>' && at > 0 && rest[at - 1] == b'-';
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' | b'>' if !is_arrow => {
                depth -= 1;
                if depth == 0 {
                    return Some((at + 1, parts + usize::from(part_has_text)));
                }
            }
            b',' if depth == 1 => {
                parts += 1;
                part_has_text = false;
                continue;
            }
            _ => {}
        }
        part_has_text |= at > 0 && !byte.is_ascii_whitespace();
    }
    None
}
