//! The metadata contexts of the protocol, of which there is one: `base:allocation`.
//!
//! Owns: which contexts a client's queries mean. Excludes what the context says ([`super::status`]).

/// The name of the context.
pub(super) const NAME: &[u8] = b"base:allocation";
/// Its number in block status.
pub(super) const ALLOCATION: u32 = 1;

/// The contexts that a client asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Nothing,
    Allocation,
}

/// The contexts that the queries behind the name of an export ask for; `None` if they break the protocol. To be set, a
/// context must be named whole; a list without queries is one of all, and `base:` names all of that namespace.
pub(super) fn asked(data: &[u8], sets: bool) -> Option<Asked> {
    let (_, rest) = text(data)?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let count = u32::from_be_bytes(*count);
    let mut found = count == 0 && !sets;
    // Each takes four bytes at least, so the bytes bound the loop.
    for _ in 0..count {
        let (query, behind) = text(rest)?;
        found |= query == NAME || (!sets && query == b"base:");
        rest = behind;
    }
    let asked = if found { Asked::Allocation } else { Asked::Nothing };
    rest.is_empty().then_some(asked)
}

/// A length and that many bytes, and what lies behind them.
fn text(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*len) as usize)
}
