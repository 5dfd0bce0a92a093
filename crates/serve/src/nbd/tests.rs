use std::io::{Read, Write};

use ondisk::units::Group;
use platfs::device::{FileDevice, MemoryDevice, Window};
use platfs::mkfs::{FsType, Options as MkfsOptions, Plan as MkfsPlan, Storage};
use platfs::{OpenOptions, Volume};

use super::*;

/// A client that says bytes, and hears bytes.
struct Talk {
    stream: UnixStream,
    _server: Option<Server>,
    _place: tempfile::TempDir,
}

impl Talk {
    fn new(device: &Arc<MemoryDevice>, writable: bool) -> Self {
        Self::of(Export::new(Arc::clone(device) as Arc<dyn Device>, writable))
    }

    fn of(export: Export) -> Self {
        let place = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(place.path().join("socket")).unwrap();
        let server = Server::start(listener, export).unwrap();
        let stream = UnixStream::connect(place.path().join("socket")).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let mut talk = Talk { stream, _server: Some(server), _place: place };
        assert_eq!(talk.hear(16), b"NBDMAGICIHAVEOPT");
        assert_eq!(talk.hear(2), [0, 3]);
        talk.say(&[0, 0, 0, 3]);
        talk
    }

    fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn hear(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn option(&mut self, option: u32, len: u32, data: &[u8]) {
        let numbers = [option.to_be_bytes(), len.to_be_bytes()].concat();
        self.say(&[b"IHAVEOPT", &numbers[..], data].concat());
    }

    /// The kind and the bytes of a reply to an option.
    fn reply(&mut self) -> (u32, Vec<u8>) {
        let head = self.hear(20);
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        (number(12), self.hear(number(16) as usize))
    }

    fn go(mut self) -> Self {
        self.option(7, 6, &[0; 6]);
        assert_eq!((self.reply().0, self.reply().0, self.reply().0), (3, 3, 1));
        self
    }

    /// Agrees on structured replies, and on block status.
    fn structured(mut self) -> Self {
        self.option(8, 0, b"");
        assert_eq!(self.reply().0, 1);
        let query = context(&[b"base:allocation"]);
        self.option(10, u32::try_from(query.len()).unwrap(), &query);
        assert_eq!(self.reply(), (4, [&[0, 0, 0, 1][..], b"base:allocation"].concat()));
        assert_eq!(self.reply().0, 1);
        self.go()
    }

    fn request(&mut self, verb: u16, flags: u16, (offset, len): (u64, u32), data: &[u8]) {
        let head = [&flags.to_be_bytes()[..], &verb.to_be_bytes(), b"cookie42"].concat();
        let place = [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat();
        self.say(&[&0x2560_9513_u32.to_be_bytes()[..], &head, &place, data].concat());
    }

    /// The chunks of an answer, as kind and bytes.
    fn chunks(&mut self, verb: u16, flags: u16, place: (u64, u32)) -> Vec<(u16, Vec<u8>)> {
        self.request(verb, flags, place, b"");
        let mut chunks = Vec::new();
        loop {
            let head = self.hear(20);
            assert_eq!((&head[..4], &head[8..16]), (&[0x66, 0x8e, 0x33, 0xef][..], &b"cookie42"[..]));
            let len = u32::from_be_bytes(head[16..].try_into().unwrap());
            chunks.push((u16::from_be_bytes([head[6], head[7]]), self.hear(len as usize)));
            if head[5] & 1 == 1 {
                return chunks;
            }
        }
    }

    /// Block status, as length and flags.
    fn status(&mut self, flags: u16, place: (u64, u32)) -> Vec<(u32, u32)> {
        let chunks = self.chunks(7, flags, place);
        let [(5, bytes)] = &chunks[..] else { panic!("{chunks:?}") };
        assert_eq!(bytes[..4], [0, 0, 0, 1]);
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        bytes[4..].chunks(8).map(|extent| (number(&extent[..4]), number(&extent[4..]))).collect()
    }

    /// Asks for something; the code of the answer.
    fn ask(&mut self, verb: u16, flags: u16, place: (u64, u32), data: &[u8]) -> u32 {
        self.request(verb, flags, place, data);
        let answer = self.hear(16);
        assert_eq!((&answer[..4], &answer[8..]), (&[0x67, 0x44, 0x66, 0x98][..], &b"cookie42"[..]));
        u32::from_be_bytes(answer[4..8].try_into().unwrap())
    }
}

/// A name of an export, and queries.
fn context(queries: &[&[u8]]) -> Vec<u8> {
    let text = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
    let texts = queries.iter().flat_map(|query| text(query));
    [text(b"any"), u32::try_from(queries.len()).unwrap().to_be_bytes().to_vec(), texts.collect()].concat()
}

/// A sparse file: 64 KiB of sevens at 1 MiB of 4.
fn file() -> (tempfile::NamedTempFile, Arc<FileDevice>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4 << 20).unwrap();
    let device = FileDevice::new(file.reopen().unwrap()).unwrap();
    device.write_at(1 << 20, &[7; 64 << 10]).unwrap();
    (file, Arc::new(device))
}

fn device() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(1 << 20))
}

