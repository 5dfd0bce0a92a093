//! Records that are written are read back; lines that were cut off, kinds of later versions.

use super::*;
use std::time::Duration;

/// A file in a directory of its own, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let directory = std::env::temp_dir().join(format!("plat-lab-results-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Scratch(directory)
    }

    fn file(&self) -> PathBuf {
        self.0.join("results.jsonl")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn cell(seed: u64) -> Cell {
    Cell {
        table: "S2 ports tree".into(),
        case: "8 GB, softdep, untar".into(),
        system: "dirpref".into(),
        seed,
        figures: [("seconds", 41.25), ("reads", 1_234.0), ("none", f64::NAN)].into_iter().collect(),
        published: [("seconds", 252.0)].into_iter().collect(),
        ..Cell::default()
    }
}

#[test]
fn what_was_written_is_read_in_order() {
    let scratch = Scratch::new("order");
    let results = Results::append(&scratch.file()).unwrap();
    results.add(cell(1)).unwrap();
    results.add(Verdict { table: "S2".into(), text: "x".into(), holds: true, ..Verdict::default() }).unwrap();
    let line = Line { name: "single".into(), points: vec![(4.0, 13.3)] };
    results.add(Curve { series: vec![line], ..Curve::default() }).unwrap();
    results.add(Aging { groups: vec![0, 255], free_bins: vec![1, 2], ..Aging::default() }).unwrap();
    results
        .add(Criteria { hits: [("p2_aligned", 7.0)].into_iter().collect(), ..Criteria::default() })
        .unwrap();
    results
        .add(Skipped { system: "fuse2fs".into(), why: "not installed".into(), ..Skipped::default() })
        .unwrap();
    let text = std::fs::read_to_string(scratch.file()).unwrap();
    assert!(text.lines().all(|line| line.starts_with("{\"kind\":\"")), "{text}");
    assert!(
        text.contains("\"figures\":{\"seconds\":41.25,\"reads\":1234},\"published\":{\"seconds\":252}"),
        "{text}"
    );
    let read = read(&[scratch.file()]).unwrap();
    assert_eq!(read.len(), 7);
    let Record::Session(session) = &read[0] else { panic!("{:?}", read[0]) };
    assert!(session.machine.cpus > 0 && session.started.ends_with('Z'));
    let Record::Cell(back) = &read[1] else { panic!("{:?}", read[1]) };
    assert_eq!(back.figures.0, [("seconds".to_string(), 41.25), ("reads".to_string(), 1_234.0)]);
    assert_eq!(back.published, cell(1).published);
    let Record::Aging(frame) = &read[4] else { panic!("{:?}", read[4]) };
    assert_eq!((frame.groups.as_slice(), frame.free_bins.as_slice()), (&[0, 255][..], &[1, 2][..]));
}

#[test]
fn only_what_this_program_left_is_used_again() {
    let scratch = Scratch::new("earlier");
    let digested = |cell: Cell| Cell { digest: cell.right_digest(), ..cell };
    // Figures that most ways to read a number get wrong in the last digit.
    let long =
        Cell { figures: [("seconds", 0.1 + 0.2), ("rate", 1.0 / 3.0)].into_iter().collect(), ..cell(7) };
    let results = Results::append(&scratch.file()).unwrap();
    for cell in [digested(cell(1)), digested(cell(2)), cell(3), digested(long)] {
        results.add(cell).unwrap();
    }
    let used = || {
        let records = earlier(Some(&scratch.file())).unwrap();
        let seed = |record| if let Record::Cell(cell) = record { Some(cell.seed) } else { None };
        records.into_iter().filter_map(seed).collect::<Vec<_>>()
    };
    assert_eq!(used(), [1, 2, 7]);
    let text = std::fs::read_to_string(scratch.file()).unwrap();
    std::fs::write(scratch.file(), text.replacen("41.25", "41.5", 1)).unwrap();
    assert_eq!(used(), [2, 7], "a figure was changed");
}

#[test]
fn a_line_that_was_cut_off_is_not_read_and_goes_when_more_comes() {
    let scratch = Scratch::new("cut");
    Results::append(&scratch.file()).unwrap().add(cell(1)).unwrap();
    let whole = std::fs::read(scratch.file()).unwrap();
    // Longer than a piece of the search for the last end of line.
    for tail in [br#"{"kind":"cell","ta"#.to_vec(), vec![b'x'; 200_000]] {
        std::fs::write(scratch.file(), [whole.as_slice(), &tail].concat()).unwrap();
        assert_eq!(read(&[scratch.file()]).unwrap().len(), 2);
        Results::append(&scratch.file()).unwrap().add(cell(2)).unwrap();
        let read = read(&[scratch.file()]).unwrap();
        assert_eq!(read.len(), 4);
        assert_eq!(read[3], Record::Cell(Cell { figures: read_back(&cell(2).figures), ..cell(2) }));
    }
    std::fs::write(scratch.file(), "no end of line").unwrap();
    Results::append(&scratch.file()).unwrap();
    assert_eq!(read(&[scratch.file()]).unwrap().len(), 1);
}

/// As figures are after a way through the file.
fn read_back(figures: &Figures) -> Figures {
    Figures(figures.0.iter().filter(|(_, value)| value.is_finite()).cloned().collect())
}

#[test]
fn later_versions_are_read_and_broken_lines_are_named() {
    let scratch = Scratch::new("later");
    let later = "{\"kind\":\"hologram\",\"x\":[1]}\n\n{\"kind\":\"cell\",\"new\":{},\"figures\":{\"a\":1,\"b\":null}}\n";
    std::fs::write(scratch.file(), later).unwrap();
    let records = read(&[scratch.file()]).unwrap();
    assert_eq!(records[0], Record::Other);
    let Record::Cell(cell) = &records[1] else { panic!("{:?}", records[1]) };
    assert_eq!(cell.figures.0, [("a".to_string(), 1.0)]);
    std::fs::write(scratch.file(), format!("{later}[1, 2]\n")).unwrap();
    let error = read(&[scratch.file()]).unwrap_err();
    assert!(error.contains("results.jsonl: line 4: "), "{error}");
    assert!(read(&[scratch.0.join("absent")]).unwrap_err().contains("absent: "));
}

#[test]
fn times_and_commands_as_they_are_shown() {
    let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
    assert_eq!(at(0), "1970-01-01T00:00:00Z");
    assert_eq!(at(951_868_799), "2000-02-29T23:59:59Z");
    assert_eq!(at(1_795_341_600), "2026-11-22T10:00:00Z");
    let words = ["target/release/plat-lab", "run", "age"].map(String::from);
    assert_eq!(command(words.into_iter()), "plat-lab run age");
}
