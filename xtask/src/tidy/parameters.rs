//! Functions with more than five parameters, `self` included, and those that hide some of them in tuples.
//!
//! Owns: finding and counting them. How many a crate may have of the first is in [`super::rungs`].

use super::paths::words;
use super::source::{Code, in_name};

/// Most parameters of a function that are not counted.
const MOST: usize = 5;
/// Most parameters of all crates that are tuples taken apart, as `(plan, more): (&mut Plan, u64)`: a struct says what
/// belongs together and why. The number only falls.
const TUPLES: usize = 89;

/// Functions of a file with a tuple as a parameter: line and name, once for each tuple.
pub(super) fn tuples(code: &Code) -> Vec<(usize, String)> {
    let found = words(&code.text, "fn").flat_map(|at| {
        let rest = &code.text.as_bytes()[at + 2..];
        let tuples = signature(rest).map_or(0, |(_, list)| tuple_count(list));
        let name = signature(rest).map(|(name, _)| name).unwrap_or_default();
        (0..tuples).map(move |_| (code.line(at), name.clone()))
    });
    found.collect()
}

/// Compares the tuples of all crates with their bound.
pub(super) fn check_tuples(tuples: &[String], found: &mut Vec<String>) {
    if tuples.len() > TUPLES {
        found.push(format!(
            "{} parameters are tuples taken apart, at most {TUPLES}; make a struct of what belongs together:\n  {}",
            tuples.len(),
            tuples.join("\n  ")
        ));
    }
}

/// Number of parameters in a list, brackets included, that begin with a bracket: patterns of tuples.
fn tuple_count(list: &[u8]) -> usize {
    let (mut depth, mut begins, mut count) = (0usize, false, 0);
    for (at, byte) in list.iter().enumerate() {
        match byte {
            // The arrow of a function type closes nothing.
            b'>' if at > 0 && list[at - 1] == b'-' => {}
            b'(' | b'[' | b'{' | b'<' => {
                count += usize::from(begins && depth == 1 && *byte == b'(');
                depth += 1;
                begins = depth == 1;
            }
            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 1 => begins = true,
            byte if byte.is_ascii_whitespace() => {}
            _ => begins = false,
        }
    }
    count
}

/// Functions of a file with more than five parameters: line, name, how many.
pub(super) fn long_lists(code: &Code) -> Vec<(usize, String, usize)> {
    let found = words(&code.text, "fn").filter_map(|at| {
        let (name, list) = signature(&code.text.as_bytes()[at + 2..])?;
        let (_, count) = bracketed(list)?;
        (count > MOST).then(|| (code.line(at), name, count))
    });
    found.collect()
}

/// Name and list of parameters, brackets included, of the function whose name comes next; `None` for the type of one.
fn signature(rest: &[u8]) -> Option<(String, &[u8])> {
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
    let (len, _) = bracketed(&rest[open..])?;
    Some((String::from_utf8_lossy(&name).into_owned(), &rest[open..open + len]))
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