#[test]
fn what_is_written_is_read() {
    let device = device();
    let mut talk = Talk::new(&device, true).go();
    assert_eq!(talk.ask(1, 1, (4096, 3), b"abc"), 0);
    assert_eq!(talk.ask(0, 0, (4095, 5), b""), 0);
    assert_eq!(talk.hear(5), b"\0abc\0");
    assert_eq!(talk.ask(6, 2, (4097, 1), b""), 0);
    assert_eq!(talk.ask(4, 0, (0, 4096), b""), 0);
    assert_eq!(talk.ask(3, 0, (0, 0), b""), 0);
    let mut bytes = [0; 3];
    device.read_at(4096, &mut bytes).unwrap();
    assert_eq!(bytes, *b"a\0c");
}

/// Gives up whole sectors only, as a block device does.
struct Sectors(MemoryDevice);

impl Device for Sectors {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        match (offset | len) % 512 {
            0 => self.0.write_zeros(offset, len),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

#[test]
fn less_than_a_sector_is_given_up_by_doing_nothing() {
    let device = Arc::new(Sectors(MemoryDevice::new(1 << 20)));
    device.write_at(0, &[7; 4096]).unwrap();
    let mut talk = Talk::of(Export::new(Arc::clone(&device) as Arc<dyn Device>, true)).go();
    for place in [(0, 100), (100, 512), (512, 1)] {
        assert_eq!(talk.ask(4, 0, place, b""), 0, "{place:?}");
    }
    assert_eq!(talk.ask(4, 0, (1024, 512), b""), 0);
    let mut bytes = [0; 4096];
    device.read_at(0, &mut bytes).unwrap();
    let (kept, rest) = bytes.split_at(1024);
    assert!(kept.iter().chain(&rest[512..]).all(|byte| *byte == 7) && rest[..512] == [0; 512]);
}

#[test]
fn what_is_wrong_is_refused_and_the_client_goes_on() {
    let mut talk = Talk::new(&device(), true);
    talk.option(99, 3, b"abc");
    assert_eq!(talk.reply().0, (1 << 31) + 1);
    talk.option(3, 0, b"");
    assert_eq!((talk.reply(), talk.reply()), ((2, vec![0; 4]), (1, Vec::new())));
    talk.option(6, 6, &[255; 6]);
    assert_eq!(talk.reply().0, (1 << 31) + 3);
    talk.option(6, 20_000, &vec![0; 20_000]);
    assert_eq!(talk.reply().0, (1 << 31) + 9);
    let mut talk = talk.go();
    assert_eq!(talk.ask(0, 0, ((1 << 20) - 1, 2), b""), 22);
    assert_eq!(talk.ask(0, 0, (u64::MAX, 2), b""), 22);
    assert_eq!(talk.ask(0, 0, (0, u32::MAX), b""), 22);
    assert_eq!(talk.ask(1, 0, (1 << 20, 2), b"ab"), 28);
    assert_eq!(talk.ask(77, 0, (0, 2), b""), 22);
    assert_eq!(talk.ask(1, 0x40, (0, 2), b"ab"), 22);
    assert_eq!(talk.ask(0, 0, (0, 1), b""), 0);
}

#[test]
fn nobody_writes_what_is_for_reading() {
    let device = device();
    let mut talk = Talk::new(&device, false).go();
    assert_eq!(talk.ask(1, 0, (0, 3), b"abc"), 1);
    assert_eq!(talk.ask(6, 0, (0, 3), b""), 1);
    assert_eq!(talk.ask(4, 0, (0, 3), b""), 1);
    assert_eq!(talk.ask(3, 0, (0, 0), b""), 0);
    assert_eq!(talk.ask(0, 0, (0, 3), b""), 0);
    assert_eq!(talk.hear(3), [0; 3]);
}

#[test]
fn a_client_that_talks_nonsense_is_left() {
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n"[..], &[0xff; 64]] {
        let mut talk = Talk::new(&device(), true).go();
        talk.say(nonsense);
        let mut rest = Vec::new();
        // An end, or a connection that is reset.
        let _ = talk.stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
}

/// The answers of a server that ended each connection by itself.
fn all_ended(clients: Vec<UnixStream>) -> bool {
    clients.into_iter().all(|mut stream| {
        let mut rest = Vec::new();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // An end, or a connection that is reset; not a timeout of ours.
        !stream.read_to_end(&mut rest).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    })
}

#[test]
fn who_never_asks_keeps_no_place_from_others() {
    let place = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(place.path().join("socket")).unwrap();
    let mut export = Export::new(device() as Arc<dyn Device>, true);
    export.handshake = Duration::from_millis(200);
    let server = Server::start(listener, export).unwrap();
    let connect = || UnixStream::connect(place.path().join("socket")).unwrap();
    let clients: Vec<UnixStream> = (0..CLIENTS)
        .map(|at| {
            let mut stream = connect();
            // Half of them say nothing; the others begin a long option.
            if at % 2 == 0 {
                stream
                    .write_all(&[&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 9, 255, 255, 255, 255]].concat())
                    .unwrap();
            }
            stream
        })
        .collect();
    assert!(all_ended(clients));
    let mut hello = [0; 18];
    connect().read_exact(&mut hello).unwrap();
    assert_eq!(&hello[..8], b"NBDMAGIC");
    server.stop();
}

/// Memory that this process uses, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

#[test]
fn requests_of_slow_clients_take_a_piece_each() {
    const LEN: u32 = 32 << 20;
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let place = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(place.path().join("socket")).unwrap();
    let export = Export::new(Arc::clone(&device) as Arc<dyn Device>, true);
    let server = Server::start(listener, export).unwrap();
    let first = |stream: UnixStream| {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut talk = Talk { stream, _server: None, _place: tempfile::tempdir().unwrap() };
        assert_eq!(talk.hear(18)[..8], *b"NBDMAGIC");
        talk.say(&[0, 0, 0, 3]);
        talk.go()
    };
    let connect = || first(UnixStream::connect(place.path().join("socket")).unwrap());
    let before = resident();
    let mut slow: Vec<Talk> = (0..24).map(|_| connect()).collect();
    for talk in &mut slow {
        // The beginning of a write of 32 MiB, of which two pieces come.
        let head =
            [&0x2560_9513_u32.to_be_bytes()[..], &[0, 0, 0, 1], b"cookie42", &[0; 8], &LEN.to_be_bytes()];
        talk.say(&head.concat());
        talk.say(&vec![7; 2 << 20]);
    }
    // A read that long comes whole.
    let mut other = connect();
    assert_eq!(other.ask(0, 0, (32 << 20, LEN), b""), 0);
    assert_eq!(other.hear(LEN as usize), vec![0; LEN as usize]);
    let grown = resident().saturating_sub(before);
    assert!(grown < 300 << 10, "{grown} KiB for 24 slow clients");
    // The rest of one of them.
    let mut talk = slow.pop().unwrap();
    talk.say(&vec![7; 30 << 20]);
    assert_eq!(talk.hear(16)[4..8], [0; 4]);
    let mut end = [0; 2];
    device.read_at((32 << 20) - 1, &mut end).unwrap();
    assert_eq!(end, [7, 0]);
    drop(slow);
    server.stop();
}

#[test]
fn clients_learn_what_holds_nothing() {
    let (_file, device) = file();
    let mut talk = Talk::of(Export::new(device, true)).structured();
    let hole = (1 << 20, 3);
    assert_eq!(talk.status(0, (0, 4 << 20)), [hole, (64 << 10, 0), ((3 << 20) - (64 << 10), 3)]);
    assert_eq!(talk.status(8, (0, 4 << 20)), [hole]);
    assert_eq!(talk.status(0, ((1 << 20) + 5, 7)), [(7, 0)]);
    // Contents in chunks; a piece that is a hole says only that.
    let chunks = talk.chunks(0, 0, (0, 2 << 20));
    assert_eq!(chunks[0], (2, [&[0; 8][..], &(1_u32 << 20).to_be_bytes()].concat()));
    assert_eq!((chunks[1].0, chunks[1].1.len(), chunks[1].1[8]), (1, 8 + (1 << 20), 7));
    // In one, if that is wanted and is one piece.
    assert_eq!(talk.chunks(0, 4, (0, 3)), [(1, vec![0; 8 + 3])]);
    let refused = |code: u8| vec![(0x8001, vec![0, 0, 0, code, 0, 0])];
    assert_eq!(talk.chunks(0, 4, (0, 2 << 20)), refused(75));
    assert_eq!(talk.chunks(0, 0, (0, 0)), [(0, Vec::new())]);
    assert_eq!(talk.chunks(0, 0, (4 << 20, 1)), refused(22));
    for (flags, place) in [(0, (0, 0)), (0, (u64::MAX, 1)), (0, (0, u32::MAX)), (2, (0, 1))] {
        assert_eq!(talk.chunks(7, flags, place), refused(22), "{flags} {place:?}");
    }
    assert_eq!(talk.ask(3, 0, (0, 0), b""), 0);
}

#[test]
fn a_part_of_a_device_has_the_holes_of_that_part() {
    let (file, device) = file();
    let window =
        || Arc::new(Window::new(Arc::clone(&device) as Arc<dyn Device>, 512 << 10, 1 << 20).unwrap());
    let mut talk = Talk::of(Export::new(window(), true)).structured();
    let half = 512 << 10;
    let all = (0, 1 << 20);
    assert_eq!(talk.status(0, all), [(half, 3), (64 << 10, 0), (half - (64 << 10), 3)]);
    assert_eq!(talk.ask(6, 16, (u64::from(half), 64 << 10), b""), 0);
    assert_eq!(talk.status(0, all), [(1 << 20, 3)]);
    assert_eq!(file.as_file().metadata().unwrap().len(), 4 << 20);
}

#[test]
fn a_read_that_fails_ends_its_answer_and_not_the_connection() {
    struct Torn(MemoryDevice);

    impl Device for Torn {
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            if offset == 2 << 20 { Err(io::Error::other("torn")) } else { self.0.read_at(offset, buffer) }
        }
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    let torn = Arc::new(Torn(MemoryDevice::new(8 << 20)));
    let mut talk = Talk::of(Export::new(torn, false)).structured();
    let chunks = talk.chunks(0, 0, (0, 4 << 20));
    assert_eq!(chunks.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [1, 1, 0x8002]);
    assert_eq!(chunks[2].1, [&[0, 0, 0, 5, 0, 0][..], &(2_u64 << 20).to_be_bytes()].concat());
    assert_eq!(talk.chunks(0, 0, (0, 1)).len(), 1);
}

#[test]
fn contexts_are_agreed_on_as_the_protocol_has_them() {
    const INVALID: u32 = (1 << 31) + 3;
    let mut talk = Talk::new(&device(), false);
    let mut ask = |option: u32, data: &[u8]| {
        talk.option(option, u32::try_from(data.len()).unwrap(), data);
        let mut replies = Vec::new();
        loop {
            let (kind, data) = talk.reply();
            replies.push(kind);
            if kind != 4 {
                return replies;
            }
            assert_eq!(&data[4..], b"base:allocation");
        }
    };
    let one = context(&[b"base:allocation"]);
    // Chunks have to be agreed on first.
    assert_eq!(ask(10, &one), [INVALID]);
    assert_eq!(ask(8, b"odd"), [INVALID]);
    assert_eq!(ask(8, b""), [1]);
    assert_eq!(ask(9, &context(&[])), [4, 1]);
    assert_eq!(ask(9, &context(&[b"base:"])), [4, 1]);
    assert_eq!(ask(9, &context(&[b"qemu:"])), [1]);
    assert_eq!(ask(10, &context(&[b"qemu:dirty-bitmap:x", b"base:allocation", b"base:allocation"])), [4, 1]);
    // More queries, or longer ones, than there are bytes.
    for torn in [&one[..9], &[&one[..], b"x"].concat(), &[0, 0, 0, 0, 255, 255, 255, 255], &[255; 8], b""] {
        assert_eq!(ask(10, torn), [INVALID]);
    }
    // A failed request to set leaves none, as does one that names none.
    assert_eq!(ask(10, &context(&[b"base:"])), [1]);
    let mut talk = talk.go();
    assert_eq!(talk.chunks(7, 0, (0, 1)), [(0x8001, vec![0, 0, 0, 22, 0, 0])]);
    // A client that knows no chunks gets a simple answer.
    assert_eq!(Talk::new(&device(), false).go().ask(7, 0, (0, 1), b""), 22);
}

#[test]
fn zeros_take_room_only_where_that_is_wanted() {
    use std::os::unix::fs::MetadataExt;
    let (file, device) = file();
    let room = || file.as_file().metadata().unwrap().blocks() * 512;
    let mut talk = Talk::of(Export::new(device, true)).go();
    let all = (1 << 20, 64 << 10);
    assert_eq!((talk.ask(6, 2, all, b""), room()), (0, 64 << 10));
    assert_eq!(talk.ask(0, 0, (1 << 20, 4), b""), 0);
    assert_eq!(talk.hear(4), [0; 4]);
    assert_eq!((talk.ask(6, 16, all, b""), room()), (0, 0));
    assert_eq!((talk.ask(1, 0, (1 << 20, 4), b"abcd"), talk.ask(4, 0, (0, 4 << 20), b""), room()), (0, 0, 0));
    assert_eq!(talk.ask(5, 0, all, b""), 0);
    assert_eq!(talk.ask(5, 0, (4 << 20, 1), b""), 22);
    // Storage that has to be written says so to clients that want no waiting.
    let mut talk = Talk::new(&self::device(), true).go();
    assert_eq!(talk.ask(6, 16, (0, 4096), b""), 95);
    assert_eq!(talk.ask(6, 0, (0, 4096), b""), 0);
}

#[test]
fn free_blocks_are_told_by_the_bitmaps_of_the_volume() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    (0..64).for_each(|at| device.write_at(at << 20, &[9; 1 << 20]).unwrap());
    let mut options = MkfsOptions::new(FsType::Ext4);
    (options.block_size, options.storage) = (Some(4096), Storage::Unknown);
    MkfsPlan::new(&options, 64 << 20).unwrap().write(&*device).unwrap();
    let unused = || Unused::of(&device).unwrap();
    let volume = Volume::open(Arc::clone(&device), &OpenOptions::new()).unwrap();
    let bitmap = volume.block_bitmap(Group(0)).unwrap();
    let is_free = |block: u64| bitmap[usize::try_from(block / 8).unwrap()] >> (block % 8) & 1 == 0;

