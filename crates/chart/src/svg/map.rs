//! The map of a volume: cells by how much of each is in use, row by row, and below them where files lie.

use crate::colours::{INK, PAPER, Pair, RAISED, fill, level as shade, series, style};
use crate::escape;
use std::fmt::Write;

const MARGIN: u32 = 20;
/// Cells in a row, and the side of one.
const COLUMNS: u32 = 64;
const SIDE: u32 = 14;
const LINE: u32 = 18;
/// Width of a colour and its words in the legend.
const KEY: u32 = 110;
const STRIP: u32 = 16;
/// Width of the names before strips, and longest name in characters.
const NAMES: u32 = 280;
const LONGEST: usize = 42;

/// The meaning of colours: nothing in use over every eighth to all of it, and what lies around.
fn classes() -> Vec<(String, Pair)> {
    let levels = (0..10).map(|at| (format!("l{at}"), shade(at)));
    let around = [("paper", PAPER), ("ink", INK), ("track", RAISED), ("s0", series(0))];
    levels.chain(around.map(|(class, colour)| (class.to_owned(), colour))).collect()
}

/// Where a file lies: its name, and first place and length of each run.
#[derive(Clone, Debug)]
pub struct Strip {
    /// Before the strip.
    pub name: String,
    /// First place and length.
    pub runs: Vec<(u64, u64)>,
}

/// Map to be drawn.
#[derive(Clone, Copy, Debug)]
pub struct Map<'a> {
    /// Above all.
    pub title: &'a str,
    /// Lines between cells and strips.
    pub notes: &'a [String],
    /// Used part of each cell, as [`crate::level`] gives it.
    pub levels: &'a [u8],
    /// Where files lie.
    pub strips: &'a [Strip],
    /// Places of the volume, to which strips refer.
    pub total: u64,
}

/// Returns the number of a level's colour, of ten.
#[must_use]
pub fn tenth(level: u8) -> usize {
    match level {
        0 => 0,
        63.. => 9,
        level => 1 + usize::from(level - 1) * 8 / 62,
    }
}

/// The end of a name that is too long, since the last part of a path says most.
fn tail(name: &str) -> String {
    let skip = name.chars().count().saturating_sub(LONGEST);
    if skip == 0 {
        name.to_owned()
    } else {
        format!("...{}", name.chars().skip(skip + 3).collect::<String>())
    }
}

#[expect(clippy::cast_precision_loss, reason = "places on a picture")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Map<'_> {
    /// The drawing.
    #[must_use]
    pub fn svg(&self) -> String {
        let title = escape(self.title);
        let rows = count(self.levels.len()).div_ceil(COLUMNS);
        let key = MARGIN + 30 + rows * SIDE;
        let notes = key + LINE;
        let strips = notes + count(self.notes.len()) * LINE + 16;
        let height = strips + count(self.strips.len()) * STRIP + MARGIN;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <title>{title}</title>\n{}\n<rect width=\"100%\" height=\"100%\" {}/>\n<g {}>\n\
             <text x=\"{MARGIN}\" y=\"30\" font-size=\"15\">{title}</text>\n",
            COLUMNS * SIDE + 2 * MARGIN,
            style(&classes()),
            fill("paper", PAPER),
            fill("ink", INK),
        );
        for (at, level) in (0..).zip(self.levels) {
            cell(&mut out, at, *level);
        }
        legend(&mut out, key);
        for (at, note) in (1..).zip(self.notes) {
            // Writing to a string can't fail.
            let _ = writeln!(out, "<text x=\"{MARGIN}\" y=\"{}\">{}</text>", notes + at * LINE, escape(note));
        }
        for (at, one) in (0..).zip(self.strips) {
            strip(&mut out, strips + at * STRIP, one, self.total);
        }
        out.push_str("</g>\n</svg>\n");
        out
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn cell(out: &mut String, at: u32, level: u8) {
    let (x, y) = (MARGIN + at % COLUMNS * SIDE, MARGIN + 20 + at / COLUMNS * SIDE);
    square(out, x, y, tenth(level));
}

fn square(out: &mut String, x: u32, y: u32, tenth: usize) {
    let (side, fill) = (SIDE - 1, fill(&format!("l{tenth}"), shade(tenth)));
    let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" {fill}/>");
}

/// Draws the legend of the cells' colours: from nothing in use to all of it.
fn legend(out: &mut String, y: u32) {
    let words = [
        (0, "free"),
        (2, "up to 1/4 in use"),
        (4, "up to half"),
        (6, "up to 3/4"),
        (8, "nearly full"),
        (9, "full"),
    ];
    for (at, (colour, word)) in (0..).zip(words) {
        let x = MARGIN + at * (KEY + SIDE);
        let (text, base) = (x + SIDE + 4, y + 11);
        square(out, x, y, colour);
        let _ = writeln!(out, "<text x=\"{text}\" y=\"{base}\">{word}</text>");
    }
}

fn strip(out: &mut String, y: u32, strip: &Strip, total: u64) {
    let (left, room, tall) = (MARGIN + NAMES, COLUMNS * SIDE - NAMES, STRIP - 3);
    let (end, base) = (left - 8, y + 11);
    let name = escape(&tail(&strip.name));
    let _ = writeln!(out, "<text x=\"{end}\" y=\"{base}\" text-anchor=\"end\">{name}</text>");
    let track = fill("track", RAISED);
    let _ = writeln!(out, "<rect x=\"{left}\" y=\"{y}\" width=\"{room}\" height=\"{tall}\" {track}/>");
    let mut path = String::new();
    for &(start, length) in &strip.runs {
        let x = f64::from(left) + share(start, total) * f64::from(room);
        let width = (share(length, total) * f64::from(room)).max(1.0);
        let _ = write!(path, "M{x:.1} {y}h{width:.1}v{tall}h-{width:.1}z");
    }
    let _ = writeln!(out, "<path d=\"{path}\" {}/>", fill("s0", series(0)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_a_cell_for_each_level_and_a_path_for_each_file() {
        let strips = [Strip { name: "</svg>&".repeat(20), runs: vec![(0, 10), (90, 10)] }];
        let levels = [0, 1, 31, 62, 63];
        let map =
            Map { title: "a<b", notes: &["1 < 2".into()], levels: &levels, strips: &strips, total: 100 };
        let svg = map.svg();
        // The ground, the cells, the legend's six colours, and the ground of a strip.
        assert_eq!(svg.matches("<rect").count(), 1 + levels.len() + 6 + 1);
        assert!(svg.contains(">free<") && svg.contains(">full<"), "{svg}");
        assert_eq!(svg.matches('M').count(), 2, "{svg}");
        assert_eq!(svg.matches("</svg>").count(), 1);
        assert!(svg.contains("<title>a&lt;b</title>") && svg.contains("@media (prefers-color-scheme: dark)"));
        assert!(svg.contains("a&lt;b") && svg.contains("1 &lt; 2") && !svg.contains("NaN"));
        let empty = Map { title: "", notes: &[], levels: &[], strips: &strips, total: 0 }.svg();
        assert!(!empty.contains("NaN") && !empty.contains("inf"));
    }

    #[test]
    fn levels_have_a_colour_each() {
        assert_eq!([0, 1, 31, 62, 63, 255].map(tenth), [0, 1, 4, 8, 9, 9]);
    }
}
