use super::init::flag;
use super::request::Forgets;
use super::*;
use crate::service::{Attributes, Cached, Entry, FileType, Kind, Listed, Replace, SetAttr, SetTime, Time};

fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// Decodes a request in one piece and in two, which must be the same.
fn decoded(operation: u32, fixed: &[u8], rest: &[u8]) -> String {
    let whole = [fixed, rest].concat();
    let whole = Request::decode(operation, Body::Whole(&whole));
    let mut longer = fixed.to_vec();
    longer.resize(128, 0xa5);
    let parted = Request::decode(operation, Body::Parted { fixed: &longer, rest });
    assert_eq!(format!("{whole:?}"), format!("{parted:?}"));
    format!("{whole:?}")
}

#[test]
fn headers_are_read() {
    let bytes = [u32s(&[56, 1]), u64s(&[0x1234, 77]), u32s(&[1000, 100, 4242, 0])].concat();
    let header = Header::decode(&bytes).unwrap();
    assert_eq!((header.len, header.operation, header.unique, header.node), (56, 1, 0x1234, 77));
    assert_eq!((header.caller.uid, header.caller.gid, header.caller.pid), (1000, 100, 4242));
    assert_eq!(Header::decode(&bytes[..39]), Err(Malformed));
}

#[test]
fn names_end_where_they_should() {
    assert_eq!(decoded(1, &[], b"name\0"), "Ok(Lookup { name: [110, 97, 109, 101] })");
    assert_eq!(decoded(1, &[], b"..\0"), "Ok(Lookup { name: [46, 46] })");
    for nonsense in [&b""[..], b"\0", b"name", b"a/b\0"] {
        assert_eq!(decoded(1, &[], nonsense), "Err(Malformed)", "{nonsense:?}");
    }
    assert_eq!(
        decoded(6, &[], b"n\0to/there\0"),
        decoded(6, &[], b"n\0to/there\0more"),
        "a target may hold slashes"
    );
}

#[test]
fn attributes_are_asked_for_by_way_of_an_open_file_before_a_write() {
    assert_eq!(decoded(3, &[u32s(&[0, 0]), u64s(&[0])].concat(), &[]), "Ok(Attributes { writes: false })");
    assert_eq!(decoded(3, &[u32s(&[1, 0]), u64s(&[0])].concat(), &[]), "Ok(Attributes { writes: true })");
    assert!(Request::decode(3, Body::Whole(b"abc")).is_err());
}

#[test]
fn new_nodes_have_types_devices_and_masks() {
    let device = 0x1234_5678_u32;
    let fixed = u32s(&[0o060_644, device, 0o022, 0]);
    let body = [fixed, b"disk\0".to_vec()].concat();
    let Ok(Request::Create { name: b"disk", new }) = Request::decode(8, Body::Whole(&body)) else { panic!() };
    assert_eq!(new.kind, Kind::BlockDevice(0x456, 0x12378));
    assert_eq!((new.permissions, new.umask), (0o644, 0o022));
    for (mode, sane) in
        [(0o100_600, true), (0o010_600, true), (0o140_600, true), (0o600, false), (0o040_700, false)]
    {
        let body = [u32s(&[mode, 0, 0, 0]), b"n\0".to_vec()].concat();
        assert_eq!(Request::decode(8, Body::Whole(&body)).is_ok(), sane, "{mode:o}");
    }
}

#[test]
fn changes_hold_what_is_marked_valid_and_nothing_else() {
    let setattr = |valid: u32, nanoseconds: u32| {
        let body = [
            u32s(&[valid, 0]),
            u64s(&[9, 12345, 9, 1, (-2_i64).cast_unsigned(), 3]),
            u32s(&[nanoseconds, 5, 6, 0o104_755, 9, 10, 11, 9]),
        ]
        .concat();
        assert_eq!(body.len(), 88);
        match Request::decode(4, Body::Whole(&body)) {
            Ok(Request::SetAttr(change)) => Ok(change),
            Ok(other) => panic!("{other:?}"),
            Err(malformed) => Err(malformed),
        }
    };
    assert_eq!(setattr(0, 4), Ok(SetAttr::default()));
    let all = setattr(0x43f, 4).unwrap();
    assert_eq!(all.permissions, Some(0o4755));
    assert_eq!((all.uid, all.gid, all.size), (Some(10), Some(11), Some(12345)));
    assert_eq!(all.access, Some(SetTime::To(Time { seconds: 1, nanoseconds: 4 })));
    assert_eq!(all.modify, Some(SetTime::To(Time { seconds: -2, nanoseconds: 5 })));
    assert_eq!(all.change, Some(Time { seconds: 3, nanoseconds: 6 }));
    assert!(all.drop_privileges, "a new owner takes them");
    let now = setattr(0x1b8 | 0x800, 4).unwrap();
    assert_eq!((now.access, now.modify), (Some(SetTime::Now), Some(SetTime::Now)));
    assert!(now.drop_privileges && now.uid.is_none());
    assert!(!setattr(9, 4).unwrap().drop_privileges);
    assert_eq!(setattr(0x10, 1_000_000_000), Err(Malformed));
}

