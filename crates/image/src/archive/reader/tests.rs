use super::super::acl::AclError;
use super::super::header::seal;
use super::super::number;
use super::super::pax::push;
use super::*;
use crate::archive::{Device, Timestamp};
use proptest::prelude::*;

/// An archive under construction, header by header.
#[derive(Default)]
struct Tape(Vec<u8>);

impl Tape {
    fn header(
        &mut self,
        type_flag: u8,
        name: &[u8],
        size: i64,
        edit: impl FnOnce(&mut [u8; BLOCK]),
    ) -> &mut Self {
        let mut block = [0; BLOCK];
        block[..name.len()].copy_from_slice(name);
        number::write(&mut block[field::MODE], 0o644);
        number::write(&mut block[field::SIZE], size);
        number::write(&mut block[field::MTIME], 1000);
        block[field::TYPE] = type_flag;
        block[field::MAGIC].copy_from_slice(b"ustar\x0000");
        edit(&mut block);
        seal(&mut block);
        self.0.extend_from_slice(&block);
        self
    }

    fn data(&mut self, data: &[u8]) -> &mut Self {
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        self
    }

    fn entry(&mut self, type_flag: u8, name: &[u8], data: &[u8]) -> &mut Self {
        self.header(type_flag, name, i64::try_from(data.len()).unwrap(), |_| {}).data(data)
    }

    fn pax(&mut self, records: &[(&str, &[u8])]) -> &mut Self {
        let mut data = Vec::new();
        for (key, value) in records {
            push(&mut data, key.as_bytes(), value);
        }
        self.entry(b'x', b"PaxHeaders/x", &data)
    }

    fn end(&mut self) -> &[u8] {
        self.0.resize(self.0.len() + 1024, 0);
        &self.0
    }
}

fn all(archive: &[u8]) -> Result<Vec<Entry>, TarError> {
    let mut reader = Reader::new(archive);
    std::iter::from_fn(|| reader.next_entry().transpose()).collect()
}

fn only(archive: &[u8]) -> Entry {
    let mut entries = all(archive).unwrap();
    assert_eq!(entries.len(), 1);
    entries.remove(0)
}

fn problem(archive: &[u8]) -> (u64, Problem) {
    let error = all(archive).unwrap_err();
    (error.offset, *error.problem)
}

#[test]
fn a_plain_file_is_described_by_its_place() {
    let mut tape = Tape::default();
    let archive = tape.entry(b'0', b"a/b", b"hello").entry(b'0', b"c", b"").end();
    let entries = all(archive).unwrap();
    assert_eq!(entries[0].runs, [Run { file_offset: 0, len: 5, archive_offset: 512 }]);
    assert_eq!((entries[0].size, entries[0].mode), (5, 0o644));
    assert_eq!(entries[0].times.modified, Timestamp::from_seconds(1000));
    assert_eq!((entries[1].size, entries[1].runs.len()), (0, 0));
}

#[test]
fn v7_directories_end_with_a_slash() {
    let mut tape = Tape::default();
    tape.header(0, b"dir/", 0, |block| block[field::MAGIC].fill(0));
    assert_eq!(only(tape.end()).kind, EntryKind::Directory);
}

#[test]
fn contiguous_and_unknown_types() {
    assert_eq!(only(Tape::default().entry(b'7', b"f", b"x").end()).kind, EntryKind::File);
    assert!(matches!(problem(Tape::default().entry(b'Q', b"f", b"x").end()), (0, Problem::Type(b'Q'))));
    let mut tape = Tape::default();
    let archive = tape.entry(b'V', b"label", b"").entry(b'A', b"acl", b"text").entry(b'0', b"f", b"").end();
    let mut reader = Reader::new(archive);
    assert_eq!(reader.next_entry().unwrap().unwrap().path, b"f");
    assert_eq!(reader.warnings(), [TarWarning::Skipped { offset: 512, type_flag: b'A' }]);
}

#[test]
fn pax_records_win_over_fields() {
    let name = vec![0xff; 300];
    let records: [(&str, &[u8]); 7] = [
        ("path", &name),
        ("size", b"3"),
        ("uid", b"4000000000"),
        ("gid", b"5"),
        ("mtime", b"-1.25"),
        ("atime", b"7.5"),
        ("LIBARCHIVE.creationtime", b"9"),
    ];
    let mut tape = Tape::default();
    tape.pax(&records).header(b'0', b"short", 0, |_| {}).data(b"abc");
    let entry = only(tape.end());
    assert_eq!(entry.path, name);
    assert_eq!((entry.size, entry.uid, entry.gid), (3, 4_000_000_000, 5));
    assert_eq!(entry.times.modified, Timestamp { seconds: -2, nanoseconds: 750_000_000 });
    assert_eq!(entry.times.accessed, Some(Timestamp { seconds: 7, nanoseconds: 500_000_000 }));
    assert_eq!(entry.times.created, Some(Timestamp::from_seconds(9)));
    assert_eq!(entry.offset, 0);
}

