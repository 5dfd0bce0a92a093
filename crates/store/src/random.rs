//! Numbers that nobody else has: identifiers, and marks of one writer.

/// Random bytes of the system's; the clock and the process where it has none to give.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    let flags = rustix::rand::GetRandomFlags::empty();
    if rustix::rand::getrandom(&mut out[..], flags).is_ok_and(|count| count == N) {
        return out;
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seed = format!("{:?} {} {:?}", now, std::process::id(), std::thread::current().id());
    blake3::Hasher::new().update(seed.as_bytes()).finalize_xof().fill(&mut out);
    out
}

/// A random number.
pub(crate) fn number() -> u64 {
    u64::from_le_bytes(bytes())
}
