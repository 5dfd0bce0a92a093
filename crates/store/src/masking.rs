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
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let (stars, host) = authority.rsplit_once('@').map_or(("", authority), |(_, host)| ("***@", host));
    let (path, query) = behind.split_once('?').map_or((behind, None), |(path, query)| (path, Some(query)));
    let signs = |query: &&str| {
        let query = query.to_ascii_lowercase();
        SIGNED.iter().any(|word| query.contains(word))
    };
    match query.filter(signs) {
        None if stars.is_empty() => url.into(),
        None => format!("{scheme}://{stars}{host}{behind}").into(),
        Some(_) => format!("{scheme}://{stars}{host}{path}?***").into(),
    }
}