#[test]
fn global_records_hold_until_overridden() {
    let mut global = Vec::new();
    push(&mut global, b"gid", b"42");
    let mut tape = Tape::default();
    tape.entry(b'g', b"global", &global).entry(b'0', b"a", b"").pax(&[("gid", b"7")]).entry(b'0', b"b", b"");
    let groups: Vec<u32> = all(tape.entry(b'0', b"c", b"").end()).unwrap().iter().map(|e| e.gid).collect();
    assert_eq!(groups, [42, 7, 42]);
}

#[test]
fn gnu_long_names_and_links() {
    let (name, target) = ([b'n'; 200], [b't'; 201]);
    let mut tape = Tape::default();
    tape.entry(b'L', b"././@LongLink", &[&name[..], b"\0"].concat());
    tape.entry(b'K', b"././@LongLink", &[&target[..], b"\0"].concat());
    let entry = only(tape.header(b'2', b"cut", 0, |_| {}).end());
    assert_eq!((entry.path.as_slice(), entry.target.as_slice()), (&name[..], &target[..]));
}

#[test]
fn gnu_numbers_times_and_negative_owners() {
    let mut tape = Tape::default();
    tape.header(b'0', b"f", 0, |block| {
        block[field::MAGIC].copy_from_slice(b"ustar  \0");
        number::write(&mut block[field::UID], 3_000_000_000);
        number::write(&mut block[field::GID], -2);
        number::write(&mut block[field::MTIME], -5);
        number::write(&mut block[field::GNU_ATIME], 77);
    });
    let entry = only(tape.end());
    assert_eq!((entry.uid, entry.gid), (3_000_000_000, u32::MAX - 1));
    assert_eq!(entry.times.modified.seconds, -5);
    assert_eq!(entry.times.accessed, Some(Timestamp::from_seconds(77)));
}

#[test]
fn old_gnu_sparse_with_extension() {
    let mut tape = Tape::default();
    tape.header(b'S', b"s", 1024 + 6 * 512, |block| {
        block[field::MAGIC].copy_from_slice(b"ustar  \0");
        for pair in 0_i64..4 {
            let place = 386 + 24 * usize::try_from(pair).unwrap();
            number::write(&mut block[place..place + 12], pair * 4096);
            number::write(&mut block[place + 12..place + 24], if pair == 0 { 1024 } else { 512 });
        }
        block[field::GNU_EXTENDED] = 1;
        number::write(&mut block[field::GNU_REAL_SIZE], 1 << 20);
    });
    let mut extension = [0; BLOCK];
    for (pair, (offset, len)) in [(20_000, 512), (30_000, 1024), (1 << 20, 0)].into_iter().enumerate() {
        number::write(&mut extension[24 * pair..24 * pair + 12], offset);
        number::write(&mut extension[24 * pair + 12..24 * pair + 24], len);
    }
    tape.data(&extension).data(&[1; 4096]);
    let entry = only(tape.end());
    assert_eq!(entry.size, 1 << 20);
    let places: Vec<u64> = entry.runs.iter().map(|run| run.archive_offset).collect();
    assert_eq!(places, [1024, 2048, 2560, 3072, 3584, 4096]);
}

#[test]
fn pax_sparse_of_all_versions() {
    let run = |file_offset, len, archive_offset| Run { file_offset, len, archive_offset };
    let mut zero = Tape::default();
    zero.pax(&[
        ("GNU.sparse.size", b"10000"),
        ("GNU.sparse.offset", b"0"),
        ("GNU.sparse.numbytes", b"512"),
        ("GNU.sparse.offset", b"8192"),
        ("GNU.sparse.numbytes", b"10"),
    ]);
    let entry = only(zero.entry(b'0', b"f", &[1; 522]).end());
    assert_eq!((entry.size, entry.runs), (10_000, vec![run(0, 512, 1536), run(8192, 10, 2048)]));

    let mut one = Tape::default();
    one.pax(&[
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"dir/real"),
        ("GNU.sparse.realsize", b"10000"),
    ]);
    let mut data = b"2\n0\n512\n8192\n10\n".to_vec();
    data.resize(512 + 522, 0);
    let entry = only(one.entry(b'0', b"GNUSparseFile.1/real", &data).end());
    assert_eq!(entry.path, b"dir/real");
    assert_eq!((entry.size, entry.runs), (10_000, vec![run(0, 512, 2048), run(8192, 10, 2560)]));
}