#[test]
fn writes_say_whence_they_come() {
    let write = |how: u32, open: u32, size: u32| {
        let body = [u64s(&[1, 4096]), u32s(&[size, how]), u64s(&[2]), u32s(&[open, 0]), vec![7; 10]].concat();
        match Request::decode(16, Body::Whole(&body)) {
            Ok(Request::Write { offset: 4096, data, flags }) => Some((data.len(), flags)),
            _ => None,
        }
    };
    let (len, flags) = write(0, 0, 10).unwrap();
    assert!(len == 10 && !flags.cached && !flags.drop_privileges && !flags.sync);
    let (_, flags) = write(4, 0o10_001, 10).unwrap();
    assert!(flags.drop_privileges && flags.sync);
    let (_, flags) = write(1, 0o10_001, 10).unwrap();
    assert!(flags.cached && !flags.sync);
    assert_eq!((flags.handle, write(0, 0, 11)), (1, None), "more than there is");
}

#[test]
fn reads_and_copies_carry_what_is_known_of_open_files() {
    let read = |open: u32| {
        let body = [u64s(&[1, 4096]), u32s(&[10, 0]), u64s(&[2]), u32s(&[open, 0])].concat();
        match Request::decode(15, Body::Whole(&body)) {
            Ok(Request::Read { offset: 4096, size: 10, flags }) => Some(flags.keep_access_time),
            _ => None,
        }
    };
    assert_eq!((read(0), read(0o1_000_000)), (Some(false), Some(true)));
    let copy = u64s(&[1, 2, 3, 4, 5, 6, 0]);
    let target = match Request::decode(47, Body::Whole(&copy)) {
        Ok(Request::Copy { offset: 2, to, len: 6, long: false }) => Some(to),
        _ => None,
    };
    assert_eq!(target, Some(crate::WritePos { node: 3, offset: 5, handle: 4 }));
}

