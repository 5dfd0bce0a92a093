//! A tar archive that is the same for ever: what an image may hold, in small. It is written here by hand, so that no other
//! code can change it.

/// Seconds of most entries.
const TIME: &str = "1600000000";

/// The archive.
pub fn odd() -> Vec<u8> {
    let mut tar = Tar(Vec::new());
    tar.add("./", b'5', b"", "", &[]);
    // A directory with an index, and files that fit into inodes or don't.
    tar.add("many/", b'5', b"", "", &[]);
    for number in 0..3_000_u32 {
        let body = number.to_string().repeat(usize::try_from(number % 40).unwrap_or(0));
        tar.add(&format!("many/file-with-a-longer-name-{number}"), b'0', body.as_bytes(), "", &[]);
    }
    tar.add("sizes/", b'5', b"", "", &[]);
    for size in [0, 1, 60, 61, 155, 156, 1_023, 1_024, 1_025, 4_096, 65_537, 300_000] {
        tar.add(&format!("sizes/{size}"), b'0', &bytes(size), "", &[]);
    }
    // Bytes, a hole of the archive's own making (zeros), bytes.
    let zeros = [bytes(5_000), vec![0; 200_000], bytes(100)].concat();
    tar.add("zeros", b'0', &zeros, "", &[]);
    let deep: String = (0..40).map(|level| format!("d{level}/")).collect();
    for (at, _) in deep.match_indices('/') {
        tar.add(&deep[..=at], b'5', b"", "", &[]);
    }
    tar.add(&format!("{deep}leaf"), b'0', b"leaf", "", &[]);
    // Links: two names, and targets at the lengths where their place changes.
    tar.add("sizes/again", b'1', b"", "sizes/4096", &[]);
    for len in [1, 59, 60, 100] {
        tar.add(&format!("link-{len}"), b'2', b"", &"t".repeat(len), &[]);
    }
    let long = "n".repeat(255);
    tar.add("long", b'0', b"long name", "", &[("path", long.as_bytes())]);
    tar.add("bytes", b'0', b"no utf-8", "", &[("path", b"caf\xe9\n")]);
    tar.add("target", b'2', b"", "", &[("linkpath", "p".repeat(900).as_bytes())]);
    // Kinds and modes.
    tar.add("char", b'3', b"", "", &[]);
    tar.add("block", b'4', b"", "", &[]);
    tar.add("fifo", b'6', b"", "", &[]);
    // Times before 1970 and behind 2038, owners beyond 16 bits.
    let facts = [("mtime", &b"-1000000000.25"[..]), ("uid", b"100000"), ("gid", b"4294967290")];
    tar.add("old", b'0', b"old", "", &facts);
    tar.add("late", b'0', b"late", "", &[("mtime", b"9000000000.123456789")]);
    // Attributes: in the inode, in a block, of the system.
    tar.add("attributes", b'0', b"x", "", &[("SCHILY.xattr.user.one", b"1"), ("SCHILY.xattr.user.two", b"")]);
    tar.add("attribute", b'0', b"x", "", &[("SCHILY.xattr.user.long", &bytes(700))]);
    tar.add("shared", b'0', b"y", "", &[("SCHILY.xattr.user.long", &bytes(700))]);
    let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    tar.add("capable", b'0', b"z", "", &[("SCHILY.xattr.security.capability", capability)]);
    tar.0.extend([0; 1024]);
    tar.0
}

/// Bytes that are a function of their number.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| u8::try_from(at * at % 251).unwrap_or(0)).collect()
}

struct Tar(Vec<u8>);

impl Tar {
    /// Adds an entry; `pax` are records that say what the header can't.
    fn add(&mut self, name: &str, kind: u8, body: &[u8], link: &str, pax: &[(&str, &[u8])]) {
        if !pax.is_empty() {
            let records: Vec<u8> = pax.iter().flat_map(|(key, value)| record(key, value)).collect();
            self.block("pax", b'x', &records, "");
        }
        // Longer names than a header has room for stand before a slash in its prefix.
        self.block(name, kind, body, link);
    }

    fn block(&mut self, name: &str, kind: u8, body: &[u8], link: &str) {
        let (prefix, name) = match name.len() {
            ..=100 => ("", name),
            _ => name.split_at(name.trim_end_matches('/').rfind('/').unwrap_or(0)),
        };
        let mut header = [0; 512];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, name.strip_prefix('/').unwrap_or(name).as_bytes());
        put(100, if kind == b'5' { b"0000755" } else { b"0004640" });
        put(108, b"0001750");
        put(116, b"0000144");
        put(124, format!("{:011o}", body.len()).as_bytes());
        put(136, format!("{:011o}", TIME.parse::<u64>().unwrap_or(0)).as_bytes());
        put(148, b"        ");
        put(156, &[kind]);
        put(157, link.as_bytes());
        put(257, b"ustar\x0000");
        put(329, b"0000012");
        put(337, b"0000345");
        put(345, prefix.as_bytes());
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(header);
        self.0.extend(body);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }
}

/// A record with its own length in front.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len += 1;
    }
    [format!("{len} {key}=").as_bytes(), value, b"\n"].concat()
}
