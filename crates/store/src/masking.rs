//! Addresses as messages may show them.
//!
//! Owns: which parts of an address, or of the URL of a server, are credentials. Excludes what is done about them.

use std::borrow::Cow;

/// Words in the query of an address that stand before what signs it.
const SIGNED: [&str; 5] = ["sig=", "signature=", "token=", "secret=", "password="];

/// An address, or the URL of a server, with stars in the place of credentials.
#[must_use]
pub fn masked(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| *scheme != "file") else {
        return url.into();
    };
    let (stars, shown) = match has_key(rest) {
        false => ("", rest),
        true => rest.rsplit_once('@').map_or(("***", ""), |(_, behind)| ("***@", behind)),
    };
    let (front, query) = shown.split_once('?').map_or((shown, None), |(front, query)| (front, Some(query)));
    let signs = |query: &&str| {
        let query = query.to_ascii_lowercase();
        SIGNED.iter().any(|word| query.contains(word))
    };
    match query.filter(signs) {
        None if stars.is_empty() => url.into(),
        None => format!("{scheme}://{stars}{shown}").into(),
        Some(_) => format!("{scheme}://{stars}{front}?***").into(),
    }
}

/// Tells if a key stands before the server of an address. It may have any character in it: by a slash its end looks like a
/// path, and its beginning like the port of a server.
fn has_key(rest: &str) -> bool {
    let server = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let port = server.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
    let is_number = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    server.contains('@') || port.is_some_and(|port| rest.contains('@') || !is_number(port))
}
