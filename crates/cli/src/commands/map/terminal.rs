//! A map as text: block characters that are the fuller the darker, and colours if there are any.

use std::fmt::Write;

use super::survey::{Cell, Kept, PLACES, Survey};
use super::{cell_size, facts};
use crate::reading::OpenImage;
use crate::text::Shown;

/// From empty over partly used to full.
const SHADES: [char; 6] = ['\u{b7}', '\u{2591}', '\u{2592}', '\u{2593}', '\u{2588}', '\u{2588}'];
/// Scale in colours of 256: grey, then blue over teal to yellow.
const COLORS: [u8; 6] = [240, 24, 30, 72, 143, 221];
/// Sign for cells in which only the format's own blocks are used (tables, bitmaps), as in most cells of a large volume.
const OWN: char = '-';
/// Most lines of the map: with its head it fits a terminal of 24 lines. Cells are joined where there would be more.
const LINES: usize = 18;

/// Which shade a level has: nothing and all have their own.
fn shade(level: u8) -> usize {
    match level {
        0 => 0,
        63.. => 5,
        level => 1 + usize::from(level - 1) * 4 / 62,
    }
}

/// The whole text, of lines not longer than `width`.
pub(super) fn text(image: &OpenImage, survey: &Survey, width: usize, colored: bool) -> String {
    let mut out = String::new();
    // Writing to a string can't fail.
    let _ = writeln!(out, "{}", image.name);
    for fact in facts(image, survey) {
        let _ = writeln!(out, "{fact}");
    }
    out.push('\n');
    cells(&mut out, image, survey, width, colored);
    free(&mut out, survey, width);
    pieces(&mut out, survey, width);
    files(&mut out, survey, width, colored);
    out
}

fn put(out: &mut String, level: u8, colored: bool) {
    let at = shade(level);
    let (character, color) = (SHADES.get(at).copied().unwrap_or(' '), COLORS.get(at).copied().unwrap_or(0));
    paint(out, character, color, colored);
}

fn paint(out: &mut String, character: char, color: u8, colored: bool) {
    if colored {
        let _ = write!(out, "\x1b[38;5;{color}m{character}\x1b[0m");
    } else {
        out.push(character);
    }
}

fn cells(out: &mut String, image: &OpenImage, survey: &Survey, width: usize, colored: bool) {
    const NAME: usize = 15;
    // Powers of two, so that groups begin where lines do.
    let columns = 1 << width.saturating_sub(NAME).max(1).ilog2();
    let all: Vec<&Cell> = survey.cells.iter().collect();
    let each = all.len().div_ceil(LINES * columns).max(1).next_power_of_two();
    let cluster_log2 = image.volume.format().geometry.cluster_log2;
    let one = |out: &mut String, cells: &[&Cell]| {
        let sum = |of: fn(&Cell) -> u64| cells.iter().map(|cell| of(cell)).sum::<u64>();
        let (clusters, used) = (sum(|cell| cell.clusters), sum(|cell| cell.used));
        match used > 0 && used << cluster_log2 <= sum(|cell| cell.metadata) {
            _ if clusters == 0 => {}
            true => paint(out, OWN, COLORS[0], colored),
            false => put(out, chart::level(used, clusters), colored),
        }
    };
    let mut last = None;
    for (line, cells) in all.chunks(each * columns).enumerate() {
        let group = Some(survey.grid.group_of(line * each * columns));
        let name = group.filter(|_| group != last).map(|group| format!("group {group} ")).unwrap_or_default();
        let _ = write!(out, "{name:>NAME$}");
        last = group;
        cells.chunks(each).for_each(|cells| one(out, cells));
        out.push('\n');
    }
    let times = if each == 1 { String::new() } else { format!("{each} x ") };
    let _ = write!(out, "each character {times}{}, from ", cell_size(image, survey));
    [0, 1, 20, 40, 62].into_iter().for_each(|level| put(out, level, colored));
    let _ = writeln!(out, " empty to full, {OWN} tables\n");
}

/// A bar of a share of a width, at least a mark if there is anything.
fn bar(part: u64, most: u64, width: usize) -> String {
    let long = u128::from(part) * width as u128 / u128::from(most.max(1));
    let long = usize::try_from(long).unwrap_or(width).min(width);
    if part == 0 { String::new() } else { "\u{2588}".repeat(long.max(1)) }
}

fn free(out: &mut String, survey: &Survey, width: usize) {
    let bins: Vec<_> = survey.free.bins().collect();
    if bins.is_empty() {
        return;
    }
    let _ = writeln!(out, "free space by length of run");
    let most = bins.iter().map(|bin| bin.3).max().unwrap_or(0);
    for (low, _, runs, blocks) in bins {
        let head = format!("{:>9} and more {runs:>9} runs ", crate::size::human(low));
        let _ = writeln!(out, "{head}{}", bar(blocks, most, width.saturating_sub(head.len())));
    }
    out.push('\n');
}

fn pieces(out: &mut String, survey: &Survey, width: usize) {
    let most = survey.by_pieces.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return;
    }
    let _ = writeln!(out, "files by extents");
    for (bin, files) in survey.by_pieces.iter().enumerate().skip_while(|(_, files)| **files == 0) {
        let low = 1_u64 << bin.min(62);
        let range = if bin == 0 { "1".to_owned() } else { format!("{low} to {}", 2 * low - 1) };
        let head = format!("{range:>18} {files:>14} files ");
        let _ = writeln!(out, "{head}{}", bar(*files, most, width.saturating_sub(head.len())));
    }
    out.push('\n');
}

fn files(out: &mut String, survey: &Survey, width: usize, colored: bool) {
    const SHOWN: usize = 12;
    let most = survey.fragmented.iter().map(|file| file.pieces).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    let _ = writeln!(out, "where the files in the most extents lie");
    let name_width = (width * 2 / 5).min(48);
    for file in survey.fragmented.iter().take(SHOWN) {
        let head = format!("{:>8} {} ", file.pieces, name(file, name_width));
        let room = width.saturating_sub(name_width + 10);
        out.push_str(&head);
        strip(file, room).into_iter().for_each(|used| put(out, if used { 62 } else { 0 }, colored));
        out.push('\n');
    }
}

/// The end of a path, as wide as asked for.
fn name(file: &Kept, width: usize) -> String {
    let path = Shown(&file.path.0).to_string();
    let count = path.chars().count();
    let tail: String = path.chars().skip(count.saturating_sub(width)).collect();
    format!("{tail:<width$}")
}

/// Which parts of the volume hold anything of a file.
fn strip(file: &Kept, room: usize) -> Vec<bool> {
    let mut marks = vec![false; room];
    let at = |place: u64| usize::try_from(place * room as u64 / PLACES).unwrap_or(room);
    for (start, count) in &file.runs {
        let (from, to) = (at(*start), at(start + count).max(at(*start) + 1));
        marks.iter_mut().take(to).skip(from.min(room.saturating_sub(1))).for_each(|mark| *mark = true);
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_and_full_cells_have_the_ends_of_the_scale() {
        assert_eq!([0, 1, 31, 62, 63].map(shade), [0, 1, 2, 4, 5]);
        assert_eq!(bar(1, 1_000, 10).chars().count(), 1);
        assert_eq!(bar(u64::MAX, u64::MAX, 10).chars().count(), 10);
        assert_eq!(bar(0, 0, 10), "");
    }
}
