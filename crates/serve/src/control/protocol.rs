//! Messages of the channel, as bytes and back.
//!
//! All numbers are little-endian. Bytes from the other end are not trusted: each length is compared with a bound before
//! memory is taken, and left-over bytes are an error. `docs/control.md` describes the conversation.

use crate::bulk::{Done, Name};
use crate::refusal::Refusal;

/// The version of all that is said here.
pub const VERSION: u32 = 3;
/// The `ioctl` by which a ticket is asked for: the kernel gives [`GRANT_LEN`] bytes.
pub const TICKET: u32 = 0x8100_706c;
/// Bytes of a ticket's answer.
pub const GRANT_LEN: usize = 256;
/// Longest message.
pub const MESSAGE_LEN: usize = 16 << 10;
/// Longest path for messages, and name.
const PATH_LEN: usize = 4096;
const NAME_LEN: usize = 255;
/// Longest name of a socket.
const ADDRESS_LEN: usize = 100;
/// Most lines that are reported at the end, and longest of them.
const LINES: usize = 16;
const LINE_LEN: usize = 512;
const MAGIC: [u8; 8] = *b"platctl\0";
/// Beginning of the name of a proof; 32 digits follow.
pub(super) const PROOF: &str = ".platctl-";

/// A number that nobody can guess.
pub type Token = [u8; 16];

/// The answer to the `ioctl`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The ticket.
    pub token: Token,
    /// The number in the name of the directory in which the program shows what it may do.
    pub proof: Token,
    /// The abstract name of the socket.
    pub address: Vec<u8>,
}

/// Verb of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Unpack the archive that comes with the request into a place.
    Import,
    /// Write a place as an archive to the file that comes with the request.
    Export,
    /// Copy the first place to the second.
    Copy,
    /// Remove a place.
    Remove,
    /// Make a regular file at a place of the file that comes with the request.
    Put,
    /// Write the volume as it is at one moment into the file that comes with the request.
    Snapshot,
    /// Bring files together that lie in pieces. Its numbers: bytes in a second, and bytes, at most.
    Defrag,
    /// Give maps another form.
    Convert,
    /// Change fields of the superblock, as the file that comes with the request says.
    Tune,
    /// Make the volume larger. Its number: bytes, or 0 for all that the image has.
    Resize,
    /// Say what became of the volume when the mount has ended.
    End,
}

/// Bits that say how.
pub mod flag {
    /// Existing files are replaced; what is missing is no failure.
    pub const FORCE: u32 = 1;
    /// Directories with all that is in them.
    pub const RECURSIVE: u32 = 1 << 1;
    /// Empty directories.
    pub const DIRECTORY: u32 = 1 << 2;
    /// Owners, times and attributes are kept.
    pub const PRESERVE: u32 = 1 << 3;
    /// The archive is packed with gzip.
    pub const GZIP: u32 = 1 << 4;
    /// The archive is packed with zstd.
    pub const ZSTD: u32 = 1 << 5;
    /// Free space is brought together.
    pub const FREE: u32 = 1 << 6;
    /// Nothing is changed.
    pub const DRY_RUN: u32 = 1 << 7;
    /// Maps become block pointers, not extents.
    pub const POINTERS: u32 = 1 << 8;
    /// The least that can be had, whatever is asked for.
    pub const LEAST: u32 = 1 << 9;
    /// All of them.
    pub const ALL: u32 = (1 << 10) - 1;
}

/// A name in a directory, or the directory itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// The directory's ticket.
    pub token: Token,
    /// The name.
    pub name: Option<Name>,
    /// The path as messages show it.
    pub shown: Vec<u8>,
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Verb.
    pub verb: Verb,
    /// How.
    pub flags: u32,
    /// Where; one or two.
    pub places: Vec<Place>,
    /// As many as the verb has.
    pub numbers: Vec<u64>,
}

/// Reply of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// How far the work is.
    Progress(Done),
    /// It is done and stable; with what was odd.
    Finished(Done, Vec<String>),
    /// It ended early. What was done until then is stable.
    Failed(Done, Refusal),
}

