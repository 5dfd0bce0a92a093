use super::*;
use clap::Parser;
use platfs::mkfs::Amount;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    format: FormatArgs,
}

fn parse(line: &str) -> Result<Format, Failure> {
    let words = std::iter::once("x").chain(line.split_whitespace());
    Line::try_parse_from(words).unwrap().format.parse()
}

#[test]
fn values_arrive_in_the_library_options() {
    let format = parse("-t ext3 -b 2k -C 64K -m 0.5 -J size=8,location=1G -E stride=4,stripe-width=8,root_owner=1:2,resize=99")
        .unwrap();
    let options = &format.options;
    assert_eq!(options.fs_type, FsType::Ext3);
    assert_eq!((options.block_size, options.cluster_size), (Some(2048), Some(65_536)));
    assert_eq!(options.journal.size, Some(8 << 20));
    assert_eq!(options.journal.location, Some(Amount::Bytes(1 << 30)));
    assert_eq!(options.resize_limit, Some(Amount::Blocks(99)));
    assert_eq!((options.stride, options.stripe_width, options.root_owner), (Some(4), Some(8), (1, 2)));
    assert!((options.reserved_percent - 0.5).abs() < 1e-9);
}

#[test]
fn sizes_are_kib_or_blocks_or_have_a_unit() {
    let args = |line: &str| {
        Line::try_parse_from(std::iter::once("x").chain(line.split_whitespace())).unwrap().format
    };
    assert_eq!(args("").size("4").unwrap(), 4096);
    assert_eq!(args("-b 4096").size("4").unwrap(), 16_384);
    assert_eq!(args("-b -4096").size("4").unwrap(), 4096);
    assert_eq!(args("").size("3g").unwrap(), 3 << 30);
    assert_eq!(args("").size("6s").unwrap(), 3072);
    assert!(args("").size("99999999999T").is_err());
}

#[test]
fn uuids_are_read_strictly() {
    let given = parse("-U c1b9d5a2-f162-11cf-9ece-0020afc76f16").unwrap().uuid.unwrap();
    let bytes = given.bytes(0).unwrap();
    assert_eq!(bytes[..4], [0xC1, 0xB9, 0xD5, 0xA2]);
    assert_eq!(parse("-U clear").unwrap().uuid.unwrap().bytes(0).unwrap(), [0; 16]);
    let timed = parse("-U time").unwrap().uuid.unwrap().bytes(1_700_000_000).unwrap();
    assert_eq!((timed[6] >> 4, timed[8] >> 6), (1, 2));
    for wrong in ["xyz", "c1b9d5a2f16211cf9ece0020afc76f16", "c1b9d5a2-f162-11cf-9ece-0020afc76f1+"] {
        assert!(parse(&format!("-U {wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn wrong_text_is_a_usage_error_that_names_it() {
    for (line, expected) in [
        ("-t ext5", "-t ext5"),
        ("-T tiny", "-T tiny"),
        ("-b x", "-b x"),
        ("-O nosuch", "`nosuch`"),
        ("-E nosuch=1", "-E nosuch=1"),
        ("-E stride", "needs a value"),
        ("-E stride=99999", "too large"),
        ("-E root_owner=1", "not UID:GID"),
        ("-E quotatype=all", "quotatype=all"),
        ("-E discard=1", "unknown"),
        ("-J size=", "-J size"),
        ("-J speed=1", "-J speed=1"),
        ("-e explode", "-e explode"),
        ("-r 2", "-r 2"),
        ("-o plan9", "-o plan9"),
        ("-m all", "-m all"),
    ] {
        let text = match parse(line) {
            Err(Failure::Usage(text)) => text,
            Err(Failure::Failed(trouble)) => trouble.to_string(),
            other => panic!("{line}: {other:?}"),
        };
        assert!(text.contains(expected), "{line}: {text}");
    }
}
