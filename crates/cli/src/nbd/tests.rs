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
        let export = Export { device: Arc::clone(device) as Arc<dyn Device>, writable };
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
