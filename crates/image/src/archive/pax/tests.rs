use super::*;

fn applied(records: &[(&str, &[u8])]) -> Result<Overrides, PaxError> {
    let mut data = Vec::new();
    for (key, value) in records {
        push(&mut data, key.as_bytes(), value);
    }
    let mut overrides = Overrides::default();
    overrides.apply(&data).map(|()| overrides)
}

#[test]
fn a_record_counts_its_own_length() {
    for value_len in [0, 1, 87, 88, 89, 90, 91, 986, 987, 988, 989, 990, 99_985, 99_986, 99_987] {
        let mut out = Vec::new();
        push(&mut out, b"path", &vec![b'x'; value_len]);
        let stated = out.split(|&b| b == b' ').next().unwrap();
        assert_eq!(decimal(stated), Some(out.len() as u64), "value of {value_len}");
        assert_eq!(records(&out).next().unwrap().unwrap().1.len(), value_len);
    }
}

#[test]
fn broken_records_differ_by_their_reason() {
    let first = |data: &'static [u8]| records(data).next().unwrap();
    assert_eq!(first(b"30 mtime=1\n"), Err(PaxError::Length));
    assert_eq!(first(b"x mtime=1\n"), Err(PaxError::Length));
    assert_eq!(first(b"0 a=\n"), Err(PaxError::Length));
    assert_eq!(first(b"99999999999999999999999 a=\n"), Err(PaxError::Length));
    assert_eq!(first(b"10 mtime=1"), Err(PaxError::Shape));
    assert_eq!(first(b"9 mtime1\n"), Err(PaxError::Shape));
    assert_eq!(records(b"").count(), 0);
    assert_eq!(records(b"30 a=\n30 b=\n").count(), 1);
}

#[test]
fn times_of_both_signs_and_any_precision() {
    let cases: [(&str, i64, u32); 8] = [
        ("1350244992.023960108", 1_350_244_992, 23_960_108),
        ("12", 12, 0),
        ("12.", 12, 0),
        ("0.1", 0, 100_000_000),
        ("1.9999999999", 1, 999_999_999),
        ("-1.5", -2, 500_000_000),
        ("-0.000000001", -1, 999_999_999),
        ("-0.0000000001", -1, 999_999_999),
    ];
    for (text, seconds, nanos) in cases {
        assert_eq!(parse_time(text.as_bytes()), Some(Timestamp { seconds, nanoseconds: nanos }), "{text}");
    }
    for text in ["", "-", ".5", "1.x", "1e3", "99999999999999999999", "--1"] {
        assert_eq!(parse_time(text.as_bytes()), None, "{text}");
    }
    assert_eq!(format_time(Timestamp { seconds: -2, nanoseconds: 500_000_000 }), "-1.5");
    assert_eq!(format_time(Timestamp { seconds: 3, nanoseconds: 10 }), "3.00000001");
    assert_eq!(format_time(Timestamp { seconds: -3, nanoseconds: 0 }), "-3");
}

#[test]
fn an_empty_value_withdraws() {
    let overrides = applied(&[("path", b"a"), ("uid", b"7"), ("path", b""), ("mtime", b"")]).unwrap();
    assert_eq!(overrides, Overrides { uid: Some(7), ..Overrides::default() });
}

#[test]
fn attributes_of_three_dialects() {
    let overrides = applied(&[
        ("LIBARCHIVE.xattr.user.b%3d%25", b"aGk"),
        ("LIBARCHIVE.xattr.user.padded", b"aA=="),
        ("SCHILY.xattr.user.raw", b"\0\n=\xff"),
        ("LIBARCHIVE.xattr.user.raw", b"aGk"),
        ("RHT.security.selinux", b"u:r:t:s0"),
        ("SCHILY.fflags", b"nodump"),
    ])
    .unwrap();
    let seen: Vec<(&[u8], &[u8])> = overrides.xattrs.iter().map(|x| (&*x.name, &*x.value)).collect();
    assert_eq!(
        seen,
        [
            (&b"user.b=%"[..], &b"hi"[..]),
            (b"user.padded", b"h"),
            (b"user.raw", b"\0\n=\xff"),
            (b"security.selinux", b"u:r:t:s0\0"),
        ]
    );
}

#[test]
fn attributes_are_bounded() {
    let large = vec![0; limits::XATTR_VALUE_BYTES + 1];
    assert!(matches!(applied(&[("SCHILY.xattr.user.a", &large)]), Err(PaxError::XattrSize { .. })));
    let name = format!("SCHILY.xattr.{}", "n".repeat(256));
    assert!(matches!(applied(&[(&name, b"")]), Err(PaxError::XattrSize { .. })));
    assert!(matches!(applied(&[("LIBARCHIVE.xattr.user.a", b"!")]), Err(PaxError::Value { .. })));
}

#[test]
fn sparse_maps_of_both_early_versions() {
    let first = applied(&[
        ("GNU.sparse.size", b"100"),
        ("GNU.sparse.offset", b"0"),
        ("GNU.sparse.numbytes", b"10"),
        ("GNU.sparse.offset", b"50"),
        ("GNU.sparse.numbytes", b"5"),
    ]);
    let second = applied(&[("GNU.sparse.map", b"0,10,50,5"), ("GNU.sparse.size", b"100")]);
    assert_eq!(first.as_ref().unwrap().sparse.map, [0, 10, 50, 5]);
    assert_eq!(first, second);
    assert!(applied(&[("GNU.sparse.offset", b"0"), ("GNU.sparse.offset", b"0")]).is_err());
    assert!(applied(&[("GNU.sparse.map", b"0,,5")]).is_err());
}

#[test]
fn attributes_are_no_more_than_linux_lists() {
    let many = |count: usize| {
        let names: Vec<String> = (0..count).map(|at| format!("SCHILY.xattr.user.{at:010}")).collect();
        applied(&names.iter().map(|name| (name.as_str(), &b"x"[..])).collect::<Vec<_>>())
    };
    assert_eq!(many(65_536 / 16).map(|all| all.xattrs.len()), Ok(4096));
    assert_eq!(many(65_536 / 16 + 1), Err(PaxError::XattrList));
}
