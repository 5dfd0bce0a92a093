//! A region against a plain list of flags.

use super::*;
use proptest::prelude::*;

const ANY: Fit = Fit { base: 0, align: 1 };

fn runs(flags: &[bool]) -> Vec<Span> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < flags.len() {
        let from = at;
        while at < flags.len() && !flags[at] {
            at += 1;
        }
        if at > from {
            found.push((u32::try_from(from).unwrap(), u32::try_from(at).unwrap()));
        }
        at += 1;
    }
    found
}

fn compare(map: &RunMap, flags: &[bool]) {
    let expected = runs(flags);
    let len = u32::try_from(flags.len()).unwrap();
    assert_eq!(map.free(), expected.iter().map(|r| r.1 - r.0).sum::<u32>());
    assert_eq!(map.runs() as usize, expected.len());
    let mask = expected.iter().fold(0, |m, r| m | 1 << class_of(r.1 - r.0));
    assert_eq!(map.mask(), mask);
    for (chunk, &longest) in map.start_max.iter().enumerate() {
        let real = expected.iter().filter(|r| (r.0 / CHUNK) as usize == chunk).map(|r| r.1 - r.0).max();
        assert_eq!(u32::from(longest), real.unwrap_or(0), "chunk {chunk}");
    }
    for chunk in 0..64u32 {
        let (a, b) = ((chunk * CHUNK) as usize, ((chunk + 1) * CHUNK) as usize);
        let free = b <= flags.len() && flags[a..b].iter().all(|used| !used);
        assert_eq!(map.virgin >> chunk & 1 != 0, free, "virgin {chunk}");
    }
    let prefix = expected.first().filter(|r| r.0 == 0).map_or(0, |r| r.1);
    let suffix = expected.last().filter(|r| r.1 == len).map_or(0, |r| r.1 - r.0);
    assert_eq!(map.edges(), (prefix, suffix));
}

fn first_fit(flags: &[bool], from: u32, count: u32, fit: Fit) -> Option<u32> {
    let cut = |r: Span| (r.0.max(from), r.1.max(from));
    runs(flags).into_iter().map(cut).find_map(|r| fit.start_in(r, count))
}

/// The tightest of the runs that begin, or have their end cut off, within a distance; against every run.
fn tightest_beside(map: &RunMap, flags: &[bool], near: u32, count: u32) -> Result<(), TestCaseError> {
    for (within, below) in [(0, u32::MAX), (32, 64), (32, u32::MAX), (5_000, 600), (u32::MAX, u32::MAX)] {
        let is_near = |at: u32| at.abs_diff(near) <= within;
        let places = runs(flags).into_iter().filter(|run| (count..below).contains(&(run.1 - run.0)));
        let places = places.filter_map(|run| {
            let place = [run.0, run.1 - count].into_iter().find(|at| is_near(*at))?;
            Some((run.1 - run.0, place))
        });
        let expected = places.min().map(|(_, place)| place);
        let found = map.tightest_beside(near, count, NearLimits { within, below }, &mut Scan::default());
        prop_assert_eq!(found, expected, "{} within {}, below {}", near, within, below);
    }
    Ok(())
}

fn step() -> impl Strategy<Value = (u8, u32, u32)> {
    let length = prop_oneof![1u32..4, 1u32..70, 400u32..1500, 1u32..20_000];
    (any::<u8>(), any::<u32>(), length)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn agrees_with_flags(
        len in prop_oneof![Just(32_768u32), Just(8_192u32), 1u32..3_000, Just(513u32), Just(64u32)],
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut map = RunMap::with_run(len, (0, len));
        let mut flags = vec![false; len as usize];
        for (what, at, length) in steps {
            let start = at % len;
            let end = (start + length).min(len);
            let range = start as usize..end as usize;
            match what % 4 {
                0 | 1 => {
                    let free = flags[range.clone()].iter().all(|used| !used);
                    prop_assert_eq!(map.take(start, end).is_some(), free);
                    if free { flags[range].fill(true); }
                }
                2 => {
                    let used = flags[range.clone()].iter().all(|used| *used);
                    prop_assert_eq!(map.give(start, end).is_some(), used);
                    if used { flags[range].fill(false); }
                }
                _ => {
                    let mut scan = Scan::default();
                    let fit = Fit { base: u64::from(at % 7), align: 1 + at % 16 };
                    for fit in [ANY, fit] {
                        let expected = first_fit(&flags, start, length, fit);
                        prop_assert_eq!(map.first_fit(start, length, fit, &mut scan), expected);
                    }
                    let any = first_fit(&flags, 0, length, ANY);
                    let best = map.best_fit(start, length, u32::MAX, &mut scan);
                    prop_assert_eq!(best.is_some(), any.is_some());
                    if let Some(at) = best {
                        prop_assert!(flags[at as usize..(at + length) as usize].iter().all(|u| !u));
                    }
                    tightest_beside(&map, &flags, start, length)?;
                    let below = 2 + length / 2;
                    let below = 1 << below.ilog2();
                    let under = runs(&flags).into_iter().map(|r| r.1 - r.0).filter(|&n| n < below).max();
                    let found = map.longest_below(start, below).map(|r| r.1 - r.0);
                    prop_assert_eq!(found.is_some(), under.is_some());
                    prop_assert_eq!(found.map(class_of), under.map(class_of));
                    let longest = runs(&flags).into_iter().map(|r| r.1 - r.0).max();
                    prop_assert_eq!(map.longest(start).map(|r| r.1 - r.0), longest);
                    if let Some((a, b)) = map.run_at(start) {
                        prop_assert!(runs(&flags).contains(&(a, b)));
                    }
                }
            }
            compare(&map, &flags);
            let again = RunMap::from_words(map.words().into(), len);
            compare(&again, &flags);
        }
    }
}

proptest! {
    /// A sparing place is free, in an allowed run, and costs as few whole chunks as any other end
    /// of such a run.
    #[test]
    fn sparing_places_cost_the_fewest_chunks(
        used in proptest::collection::vec((0u32..8_192, 1u32..700), 0..24),
        count in 1u32..3_000,
        below in prop_oneof![Just(u32::MAX), 512u32..8_192],
    ) {
        let mut flags = vec![false; 8_192];
        for (at, len) in used {
            for flag in flags.iter_mut().skip(at as usize).take(len as usize) {
                *flag = true;
            }
        }
        let words: Box<[u64]> = flags
            .chunks(64)
            .map(|bits| bits.iter().enumerate().fold(0, |word, (n, &used)| word | u64::from(used) << n))
            .collect();
        let map = RunMap::from_words(words, 8_192);
        let virgin = |flags: &[bool]| flags.chunks(512).filter(|chunk| chunk.iter().all(|used| !used)).count();
        let cost = |start: u32| {
            let mut after = flags.clone();
            after[start as usize..(start + count) as usize].fill(true);
            u32::try_from(virgin(&flags) - virgin(&after)).unwrap()
        };
        let allowed = runs(&flags).into_iter().filter(|run| (count.max(512)..below).contains(&(run.1 - run.0)));
        let least = allowed.flat_map(|run| [cost(run.0), cost(run.1 - count)]).min();
        let found = map.sparing(count, Lengths { below, limit: u32::MAX }, &mut Scan::default());
        prop_assert_eq!(found.map(|spare| spare.lost), least);
        if let Some(spare) = found {
            prop_assert_eq!(cost(spare.start), spare.lost);
            prop_assert!(flags[spare.start as usize..(spare.start + count) as usize].iter().all(|used| !used));
        }
    }
}
