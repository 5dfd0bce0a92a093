//! Size classes of free runs: two per octave, so that the members of a class are within 1.5x.
//!
//! | class | 0 | 1 | 2 | 3 | 4 | 5 | 6 | ... | 29 | 30, 31 |
//! |---|---|---|---|---|---|---|---|---|---|---|
//! | run | 1 | 2 | 3 | 4-5 | 6-7 | 8-11 | 12-15 | | 32,768 and joined | joined over a region edge |

/// Number of classes; a set of classes fits one `u32`.
pub(crate) const CLASSES: u32 = 32;

/// Class of a run of `count` clusters; anything above the last class belongs to it.
pub(crate) fn class_of(count: u32) -> u32 {
    if count < 2 {
        return 0;
    }
    let octave = count.ilog2();
    let half = (count >> (octave - 1)) & 1;
    (2 * octave - 1 + half).min(CLASSES - 1)
}

/// Shortest run of a class.
pub(crate) fn class_floor(class: u32) -> u32 {
    if class < 2 { class + 1 } else { (2 + (class + 1) % 2) << (class.div_ceil(2) - 1) }
}

/// Classes of which a member may hold a run of `count`.
pub(crate) fn classes_from(count: u32) -> u32 {
    u32::MAX << class_of(count)
}

/// Classes of which a member may have at most `count` clusters.
pub(crate) fn classes_upto(count: u32) -> u32 {
    u32::MAX >> (CLASSES - 1 - class_of(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_class_are_within_half() {
        let firsts: Vec<u32> = (1..=12).collect();
        let classes: Vec<u32> = firsts.iter().map(|&n| class_of(n)).collect();
        assert_eq!(classes, [0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 5, 6]);
        assert_eq!(class_of(32_768), 29);
        assert_eq!(class_of(65_536), 31);
        for class in 0..CLASSES {
            assert_eq!(class_of(class_floor(class)), class);
            assert!(class == 0 || class_of(class_floor(class) - 1) == class - 1);
        }
        for n in 2..70_000u32 {
            assert!(class_of(n) >= class_of(n - 1));
        }
    }
}
