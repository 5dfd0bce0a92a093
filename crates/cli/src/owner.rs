//! Owners as users write them: numbers, since an image knows no names.

/// Reads `UID:GID`.
///
/// # Errors
/// What is not of that form, as a sentence.
pub fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    parts.ok_or_else(|| format!("{text:?} is not of the form UID:GID"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_two_numbers() {
        assert_eq!(parse_owner("1:2"), Ok((1, 2)));
        assert!(parse_owner("1").is_err());
    }
}
