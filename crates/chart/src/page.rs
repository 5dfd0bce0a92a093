//! A page that needs nothing but itself: style, data and scripts stand in it, and its policy keeps it from loading anything.

use crate::escape;

/// Parts of a page that differ.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Plain text.
    pub title: &'a str,
    /// Markup, everything in it escaped.
    pub body: &'a str,
    /// JSON that the script gets by `draw.data()`.
    pub data: &'a str,
    /// JavaScript that runs last; charts come from `draw`.
    pub script: &'a str,
}

impl Page<'_> {
    /// The page as HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let (title, body, data) = (escape(self.title), self.body, inert(self.data));
        let (style, draw, script) =
            (include_str!("page/style.css"), include_str!("page/draw.js"), self.script);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
             <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n\
             <script type=\"application/json\" id=\"data\">{data}</script>\n<script>\n{draw}</script>\n<script>\n{script}</script>\n\
             </body>\n</html>\n"
        )
    }
}

/// The style of whatever has the colour of a series: ten, ten nearer to the ink, and ten nearer to the paper.
#[must_use]
pub fn color(at: usize) -> String {
    let own = at % 10;
    match at / 10 % 3 {
        0 => format!("--c: var(--s{own})"),
        1 => format!("--c: color-mix(in oklab, var(--s{own}) 55%, var(--ink))"),
        _ => format!("--c: color-mix(in oklab, var(--s{own}) 60%, var(--paper))"),
    }
}

/// JSON that can't end the element it stands in or begin a comment, whatever its strings hold: the characters of markup
/// occur in strings only, where they can be written as numbers.
fn inert(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_can_not_become_markup() {
        let data = "{\"name\":\"</script><!--<script>&\u{2028}\"}";
        let html = Page { title: "</title><b>", body: "", data, script: "" }.html();
        let inside = html.split("id=\"data\">").nth(1).unwrap_or_default();
        let inside = inside.split("</script>").next().unwrap_or_default();
        assert_eq!(
            inside,
            "{\"name\":\"\\u003c/script\\u003e\\u003c!--\\u003cscript\\u003e\\u0026\\u2028\"}"
        );
        assert!(html.contains("<title>&lt;/title&gt;&lt;b&gt;</title>"));
        assert_eq!(html.matches("</script>").count(), 3);
    }

    #[test]
    fn thirty_series_have_colours_of_their_own() {
        let colours: std::collections::BTreeSet<String> = (0..30).map(color).collect();
        assert_eq!(colours.len(), 30);
        assert_eq!(color(30), color(0));
    }

    #[test]
    fn a_page_names_no_other_address() {
        let html = Page { title: "x", body: "", data: "{}", script: "" }.html();
        let addresses: Vec<&str> =
            html.split("http").skip(1).filter(|rest| rest.starts_with([':', 's'])).collect();
        assert!(addresses.iter().all(|rest| rest.starts_with("://www.w3.org/2000/svg\"")), "{addresses:?}");
    }
}
