//! The kernel's protocol (version 7) as values: requests from bytes, answers to bytes.
//!
//! Owns: layouts, numbers of operations, flags, and what is agreed on at the start. Excludes where bytes
//! come from and what is done about them. Numbers are in the machine's own byte order, as the kernel and
//! this process run on one machine. Every decoder is total: any bytes give a value or [`Malformed`].

mod fields;
mod init;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use init::{Agreed, Offer, Wish, agree};
pub(crate) use reply::{
    EntryValidity, Out, attributes_reply, control_reply, copied_reply, directory_reply, drop_pages,
    entry_reply, handle_reply, invalidate_attributes, invalidate_contents, invalidate_name, listing_entry,
    no_entry_reply, out_header, position_reply, size_reply, statistics_reply, statx_reply, written_reply,
};
pub(crate) use request::{Body, Header, Request, is_about_room, may_answer_at_length, may_take_long};

/// Bytes of the header in front of each request.
pub(crate) const HEADER_LEN: usize = 40;
/// Bytes of the header in front of each answer.
pub(crate) const OUT_HEADER_LEN: usize = 16;

/// Bytes that are no request of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// Decodes whatever bytes come, as the device gives them and as a ring does, and hands each request to
/// `look`: how the fuzzer gets in.
#[doc(hidden)]
pub fn decode_any(bytes: &[u8], part: usize) -> String {
    let Ok(header) = Header::decode(bytes) else { return String::new() };
    let body = bytes.get(HEADER_LEN..).unwrap_or_default();
    let whole = Request::decode(header.operation, Body::Whole(body));
    let cut = part.min(body.len());
    let (fixed, rest) = body.split_at(cut);
    let parted = Request::decode(header.operation, Body::Parted { fixed, rest });
    for request in [&whole, &parted].into_iter().flatten() {
        if let Request::ForgetMany(forgets) = request {
            assert!(forgets.clone().count() <= bytes.len() / 16, "each takes sixteen bytes");
        }
    }
    format!("{whole:?} {parted:?}")
}
