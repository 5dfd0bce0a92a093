//! Meaning of a failed request, and its message: with its causes, and without secrets.
//!
//! Owns: which failures are worth another try, by status and by the server's code. Excludes trying, which is `patient`'s.

use std::fmt::Write as _;
use std::time::Duration;

use object_store::Error as Theirs;

use super::line::Seen;
use crate::error::Error;

/// Codes of a bad request that the way spoiled, not the request.
const SPOILED: [&str; 4] = ["RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch"];
/// Words of failures of TLS that don't pass.
const UNTRUSTED: [&str; 3] = ["certificate", "UnknownIssuer", "unknown CA"];
/// Nobody gives credentials.
pub(super) const NO_CREDENTIALS: &str = "no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, \
     ~/.aws/credentials has no such profile, and this machine has no role that gives them";
/// Most bytes of a text of a server.
const TEXT_MAX: usize = 300;
/// The longest time that a server is left alone because it asks for that.
const AFTER_MAX: Duration = Duration::from_secs(3600);

/// An error with its causes, each once.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            // Writing into a string does not fail.
            let _ = write!(text, ": {words}");
        }
        next = cause.source();
    }
    text
}

/// Returns the text of an element in the server's answer.
fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(inner, _)| inner)
}

/// As much of a text as is shown, without what would upset a terminal.
fn shown(text: &str) -> String {
    text.chars().take(TEXT_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The words of a request that failed.
fn worded(status: Option<u16>, text: &str) -> String {
    match (status, element(text, "Code"), element(text, "Message")) {
        (Some(status), Some(code), message) => {
            shown(&format!("{status} {code}{}", message.map(|text| format!(": {text}")).unwrap_or_default()))
        }
        // An answer without a code: a proxy's page, or nothing.
        (Some(status @ 300..), None, _) => shown(&format!("the answer was {status}")),
        _ => {
            // The library puts the request before a dash.
            let cause = text.rsplit_once(" - ").map_or(text, |(_, cause)| cause);
            shown(cause)
        }
    }
}

/// The failure of a request about a key as ours.
pub(super) fn object_error(key: &str, error: &Theirs, seen: &Seen) -> Error {
    if seen.is_too_long {
        return Error::damaged(key, format!("the store answers with more than {} bytes", seen.most));
    }
    let text = chain(error);
    let code = element(&text, "Code").unwrap_or_default();
    let words = format!("{key}: {}", worded(seen.status, &text));
    if seen.is_metadata {
        return Error::Refused(format!("{NO_CREDENTIALS} ({})", worded(seen.status, &text)));
    }
    match seen.status {
        Some(404) if code == "NoSuchBucket" => Error::Refused("the store has no such bucket".into()),
        Some(404) => Error::Missing(key.to_owned()),
        Some(304 | 409 | 412) => by_condition(key, error, words),
        Some(300..400) => Error::Refused(redirected(seen)),
        Some(416) => Error::damaged(key, "has fewer bytes than were asked for"),
        Some(400) if SPOILED.contains(&code) => Error::Unavailable(words),
        Some(408 | 425 | 429 | 500..) => passing(words, seen.after),
        Some(400..500) => Error::Refused(words),
        None if UNTRUSTED.iter().any(|word| text.contains(word)) => Error::Refused(words),
        _ => match error {
            Theirs::NotSupported { .. } | Theirs::NotImplemented { .. } => Error::Refused(words),
            _ => Error::Unavailable(words),
        },
    }
}

/// A condition that was not met.
fn by_condition(key: &str, error: &Theirs, words: String) -> Error {
    match error {
        Theirs::AlreadyExists { .. } => Error::Exists(key.to_owned()),
        Theirs::Precondition { .. } | Theirs::NotModified { .. } => Error::Conflict(key.to_owned()),
        _ => Error::Unavailable(words),
    }
}

fn passing(why: String, after: Option<Duration>) -> Error {
    match after {
        Some(after) => Error::Busy { why, after: after.min(AFTER_MAX) },
        None => Error::Unavailable(why),
    }
}

/// A redirect, which is not followed.
fn redirected(seen: &Seen) -> String {
    let host = seen.elsewhere.as_deref().map(|place| {
        let rest = place.split_once("://").map_or(place, |(_, rest)| rest);
        shown(rest.split(['/', '?']).next().unwrap_or_default())
    });
    let to = host.map_or_else(|| "elsewhere".to_owned(), |host| format!("to {host}"));
    let remedy = match &seen.region {
        Some(region) => format!("the bucket is in the region {}: set AWS_REGION", shown(region)),
        None => "set AWS_ENDPOINT or AWS_REGION to where the bucket is".to_owned(),
    };
    format!("it redirects {to}, which is not followed, since the credentials would go there; {remedy}")
}