    let mut export = Export::new(Arc::clone(&device), false);
    export.unused = Some(Arc::new(unused()));
    let told = Talk::of(export).structured().status(0, (0, 64 << 20));
    let zeroed = ZeroedUnused::new(Arc::clone(&device), unused());
    let mut talk = Talk::of(Export::new(Arc::new(zeroed), false)).structured();
    let zeros = talk.status(0, (0, 64 << 20));
    assert!(told.iter().any(|(_, flags)| *flags == 1) && told.iter().all(|(_, flags)| *flags < 2));
    assert_eq!(told.iter().map(|(len, flags)| (*len, flags * 3)).collect::<Vec<_>>(), zeros);
    let mut block = 0;
    for (len, flags) in told {
        for _ in 0..len / 4096 {
            assert_eq!(flags == 1, is_free(block), "block {block}");
            assert_eq!(
                talk.chunks(0, 4, (block * 4096, 4096))[0].1[8..] == [0; 4096],
                is_free(block) || is_zero(&*device, block)
            );
            block += 1;
        }
    }
    // What is unclean may be free by its log only.
    let mut state = [0; 2];
    device.read_at(1024 + 0x3a, &mut state).unwrap();
    device.write_at(1024 + 0x3a, &[state[0] | 2, 0]).unwrap();
    assert!(Unused::of(&device).is_err());
}