#[test]
fn renames_know_their_ways() {
    let rename = |flags: u32| {
        let body = [u64s(&[5]), u32s(&[flags, 0]), b"old\0new\0".to_vec()].concat();
        match Request::decode(45, Body::Whole(&body)) {
            Ok(Request::Rename { name: b"old", to: 5, new_name: b"new", replace }) => replace,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        [0, 1, 2, 3, 4, 5, 6].map(rename),
        [
            Some(Replace::Yes),
            Some(Replace::No),
            Some(Replace::Exchange),
            None,
            Some(Replace::Whiteout),
            Some(Replace::NoButWhiteout),
            None
        ]
    );
    let old = decoded(12, &u64s(&[5]), b"old\0new\0");
    assert!(old.contains("to: 5") && old.contains("Some(Yes)"), "{old}");
}

#[test]
fn forgets_are_no_more_than_there_are_bytes() {
    let body = [u32s(&[u32::MAX, 0]), u64s(&[3, 1, 4, 2])].concat();
    let Ok(Request::ForgetMany(forgets)) = Request::decode(42, Body::Whole(&body)) else { panic!() };
    let forgets: Forgets<'_> = forgets;
    assert_eq!(forgets.collect::<Vec<_>>(), [(3, 1), (4, 2)]);
}

#[test]
fn the_other_requests_have_their_fields() {
    assert_eq!(decoded(2, &u64s(&[3]), b""), "Ok(Forget { times: 3 })");
    assert_eq!(decoded(13, &u64s(&[8]), b"n\0"), "Ok(Link { node: 8, name: [110] })");
    let read = [u64s(&[1, 8192]), u32s(&[4096, 0]), u64s(&[0]), u32s(&[0, 0])].concat();
    assert_eq!(
        decoded(15, &read, b""),
        "Ok(Read { offset: 8192, size: 4096, flags: ReadFlags { keep_access_time: false } })"
    );
    assert_eq!(decoded(44, &read, b""), "Ok(List { position: 8192, size: 4096, with_entries: true })");
    assert_eq!(decoded(20, &[u64s(&[1]), u32s(&[1, 0])].concat(), b""), "Ok(Sync { data_only: true })");
    assert_eq!(
        decoded(21, &u32s(&[2, 1, 1, 0]), b"user.a\0xy"),
        "Ok(SetXattr { name: [117, 115, 101, 114, 46, 97], value: [120, 121], flags: 1, drop_setgid: true })"
    );
    assert_eq!(decoded(21, &u32s(&[3, 1, 1, 0]), b"user.a\0xy"), "Err(Malformed)");
    assert_eq!(decoded(22, &u32s(&[9, 0]), b"a\0"), "Ok(Xattr { name: [97], size: 9 })");
    let seek = |whence: u32| [u64s(&[1, 77]), u32s(&[whence, 0])].concat();
    assert_eq!(decoded(46, &seek(4), b""), "Ok(Seek { offset: 77, what: Some(Hole) })");
    assert_eq!(decoded(46, &seek(0), b""), "Ok(Seek { offset: 77, what: None })");
    let control = |flags: u32| [u64s(&[1]), u32s(&[flags, 0x4008_6602]), u64s(&[0]), u32s(&[2, 8])].concat();
    assert!(decoded(39, &control(0), b"ab").contains("argument: [97, 98], room: 8, restricted: true"));
    assert!(decoded(39, &control(1), b"ab").contains("restricted: false"));
    assert_eq!(decoded(39, &control(0), b"a"), "Err(Malformed)");
    let allocate = [u64s(&[1, 5, 6]), u32s(&[3, 0])].concat();
    assert_eq!(decoded(43, &allocate, b""), "Ok(Allocate { mode: 3, offset: 5, len: 6 })");
    let copy = u64s(&[1, 10, 20, 1, 30, 40, 0]);
    assert_eq!(
        decoded(47, &copy, b""),
        "Ok(Copy { offset: 10, to: WritePos { node: 20, offset: 30, handle: 1 }, len: 40, long: false })"
    );
    assert_eq!(
        decoded(53, &copy, b""),
        "Ok(Copy { offset: 10, to: WritePos { node: 20, offset: 30, handle: 1 }, len: 40, long: true })"
    );
    let unnamed = decoded(51, &u32s(&[0o2, 0o100_666, 0o077, 0]), b"name\0");
    assert!(unnamed.contains("Regular, permissions: 438, umask: 63"), "{unnamed}");
    let open = |flags: u32| decoded(14, &u32s(&[flags, 0]), b"");
    assert_eq!(
        open(0o100_000),
        "Ok(Open { access: Access { read: true, write: false, append: false, execute: false, keep_access_time: false } })"
    );
    assert_eq!(
        open(0o2001),
        "Ok(Open { access: Access { read: false, write: true, append: true, execute: false, keep_access_time: false } })"
    );
    assert!(open(0o2).contains("write: true, append: false"));
    let create = decoded(35, &u32s(&[0o101, 0o100_640, 0o022, 0]), b"name\0");
    assert!(
        create.starts_with("Ok(CreateOpen") && create.contains("permissions: 416, umask: 18"),
        "{create}"
    );
    assert!(open(0o40).contains("read: false, write: false, append: false, execute: true"));
    assert_eq!(decoded(27, &u32s(&[0, 0]), b""), "Ok(OpenDirectory)");
    assert_eq!(decoded(34, &u32s(&[0o26, 0]), b""), "Ok(Rights { wanted: 6 })");
    // Flushing, locks, what is not there yet.
    for operation in [25, 31, 37, 40, 48, 999] {
        assert_eq!(decoded(operation, &[], b""), "Ok(Unknown)");
    }
}

#[test]
fn any_bytes_are_decoded_without_panic() {
    let mut seed = 9_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u32
    };
    for round in 0..60_000_u32 {
        let len = next() % 180;
        let mut bytes: Vec<u8> =
            (0..len).map(|_| if next() % 3 == 0 { 0 } else { (next() & 0xff).try_into().unwrap() }).collect();
        if let Some(operation) = bytes.get_mut(4..8) {
            operation.copy_from_slice(&(round % 60).to_ne_bytes());
        }
        decode_any(&bytes, (next() % 130) as usize);
    }
}

/// Flags that the newest kernels offer.
const EVERYTHING: u64 = u64::MAX;