#[test]
fn links_and_devices_have_no_data() {
    let mut tape = Tape::default();
    tape.header(b'1', b"link", 5, |block| block[field::LINK][..3].copy_from_slice(b"a/b"));
    tape.header(b'3', b"null", 0, |block| {
        number::write(&mut block[field::MAJOR], 1);
        number::write(&mut block[field::MINOR], 3);
    });
    let entries = all(tape.entry(b'6', b"fifo", b"").end()).unwrap();
    assert_eq!((entries[0].kind, entries[0].target.as_slice()), (EntryKind::HardLink, &b"a/b"[..]));
    assert_eq!(entries[1].device, Device { major: 1, minor: 3 });
    assert_eq!(entries[2].kind, EntryKind::Fifo);
}

#[test]
fn acls_become_attributes_and_permissions() {
    let text = b"user::rwx,user:lisa:r-x,group::r--,mask::r-x,other::---";
    let mut tape = Tape::default();
    tape.header(b'5', b"home", 0, |block| {
        block[field::USER][..4].copy_from_slice(b"lisa");
        number::write(&mut block[field::UID], 1000);
    });
    tape.pax(&[("SCHILY.acl.access", text), ("SCHILY.acl.default", text)]).entry(b'5', b"d/", b"");
    tape.pax(&[("SCHILY.acl.access", b"user::rw-,group::r--,other::---")]).entry(b'0', b"f", b"");
    let entries = all(tape.end()).unwrap();
    let names: Vec<&[u8]> = entries[1].xattrs.iter().map(|x| &*x.name).collect();
    assert_eq!(names, [acl::ACCESS, acl::DEFAULT]);
    assert_eq!(entries[1].mode, 0o750);
    assert_eq!(entries[1].xattrs[0].value[16..20], 1000_u32.to_le_bytes());
    assert_eq!((entries[2].mode, entries[2].xattrs.len()), (0o640, 0));

    let mut unknown = Tape::default();
    unknown.pax(&[("SCHILY.acl.access", b"user::rwx,user:bart:r--,group::---,mask::r--,other::---")]);
    assert!(matches!(
        problem(unknown.entry(b'0', b"f", b"").end()),
        (512.., Problem::Acl(AclError::Name(_)))
    ));
}

#[test]
fn ends_of_archives() {
    let warnings = |archive: &[u8]| {
        let mut reader = Reader::new(archive);
        while reader.next_entry().unwrap().is_some() {}
        reader.warnings().to_vec()
    };
    let mut tape = Tape::default();
    tape.entry(b'0', b"a", b"x");
    assert_eq!(warnings(&tape.0), [TarWarning::NoEndMarker]);
    tape.data(&[0; 512]).entry(b'0', b"b", b"");
    let lone = TarWarning::LoneZeroBlock { offset: 1024 };
    assert_eq!(warnings(tape.end()), std::slice::from_ref(&lone));
    // A second archive behind the first is not read, as by tar; much of it is worth a word.
    let first_end = tape.0.len() as u64;
    tape.0.resize(tape.0.len() + (2 << 20), 7);
    assert_eq!(warnings(&tape.0), [lone, TarWarning::Trailing { offset: first_end, len: 2 << 20 }]);
    // Padding of the last entry's data is not needed.
    let mut bare = Tape::default();
    bare.header(b'0', b"a", 5, |_| {}).0.extend_from_slice(b"hello");
    assert_eq!(all(&bare.0).unwrap()[0].size, 5);
}

#[test]
fn what_is_cut_or_broken_names_its_place() {
    let mut tape = Tape::default();
    tape.entry(b'0', b"a", b"x").entry(b'0', b"b", &[1; 2000]);
    let cut = &tape.0[..2000];
    assert!(matches!(problem(cut), (1024, Problem::Truncated { needed: 3536, present: 2000 })));
    assert!(matches!(problem(&tape.0[..1300]), (1024, Problem::Truncated { needed: 1536, present: 1300 })));
    assert!(matches!(problem(b""), (0, Problem::NotTar)));
    assert!(matches!(problem(&[b'x'; 600]), (0, Problem::NotTar)));
    let mut broken = tape.0.clone();
    broken[1024] ^= 1;
    assert!(matches!(problem(&broken), (1024, Problem::Checksum)));
    let error = all(cut).unwrap_err().to_string();
    assert_eq!(
        error,
        "entry `b`: the archive is cut short: 3536 bytes are needed, 2000 are there (at byte 1024 of the archive)"
    );
}