/// Bytes that don't make sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// They come from another version.
    #[error("the other end speaks version {0} of the protocol, this one version {VERSION}")]
    Version(u32),
    /// They have a name that is none, or that is not wanted.
    #[error("a place of a request has no name that a file can have, or one where none is wanted")]
    Name,
    /// They come from no version.
    #[error("a message of the control channel can't be understood")]
    Nonsense,
}

/// The name of a proof with this number.
pub(super) fn proof_name(proof: &Token) -> String {
    proof.iter().fold(PROOF.to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed::Nonsense)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.bytes(N)?.try_into().map_err(|_| Malformed::Nonsense)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes with their length in front.
    fn counted(&mut self, most: usize) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.u32()?).map_err(|_| Malformed::Nonsense)?;
        if len > most { Err(Malformed::Nonsense) } else { self.bytes(len) }
    }

    fn version(&mut self) -> Result<(), Malformed> {
        match self.u32()? {
            VERSION => Ok(()),
            other => Err(Malformed::Version(other)),
        }
    }

    fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Nonsense) }
    }

    fn done(&mut self) -> Result<Done, Malformed> {
        let (files, directories) = (self.u64()?, self.u64()?);
        Ok(Done { files, directories, bytes: self.u64()?, attributes_left_out: self.u64()? })
    }

    fn text(&mut self) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.counted(LINE_LEN * 16)?).into_owned())
    }
}

fn counted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(bytes);
}

fn add_done(out: &mut Vec<u8>, done: &Done) {
    for number in [done.files, done.directories, done.bytes, done.attributes_left_out] {
        out.extend(number.to_le_bytes());
    }
}

/// As much of a text as there is room for.
fn cut(text: &str, most: usize) -> &[u8] {
    text.as_bytes().get(..text.len().min(most)).unwrap_or_default()
}

impl Grant {
    /// The answer to the `ioctl`: always as long.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend(self.token);
        out.extend(self.proof);
        counted(&mut out, self.address.get(..self.address.len().min(ADDRESS_LEN)).unwrap_or_default());
        out.resize(GRANT_LEN, 0);
        out
    }

    /// Reads the answer to the `ioctl`.
    ///
    /// # Errors
    /// Bytes that are none, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes);
        if fields.array()? != MAGIC {
            return Err(Malformed::Nonsense);
        }
        fields.version()?;
        let (token, proof) = (fields.array()?, fields.array()?);
        let address = fields.counted(ADDRESS_LEN)?.to_vec();
        if address.is_empty() { Err(Malformed::Nonsense) } else { Ok(Grant { token, proof, address }) }
    }

    /// The name of the directory in which the program shows what it may do.
    #[must_use]
    pub fn proof_name(&self) -> String {
        proof_name(&self.proof)
    }
}

impl Verb {
    const ALL: [Verb; 11] = [
        Verb::Import,
        Verb::Export,
        Verb::Copy,
        Verb::Remove,
        Verb::Put,
        Verb::Snapshot,
        Verb::Defrag,
        Verb::Convert,
        Verb::Tune,
        Verb::Resize,
        Verb::End,
    ];

    fn number(self) -> u32 {
        match self {
            Verb::Import => 1,
            Verb::Export => 2,
            Verb::Copy => 3,
            Verb::Remove => 4,
            Verb::Put => 5,
            Verb::Snapshot => 6,
            Verb::Defrag => 7,
            Verb::Convert => 8,
            Verb::Tune => 9,
            Verb::Resize => 10,
            Verb::End => 11,
        }
    }

    /// How many places it has.
    fn places(self) -> usize {
        match self {
            Verb::Copy => 2,
            Verb::End => 0,
            _ => 1,
        }
    }

    /// How many numbers it has.
    fn numbers(self) -> usize {
        match self {
            Verb::Defrag => 2,
            Verb::Resize => 1,
            _ => 0,
        }
    }

    /// Returns `Some(true)` if a place of it is a name in a directory, `Some(false)` if it is a directory itself, `None` for either.
    fn is_named(self, place: usize) -> Option<bool> {
        match self {
            Verb::Remove | Verb::Put => Some(true),
            Verb::Copy if place == 1 => Some(true),
            Verb::Copy | Verb::Defrag | Verb::Convert => None,
            _ => Some(false),
        }
    }