fn offer(flags: u64) -> Offer {
    Offer { major: 7, minor: 45, read_ahead: 131_072, flags }
}

const WISH: Wish =
    Wish { read_only: false, acl: true, writeback: true, rings: true, largest: 1 << 20, time_unit: 1 };

#[test]
fn what_is_agreed_is_wished_for_and_offered() {
    let all = agree(&offer(EVERYTHING), &WISH).unwrap();
    let wanted = [flag::POSIX_ACL, flag::DONT_MASK, flag::HANDLE_KILLPRIV_V2, flag::WRITEBACK_CACHE];
    assert!(wanted.iter().all(|bit| all.flags & bit != 0) && all.has_rings());
    let without = Wish { acl: false, writeback: false, rings: false, read_only: true, ..WISH };
    let few = agree(&offer(EVERYTHING), &without).unwrap();
    assert!(wanted.iter().all(|bit| few.flags & bit == 0) && !few.has_rings());
    assert_eq!(few.flags & flag::NO_OPEN_SUPPORT, flag::NO_OPEN_SUPPORT);
    let asynchronous_direct = 1 << 15;
    assert_eq!(few.flags & asynchronous_direct, 0, "pages would stay behind such writes");
    let needed = flag::MAX_PAGES | flag::DONT_MASK | flag::SETXATTR_EXT;
    assert_eq!(agree(&offer(needed), &WISH).unwrap().flags, needed);
    for bit in [flag::MAX_PAGES, flag::DONT_MASK, flag::SETXATTR_EXT] {
        assert_eq!(agree(&offer(EVERYTHING & !bit), &WISH), None, "{bit:#x}");
    }
    // Written back behind our back it must not be where nothing is written.
    assert_eq!(
        agree(&offer(EVERYTHING), &Wish { read_only: true, ..WISH }).unwrap().flags & flag::WRITEBACK_CACHE,
        0
    );
}

#[test]
fn old_and_strange_versions_are_refused() {
    assert_eq!(agree(&Offer { minor: 30, ..offer(EVERYTHING) }, &WISH), None);
    assert_eq!(agree(&Offer { major: 6, ..offer(EVERYTHING) }, &WISH), None);
    assert_eq!(agree(&Offer { minor: 99, ..offer(EVERYTHING) }, &WISH).unwrap().minor, 45);
    assert_eq!(agree(&Offer { minor: 34, ..offer(EVERYTHING) }, &WISH).unwrap().minor, 34);
}

#[test]
fn offers_are_read_with_and_without_the_upper_flags() {
    let offered = |low: u32| {
        let body = u32s(&[7, 40, 65536, low, 0x200, 0, 0]);
        match Request::decode(26, Body::Whole(&body)) {
            Ok(Request::Init(offer)) => offer,
            other => panic!("{other:?}"),
        }
    };
    assert!(offered(1 << 30).has_rings() && !offered(0).has_rings());
    assert_eq!((offered(5).flags, offered(5).read_ahead), (5, 65536));
    let newer = u32s(&[8, 1]);
    assert!(matches!(Request::decode(26, Body::Whole(&newer)), Ok(Request::Init(Offer { major: 8, .. }))));
    assert!(Request::decode(26, Body::Whole(&u32s(&[7, 40, 1]))).is_err());
}

#[test]
fn the_answer_to_an_offer_has_its_layout() {
    let mut bytes = [0xff; 64];
    let mut out = Out::new(&mut bytes);
    agree(&offer(EVERYTHING), &WISH).unwrap().encode(&mut out);
    assert_eq!(out.finish(), Ok(64));
    assert_eq!(bytes[..8], u32s(&[7, 45])[..]);
    assert_eq!(bytes[20..24], (1_u32 << 20).to_ne_bytes());
    assert_eq!(bytes[28..30], 256_u16.to_ne_bytes());
    assert_eq!(bytes[32..36], 0x200_u32.to_ne_bytes());
    assert_eq!(bytes[36..], [0; 28]);
}

const KEPT: EntryValidity = EntryValidity { name: true, attributes: true };

fn attributes() -> Attributes {
    Attributes {
        inode: 12,
        file_type: FileType::CharDevice,
        permissions: 0o4640,
        links: 3,
        uid: 4,
        gid: 5,
        device: (0x123, 0x45678),
        size: 6,
        sectors: 7,
        block_size: 1024,
        access: Time { seconds: -1, nanoseconds: 8 },
        modify: Time { seconds: 9, nanoseconds: 10 },
        change: Time { seconds: 11, nanoseconds: 12 },
        birth: Some(Time { seconds: 13, nanoseconds: 14 }),
    }
}