fn is_zero(device: &dyn Device, block: u64) -> bool {
    let mut bytes = [0; 4096];
    device.read_at(block * 4096, &mut bytes).unwrap();
    bytes == [0; 4096]
}

/// Counts what is read.
struct Counted(MemoryDevice, std::sync::atomic::AtomicU64);

impl Device for Counted {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn who_has_agreed_has_one_request_at_a_time_and_leaves_connections_to_others() {
    let device = Arc::new(Counted(MemoryDevice::new(8 << 20), 0.into()));
    let place = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(place.path().join("socket")).unwrap();
    let mut export = Export::new(Arc::clone(&device) as Arc<dyn Device>, false);
    // This process is a stranger.
    export.user = export.user.wrapping_add(1);
    let server = Server::start(listener, export).unwrap();
    let connect = || UnixStream::connect(place.path().join("socket")).unwrap();
    let mut agreed: Vec<Talk> = Vec::new();
    for _ in 0..CLIENTS_OF_ONE {
        let stream = connect();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut talk = Talk { stream, _server: None, _place: tempfile::tempdir().unwrap() };
        assert_eq!(talk.hear(18)[..8], *b"NBDMAGIC");
        talk.say(&[0, 0, 0, 3]);
        agreed.push(talk.go());
    }
    // There is room for others, and none for one more of the same user.
    assert!(all_ended(vec![connect()]));
    assert!(agreed.len() < CLIENTS);

