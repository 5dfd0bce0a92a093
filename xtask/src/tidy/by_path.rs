//! Calls of the operating system that name a file by its path.
//!
//! Owns: the rule that each product crate has clippy refuse them (`clippy.toml` lists the calls), and how many exceptions
//! there are, each with a reason beside it. Their number only shrinks: a path that is used twice, or that leads through
//! what others may change, is a way for them to send root's command elsewhere. `platfs-host` is the home of such calls.

use super::source::Code;

/// Asks clippy for the lint, in a crate's `lib.rs`.
const ASKS: &str = "#![cfg_attr(not(test), warn(clippy::disallowed_methods))]";
const LINT: &str = "clippy::disallowed_methods";
/// The home of such calls, and crates that are no product.
const EXCUSED: [&str; 2] = ["crates/host/", "crates/testkit/"];
/// Exceptions of all product crates together.
pub(super) const MOST: usize = 16;

/// Bindings that are products, too; they have no ladder.
pub(super) const BINDINGS: [&str; 2] = ["bindings/c", "bindings/web"];

fn is_product(shown: &str) -> bool {
    (shown.starts_with("crates/") || BINDINGS.iter().any(|path| shown.starts_with(path)))
        && !EXCUSED.iter().any(|path| shown.starts_with(path))
}

/// The exceptions in a file; complains of a product crate that doesn't ask for the lint.
pub(super) fn exceptions(shown: &str, code: &Code, found: &mut Vec<String>) -> usize {
    if !is_product(shown) {
        return 0;
    }
    let asks = code.text.contains(ASKS);
    if shown.ends_with("/src/lib.rs") && !asks {
        found.push(format!("{shown}: lacks `{ASKS}`: calls by path are those of `platfs-host`"));
    }
    code.text.matches(LINT).count() - usize::from(asks)
}

/// Complains of exceptions beyond those that are known.
pub(super) fn check(count: usize, found: &mut Vec<String>) {
    if count > MOST {
        found.push(format!(
            "{count} exceptions for calls by path (`{LINT}`), at most {MOST} (xtask/src/tidy/by_path.rs): call `platfs_host`"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_that_do_not_ask_and_exceptions_are_found() {
        let mut found = Vec::new();
        let code = |text: &str| Code::of(text);
        let asking = format!("{ASKS}\n#[expect(\n    {LINT},\n    reason = \"r\"\n)]\nfn f() {{}}\n");
        assert_eq!(exceptions("crates/new/src/lib.rs", &code(&asking), &mut found), 1);
        assert!(found.is_empty());
        assert_eq!(exceptions("crates/new/src/lib.rs", &code("mod f;\n"), &mut found), 0);
        assert_eq!(exceptions("bindings/c/src/lib.rs", &code("mod f;\n"), &mut found), 0);
        assert_eq!(exceptions("research/lab/src/lib.rs", &code("mod f;\n"), &mut found), 0);
        assert_eq!(found.len(), 2);
        check(MOST + 1, &mut found);
        assert_eq!(found.len(), 3);
    }
}
