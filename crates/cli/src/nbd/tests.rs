use std::io::{Read, Write};

use platfs::device::MemoryDevice;

use super::*;

/// A client that says bytes, and hears bytes.
struct Talk {
    stream: UnixStream,
    _server: Option<Server>,
    _place: tempfile::TempDir,
}

impl Talk {
    fn new(device: &Arc<MemoryDevice>, writable: bool) -> Self {
        let place = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(place.path().join("socket")).unwrap();
        let export = Export::new(Arc::clone(device) as Arc<dyn Device>, writable);
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

    /// Asks for something; the code of the answer.
    fn ask(&mut self, verb: u16, flags: u16, (offset, len): (u64, u32), data: &[u8]) -> u32 {
        let head = [&flags.to_be_bytes()[..], &verb.to_be_bytes(), b"cookie42"].concat();
        let place = [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat();
        self.say(&[&0x2560_9513_u32.to_be_bytes()[..], &head, &place, data].concat());
        let answer = self.hear(16);
        assert_eq!((&answer[..4], &answer[8..]), (&[0x67, 0x44, 0x66, 0x98][..], &b"cookie42"[..]));
        u32::from_be_bytes(answer[4..8].try_into().unwrap())
    }
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