    // Each asks for more than it takes answers of, until the system takes no more of what it says.
    let ask =
        [&0x2560_9513_u32.to_be_bytes()[..], &[0; 4], b"cookie42", &[0; 8], &(1_u32 << 20).to_be_bytes()];
    let asks = ask.concat().repeat(10_000);
    for talk in &mut agreed {
        talk.stream.set_nonblocking(true).unwrap();
        let mut rest = &asks[..];
        while let Ok(said) = talk.stream.write(rest)
            && said < rest.len()
        {
            rest = &rest[said..];
        }
    }
    let read = || device.1.load(Ordering::SeqCst);
    let begun = Instant::now();
    while read() < 32 {
        assert!(begun.elapsed() < Duration::from_secs(60), "not every client is served");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Until nothing more happens.
    let (mut before, mut same) = (read(), 0);
    while same < 20 {
        std::thread::sleep(Duration::from_millis(20));
        same = if read() == before { same + 1 } else { 0 };
        before = read();
    }
    // As much as sockets hold, and one piece.
    assert!((32..=4 * 32).contains(&before), "{before} pieces were read");
    // The way is free again when one of them goes.
    drop(agreed.pop());
    let begun = Instant::now();
    let mut hello = [0; 8];
    while connect().read_exact(&mut hello).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(&hello, b"NBDMAGIC");
    drop(agreed);
    server.stop();
}