    /// Returns true if it is about all of the volume, not about files below a place.
    #[must_use]
    pub fn is_about_volume(self, flags: u32) -> bool {
        let is_free = flags & flag::FREE != 0;
        matches!(self, Verb::Snapshot | Verb::Tune | Verb::Resize) || self == Verb::Defrag && is_free
    }

    /// Returns true if a file comes with it.
    #[must_use]
    pub fn has_file(self) -> bool {
        matches!(self, Verb::Import | Verb::Export | Verb::Put | Verb::Snapshot | Verb::Tune)
    }

    /// Returns true if it changes the volume.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Verb::Export | Verb::Snapshot | Verb::End)
    }
}

/// The name of a place. Here alone it is looked at: what comes out is a name, or none where none is wanted.
fn name(bytes: &[u8], is_named: Option<bool>) -> Result<Option<Name>, Malformed> {
    let name = match bytes {
        b"" => None,
        bytes => Some(Name::new(bytes).ok_or(Malformed::Name)?),
    };
    match is_named {
        Some(wanted) if wanted != name.is_some() => Err(Malformed::Name),
        _ => Ok(name),
    }
}

impl Request {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [VERSION, self.verb.number(), self.flags] {
            out.extend(number.to_le_bytes());
        }
        for place in &self.places {
            out.extend(place.token);
            counted(&mut out, place.name.as_ref().map_or(&[], Name::bytes));
            counted(&mut out, place.shown.get(..place.shown.len().min(PATH_LEN)).unwrap_or_default());
        }
        self.numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// Bytes that are no request, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes);
        fields.version()?;
        let (number, flags) = (fields.u32()?, fields.u32()?);
        let verb = Verb::ALL.into_iter().find(|verb| verb.number() == number).ok_or(Malformed::Nonsense)?;
        if flags & !flag::ALL != 0 {
            return Err(Malformed::Nonsense);
        }
        let mut places = Vec::new();
        for at in 0..verb.places() {
            let token = fields.array()?;
            let name = name(fields.counted(NAME_LEN)?, verb.is_named(at))?;
            places.push(Place { token, name, shown: fields.counted(PATH_LEN)?.to_vec() });
        }
        let numbers = (0..verb.numbers()).map(|_| fields.u64()).collect::<Result<_, _>>()?;
        fields.end()?;
        Ok(Request { verb, flags, places, numbers })
    }
}

