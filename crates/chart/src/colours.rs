//! The colours of drawings, light and dark, as pages have them in `page/style.css`.
//!
//! Owns: the numbers, and the style that turns a drawing dark where the reader wants that. Excludes: the colours of pages,
//! which the browser mixes.

use std::fmt::Write;

/// A colour in light and in dark surroundings, as 0xRRGGBB.
pub(crate) type Pair = (u32, u32);

/// The first ten colours. People who see few colours can tell them apart, too.
const SERIES: [Pair; 10] = [
    (0x000a_62a8, 0x005a_aef0),
    (0x00d0_5a00, 0x00ff_9d47),
    (0x0000_866a, 0x003e_cfa8),
    (0x00b5_518f, 0x00e9_9acb),
    (0x00a7_7c00, 0x00e6_c04a),
    (0x003a_9bc8, 0x009f_dcf7),
    (0x006a_4fb3, 0x00b4_a0f0),
    (0x007a_7a1e, 0x00c9_c96b),
    (0x008a_3b3b, 0x00e0_8d8d),
    (0x0055_5a63, 0x00b5_bac4),
];
pub(crate) const PAPER: Pair = (0x00fd_fdfb, 0x0014_161a);
pub(crate) const RAISED: Pair = (0x00f5_f5f1, 0x001c_1f25);
pub(crate) const INK: Pair = (0x001b_1d21, 0x00e8_e6e1);
pub(crate) const SOFT: Pair = (0x0062_666e, 0x009c_a1ab);
pub(crate) const RULE: Pair = (0x00df_dfd8, 0x0031_353d);
const COLD: Pair = (0x00f1_efe2, 0x0023_262d);
const WARM: Pair = (0x0058_a5a0, 0x002f_7f86);
const HOT: Pair = (0x000e_2a5a, 0x00e9_f2a0);

/// `percent` of one colour, and the rest of another.
fn mix(own: Pair, other: Pair, percent: u32) -> Pair {
    let channel = |a: u32, b: u32, at: u32| {
        let (a, b) = ((a >> at) & 0xFF, (b >> at) & 0xFF);
        ((a * percent + b * (100 - percent)) / 100) << at
    };
    let both = |a, b| [0, 8, 16].map(|at| channel(a, b, at)).into_iter().sum();
    (both(own.0, other.0), both(own.1, other.1))
}

/// The colour of a series: ten, ten nearer to the ink, and ten nearer to the paper, as [`crate::page::color`].
pub(crate) fn series(at: usize) -> Pair {
    let own = SERIES.get(at % SERIES.len()).copied().unwrap_or(INK);
    match at / SERIES.len() % 3 {
        0 => own,
        1 => mix(own, INK, 55),
        _ => mix(own, PAPER, 60),
    }
}

/// The colour of a cell: from nothing in use over every eighth to all of it.
pub(crate) fn level(at: usize) -> Pair {
    match at {
        0 => COLD,
        1..=4 => mix(WARM, COLD, [20, 40, 65, 85].get(at - 1).copied().unwrap_or(85)),
        5..=8 => mix(HOT, WARM, [18, 36, 56, 78].get(at - 5).copied().unwrap_or(78)),
        _ => HOT,
    }
}

/// A colour as markup says it.
pub(crate) fn hex(colour: u32) -> String {
    format!("#{colour:06x}")
}

/// The fill of a class: readers that know no styles see the light colour.
pub(crate) fn fill(class: &str, colour: Pair) -> String {
    format!("class=\"{class}\" fill=\"{}\"", hex(colour.0))
}

/// The style that has the dark colour of each class where the reader's surroundings are dark. Lines have classes that end
/// with a minus.
pub(crate) fn style(classes: &[(String, Pair)]) -> String {
    let mut out = String::from("<style>@media (prefers-color-scheme: dark) {");
    for (class, (_, dark)) in classes {
        let what = if class.ends_with('-') { "stroke" } else { "fill" };
        // Writing to a string can't fail.
        let _ = write!(out, " .{class} {{ {what}: {} }}", hex(*dark));
    }
    out + " }</style>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn drawings_have_the_colours_of_pages_and_thirty_differ() {
        let css = include_str!("page/style.css");
        let named = [
            ("paper", PAPER),
            ("raised", RAISED),
            ("ink", INK),
            ("soft", SOFT),
            ("rule", RULE),
            ("cold", COLD),
            ("warm", WARM),
            ("hot", HOT),
        ];
        let names = named.into_iter().map(|(name, pair)| (name.to_owned(), pair));
        let series_of_page = (0..10).map(|at| (format!("s{at}"), series(at)));
        for (name, (light, dark)) in names.chain(series_of_page) {
            let line = format!("--{name}: light-dark({}, {});", hex(light), hex(dark));
            assert!(css.contains(&line), "{line}");
        }
        let [light, dark]: [BTreeSet<u32>; 2] =
            [(0..30).map(|at| series(at).0).collect(), (0..30).map(|at| series(at).1).collect()];
        assert_eq!((light.len(), dark.len()), (30, 30));
        let levels: BTreeSet<Pair> = (0..10).map(level).collect();
        assert_eq!(levels.len(), 10);
    }
}
