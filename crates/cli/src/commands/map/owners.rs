//! Whose blocks are: the owners of single blocks of an image, with their paths.

use std::ffi::OsStr;

use ondisk::units::Block;

use super::super::json::Array;
use super::super::parts::Named;
use crate::console::{Console, Failure};
use crate::reading;

/// Most blocks that are asked about at once.
const BLOCKS_MAX: u64 = 1 << 20;

/// Some blocks, as an argument names them: one, or all from one to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    first: u64,
    last: u64,
}

/// Takes `N` or `N-M`.
pub(super) fn parse(text: &str) -> Result<Blocks, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is no number of a block"));
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    if first <= last { Ok(Blocks { first, last }) } else { Err(format!("{last} comes before {first}")) }
}

/// Shows the owners of blocks.
pub(super) fn show(
    image: &OsStr,
    blocks: &[Blocks],
    as_json: bool,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let count =
        blocks.iter().map(|range| (range.last - range.first).saturating_add(1)).fold(0, u64::saturating_add);
    if count > BLOCKS_MAX {
        return Err(Failure::Usage(format!("{count} blocks are too many: at most {BLOCKS_MAX} at once")));
    }
    let (ground, name) = reading::ground(image, console)?;
    let wanted: Vec<Block> = blocks.iter().flat_map(|range| (range.first..=range.last).map(Block)).collect();
    let named = Named::of(&ground, &wanted).map_err(|error| Failure::about(&name, error))?;
    let mut array = Array::default();
    let per_block = ground.geometry().inodes_per_block();
    for block in &wanted {
        if as_json {
            array.push(console.out, named.object(*block))?;
            continue;
        }
        let state = match named.in_use(*block) {
            Some(true) => "in use by nothing that is known",
            Some(false) => "free",
            None => "of no known state",
        };
        let mut words = named.words(*block, per_block);
        if words.is_empty() {
            words.push(state.to_owned());
        } else if named.in_use(*block) == Some(false) {
            words.push("and free by the bitmap".to_owned());
        }
        for words in words {
            writeln!(console.out, "{block}: {words}")?;
        }
    }
    if as_json {
        array.end(console.out)?;
    }
    named.problems().try_for_each(|problem| console.complain(Failure::about(&name, problem.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_numbers_and_ranges() {
        assert_eq!(parse("7"), Ok(Blocks { first: 7, last: 7 }));
        assert_eq!(parse("7-9"), Ok(Blocks { first: 7, last: 9 }));
        for wrong in ["", "-", "7-", "9-7", "x", "18446744073709551616"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
