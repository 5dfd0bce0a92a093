//! Tokens as text, spaced as rustfmt spaces them.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// Tokens as words; signs that belong together are one.
fn words(tokens: TokenStream, all: &mut Vec<String>) {
    let mut joined = String::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                all.push(open.to_owned());
                words(group.stream(), all);
                all.push(close.to_owned());
            }
            TokenTree::Punct(sign) => {
                joined.push(sign.as_char());
                // `>` and `,` close something each by themselves.
                let goes_on = matches!(sign.as_char(), ':' | '-' | '=' | '.' | '\'');
                if sign.spacing() == Spacing::Alone || !goes_on {
                    all.push(std::mem::take(&mut joined));
                }
            }
            TokenTree::Ident(name) => all.push(std::mem::take(&mut joined) + &name.to_string()),
            TokenTree::Literal(literal) => all.push(literal.to_string()),
        }
    }
}

/// The text of tokens.
pub fn of(tokens: TokenStream) -> String {
    let mut all = Vec::new();
    words(tokens, &mut all);
    let mut text = String::new();
    let mut before = "";
    let following = all.iter().skip(1).map(String::as_str).chain([""]);
    for (word, next) in all.iter().zip(following).filter(|(word, _)| !word.is_empty()) {
        // Where rustfmt breaks a list into lines it puts a comma behind the last.
        if word == "," && matches!(next, ")" | ">") {
            continue;
        }
        let tight_left =
            matches!(word.as_str(), "," | ";" | ")" | "]" | ">" | "." | "?" | "::" | ":" | "(" | "<")
                && !(word == "(" && matches!(before, "->" | "," | ":" | "=" | "+" | "dyn" | "impl" | "mut"))
                && !(word == "<" && matches!(before, "for" | "impl" | "," | ":" | "->"));
        let tight_left = tight_left && !(word == "<" && before == "=");
        let tight_right = matches!(before, "" | "(" | "[" | "<" | "&" | "::" | "!" | "." | "#" | "*");
        if !tight_left && !tight_right {
            text.push(' ');
        }
        text.push_str(word);
        before = word;
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn signatures_read_as_they_are_written() {
        for line in [
            "fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>>",
            "fn make(make: impl Fn() -> Box<dyn BlockPolicy> + Send + Sync + 'static) -> Self",
            "fn pair<'a>(&'a mut self, (from, to): (u64, &'a str)) -> (u32, Option<&'a [u8]>)",
            "fn next(&mut self) -> Option<Self::Item>",
            "const LIMIT: u64",
        ] {
            let tokens: proc_macro2::TokenStream = line.parse().unwrap_or_default();
            assert_eq!(super::of(tokens), line);
        }
    }
}