impl Reply {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        let (number, done) = match self {
            Reply::Progress(done) => (1_u32, done),
            Reply::Finished(done, _) => (2, done),
            Reply::Failed(done, _) => (3, done),
        };
        out.extend(number.to_le_bytes());
        add_done(&mut out, done);
        match self {
            Reply::Progress(_) => {}
            Reply::Finished(_, lines) => {
                let lines = lines.get(..lines.len().min(LINES)).unwrap_or_default();
                out.extend(u32::try_from(lines.len()).unwrap_or(0).to_le_bytes());
                lines.iter().for_each(|line| counted(&mut out, cut(line, LINE_LEN)));
            }
            Reply::Failed(_, why) => {
                out.extend(why.errno.to_le_bytes());
                counted(&mut out, cut(&why.words, LINE_LEN * 16));
            }
        }
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// Bytes that are no reply, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes);
        fields.version()?;
        let number = fields.u32()?;
        let done = fields.done()?;
        let reply = match number {
            1 => Reply::Progress(done),
            2 => {
                let count = usize::try_from(fields.u32()?).unwrap_or(usize::MAX);
                if count > LINES {
                    return Err(Malformed::Nonsense);
                }
                Reply::Finished(done, (0..count).map(|_| fields.text()).collect::<Result<_, _>>()?)
            }
            3 => {
                let errno = fields.array().map(i32::from_le_bytes)?;
                Reply::Failed(done, Refusal { errno, words: fields.text()? })
            }
            _ => return Err(Malformed::Nonsense),
        };
        fields.end()?;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &[u8]) -> Place {
        Place { token: [9; 16], name: Name::new(name), shown: b"m/x".to_vec() }
    }

    #[test]
    fn what_is_said_is_understood() {
        let done = Done { files: 1, directories: 2, bytes: u64::MAX, attributes_left_out: 3 };
        for verb in Verb::ALL {
            let named = |at| if verb.is_named(at) == Some(false) { place(b"") } else { place(b"a") };
            let places = (0..verb.places()).map(named).collect();
            let request = Request { verb, flags: flag::ALL, places, numbers: vec![7; verb.numbers()] };
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        let lines = vec!["odd".to_owned(); 3];
        for reply in [Reply::Progress(done), Reply::Finished(done, lines), Reply::Failed(done, "no".into())] {
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
        let grant = Grant { token: [7; 16], proof: [0xa8; 16], address: b"plat".to_vec() };
        assert_eq!(grant.encode().len(), GRANT_LEN);
        assert_eq!(grant.proof_name(), format!(".platctl-{}", "a8".repeat(16)));
        assert_eq!(Grant::decode(&grant.encode()), Ok(grant));
    }

    #[test]
    fn other_versions_are_named_and_nonsense_is_refused() {
        let places = vec![place(b"a"), place(b"b")];
        let request = Request { verb: Verb::Copy, flags: 0, places, numbers: Vec::new() }.encode();
        let mut other = request.clone();
        other[0] = 9;
        assert_eq!(Request::decode(&other), Err(Malformed::Version(9)));
        assert_eq!(Reply::decode(&other), Err(Malformed::Version(9)));
        for cut in 0..request.len() {
            assert!(Request::decode(&request[..cut]).is_err(), "{cut}");
        }
        let longer = [&request[..], b"x"].concat();
        assert_eq!(Request::decode(&longer), Err(Malformed::Nonsense));
        for (at, value) in [(4, 77), (9, 0x80), (28, 0xff)] {
            let mut broken = request.clone();
            broken[at] = value;
            assert!(Request::decode(&broken).is_err(), "{at}");
        }
        assert_eq!(Grant::decode(&[0; GRANT_LEN]), Err(Malformed::Nonsense));
    }

    /// Each verb, with each name that is none or not wanted, in the place of one that is right.
    #[test]
    fn names_of_all_verbs_are_checked_in_decoding() {
        let long = [b'n'; 255];
        for verb in Verb::ALL {
            for at in 0..verb.places() {
                let encoded = |name: &[u8]| {
                    let mut out = Vec::new();
                    [VERSION, verb.number(), 0].iter().for_each(|number| out.extend(number.to_le_bytes()));
                    for place in 0..verb.places() {
                        out.extend([9; 16]);
                        let usual = if verb.is_named(place) == Some(false) { &b""[..] } else { b"a" };
                        counted(&mut out, if place == at { name } else { usual });
                        counted(&mut out, b"m/x");
                    }
                    out.extend(vec![0; 8 * verb.numbers()]);
                    Request::decode(&out)
                };
                for wrong in [&b"."[..], b"..", b"a/b", b"/", b"../etc", b"a\0", b"\0"] {
                    assert_eq!(encoded(wrong), Err(Malformed::Name), "{verb:?} {wrong:?}");
                }
                assert!(encoded(&[b'n'; 256]).is_err());
                let is_named = verb.is_named(at);
                assert_eq!(encoded(b"").is_ok(), is_named != Some(true), "{verb:?}");
                assert_eq!(encoded(&long).is_ok(), is_named != Some(false), "{verb:?}");
            }
        }
    }

    #[test]
    fn long_texts_are_cut_and_fit_a_message() {
        let long = "x".repeat(100_000);
        let reply = Reply::Finished(Done::default(), vec![long.clone(); 100]);
        assert!(reply.encode().len() <= MESSAGE_LEN && Reply::decode(&reply.encode()).is_ok());
        let reply = Reply::Failed(Done::default(), long.into());
        assert!(reply.encode().len() <= MESSAGE_LEN && Reply::decode(&reply.encode()).is_ok());
    }
}