fn written(write: impl FnOnce(&mut Out<'_>)) -> Vec<u8> {
    let mut bytes = vec![0xff; 1000];
    let mut out = Out::new(&mut bytes);
    write(&mut out);
    let len = out.finish().unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn answers_have_the_layout_that_the_kernel_expects() {
    let stat = written(|out| attributes_reply(out, &attributes(), Cached::Valid));
    let expired = written(|out| attributes_reply(out, &attributes(), Cached::Stale));
    assert_eq!((stat[8..] == expired[8..], stat[..8] == [0; 8], expired[..8] == [0; 8]), (true, false, true));
    assert_eq!(stat.len(), 104);
    assert_eq!(stat[16..64], u64s(&[12, 6, 7, u64::MAX, 9, 11])[..]);
    assert_eq!(stat[64..], u32s(&[8, 10, 12, 0o024_640, 3, 4, 5, 0x4561_2378, 1024, 0])[..]);

    let entry = Entry { node: 77, generation: 5, attributes: attributes() };
    let entry = written(|out| entry_reply(out, &entry, KEPT));
    assert_eq!(entry.len(), 128);
    assert_eq!(entry[..16], u64s(&[77, 5])[..]);
    assert_eq!(entry[40..], stat[16..]);
    let absent = written(no_entry_reply);
    assert_eq!((absent.len(), &absent[..8]), (128, &[0; 8][..]));
    assert_ne!(absent[16..24], [0; 8], "absence is kept");

    let statx = written(|out| statx_reply(out, &attributes(), true));
    assert_eq!(statx.len(), 288);
    assert_eq!(statx[32..40], u32s(&[0xfff, 1024])[..]);
    assert_eq!(statx[48..60], u32s(&[3, 4, 5])[..]);
    assert_eq!(statx[60..62], 0o024_640_u16.to_ne_bytes());
    assert_eq!(statx[64..88], u64s(&[12, 6, 7])[..]);
    assert_eq!(statx[112..124], [u64s(&[13]), u32s(&[14])].concat()[..]);
    assert_eq!(statx[160..168], u32s(&[0x123, 0x45678])[..]);
    let unborn = Attributes { birth: None, ..attributes() };
    assert_eq!(written(|out| statx_reply(out, &unborn, true))[32..36], 0x7ff_u32.to_ne_bytes());

    assert_eq!(out_header(9, Ok(24)), *[u32s(&[40, 0]), u64s(&[9])].concat());
    let error = out_header(9, Err(rustix::io::Errno::NOENT));
    assert_eq!(error, *[16_u32.to_ne_bytes().to_vec(), (-2_i32).to_ne_bytes().to_vec(), u64s(&[9])].concat());
    assert_eq!(invalidate_attributes(5).len(), 40);
}

#[test]
fn listings_take_what_fits_and_keep_names_of_nodes_that_are_damaged() {
    let entry = Entry { node: 77, generation: 5, attributes: attributes() };
    let listed = |name, entry| Listed { name, inode: 12, file_type: FileType::Regular, next: 3, entry };
    let plain = written(|out| assert!(listing_entry(out, &listed(b"name", Some(entry)), false, KEPT)));
    assert_eq!(plain[..24], [u64s(&[12, 3]), u32s(&[4, 0o10])].concat()[..]);
    assert_eq!(plain[24..], *b"name\0\0\0\0");
    let damaged = written(|out| assert!(listing_entry(out, &listed(b"12345678", None), true, KEPT)));
    assert_eq!((damaged.len(), &damaged[..128]), (160, &[0; 128][..]));
    assert_eq!(damaged[128..136], 12_u64.to_ne_bytes());

    let mut small = [0; 300];
    let mut out = Out::new(&mut small);
    assert!(listing_entry(&mut out, &listed(b"a", Some(entry)), true, KEPT));
    assert!(!listing_entry(&mut out, &listed(b"b", Some(entry)), true, KEPT));
    assert_eq!(out.finish(), Ok(160));
}

#[test]
fn answers_that_do_not_fit_are_an_error() {
    let mut small = [0; 10];
    let mut out = Out::new(&mut small);
    out.u64(1);
    out.u64(2);
    out.zeros(usize::MAX);
    assert_eq!(out.finish(), Err(rustix::io::Errno::RANGE));
}