#[test]
fn sizes_are_judged_before_memory_is_taken() {
    for type_flag in *b"xgLK" {
        let mut tape = Tape::default();
        tape.header(type_flag, b"big", i64::MAX, |_| {});
        assert!(matches!(problem(tape.end()), (0, Problem::Long { .. })), "{}", char::from(type_flag));
    }
    let mut tape = Tape::default();
    tape.header(b'0', b"big", i64::MAX, |_| {});
    assert!(matches!(problem(tape.end()), (0, Problem::Truncated { .. })));
    assert!(matches!(problem(Tape::default().pax(&[("path", b"a")]).end()), (1024, Problem::Dangling)));
    let mut tape = Tape::default();
    tape.pax(&[("path", b"a\0b")]).entry(b'0', b"x", b"");
    assert!(matches!(problem(tape.end()), (_, Problem::Name(_))));
}

/// Steps of an archive that is almost valid: most of the interesting paths begin there.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let step = (prop::sample::select(b"05123467SLKxgXDVA".to_vec()), 0_usize..1400, any::<u64>());
    prop::collection::vec(step, 0..8).prop_map(|steps| {
        let mut tape = Tape::default();
        for (type_flag, len, seed) in steps {
            let mut data = Vec::new();
            let number = seed.to_string();
            let keys = ["size", "GNU.sparse.realsize", "GNU.sparse.map", "GNU.sparse.major", "mtime", "path"];
            push(&mut data, keys[len % keys.len()].as_bytes(), &number.as_bytes()[..number.len() % 4 + 1]);
            data.resize(data.len().max(len), b'\n');
            if len % 3 != 0 {
                data.truncate(number.len() + 20);
            }
            tape.entry(type_flag, b"name", &data);
        }
        tape.end().to_vec()
    })
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic_or_hang(
        mut archive in plausible(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        reseal in any::<bool>(),
    ) {
        for (place, byte) in edits {
            let place = place.index(archive.len());
            archive[place] = byte;
        }
        if reseal {
            for block in archive.as_chunks_mut::<BLOCK>().0 {
                if block[257..262] == *b"ustar" {
                    seal(block);
                }
            }
        }
        let mut reader = Reader::new(archive.as_slice());
        let mut entries = 0;
        while let Ok(Some(entry)) = reader.next_entry() {
            entries += 1;
            for run in &entry.runs {
                prop_assert!(run.archive_offset + run.len <= archive.len() as u64);
                prop_assert!(run.file_offset + run.len <= entry.size);
            }
        }
        prop_assert!(entries <= archive.len() / BLOCK);
    }
}

#[test]
fn what_all_entries_copy_is_bounded() {
    let global = |bytes: usize, headers: usize| {
        let mut tape = Tape::default();
        for at in 0..headers {
            let mut data = Vec::new();
            push(&mut data, format!("SCHILY.xattr.user.{at}").as_bytes(), &vec![b'x'; bytes]);
            push(&mut data, b"comment", &vec![b'c'; 60_000]);
            tape.entry(b'g', b"pax_global_header", &data);
        }
        all(tape.entry(b'0', b"a", b"").end())
    };
    assert_eq!(global(20_000, 3).unwrap()[0].xattrs.len(), 3);
    let refused = global(20_000, 4).unwrap_err();
    assert!(
        matches!(*refused.problem, Problem::Long { what: "what global PAX headers say", .. }),
        "{refused}"
    );
}

/// GNU tar writes names in access control lists, whatever it is told. The table may come later in the archive.
#[test]
fn names_in_lists_are_those_of_the_tables_in_the_archive() {
    let list: &[(&str, &[u8])] =
        &[("SCHILY.acl.access", b"user::rw-,group::r--,group:adm:r--,mask::r--,other::---")];
    let mut tape = Tape::default();
    tape.pax(list).entry(b'0', b"var/log", b"").entry(b'0', b"./etc/group", b"root:x:0:\nadm:x:4:syslog\n");
    let entries = all(tape.end()).unwrap();
    let acl = Acl::decode(&entries[0].xattrs[0].value).unwrap();
    assert_eq!(acl.to_text(), "user::rw-,group::r--,group:4:r--,mask::r--,other::---");
    let mut without = Tape::default();
    let (_, problem) = problem(without.pax(list).entry(b'0', b"var/log", b"").end());
    assert!(problem.to_string().contains("etc/group"), "{problem}");
}
