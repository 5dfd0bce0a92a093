//! Published ratios beside ours, as HTML: how many are in which class, and each of a table.

use chart::escape;

use super::digest::{Digest, Table};
use crate::results::{Class, Size};
use crate::table::show;

/// Ratios that a page shows of a table at most.
const SHOWN: usize = 400;

/// One line on all of them, and a row for each document; nothing where none were published.
pub(super) fn counts(digest: &Digest) -> String {
    let all: Vec<&Size> = digest.tables.iter().flat_map(|table| &table.sizes).collect();
    if all.is_empty() {
        return String::new();
    }
    let count = |sizes: &[&Size], class: Class| sizes.iter().filter(|size| size.class == class).count();
    let mut out = format!("<p class=\"lead\">Of {} published ratios", all.len());
    let classes = Class::ALL.map(|class| format!(" {} {}", count(&all, class), words(class)));
    out.push_str(&classes.join(","));
    out.push_str(".</p>\n<div class=\"scroll\"><table><thead><tr><th></th><th class=\"n\">ratios</th>");
    for class in Class::ALL {
        out.push_str(&format!("<th class=\"n\" scope=\"col\">{}</th>", class.name()));
    }
    out.push_str("</tr></thead><tbody>");
    for (number, table) in digest.tables.iter().enumerate().filter(|(_, table)| !table.sizes.is_empty()) {
        let sizes: Vec<&Size> = table.sizes.iter().collect();
        let name = escape(&table.name);
        out.push_str(&format!("<tr><th class=\"name\" scope=\"row\"><a href=\"#t{number}\">{name}</a></th>"));
        let counts = Class::ALL.map(|class| count(&sizes, class));
        for value in std::iter::once(sizes.len()).chain(counts) {
            out.push_str(&format!("<td>{value}</td>"));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out
}

fn words(class: Class) -> &'static str {
    match class {
        Class::Reproduced => "are reproduced (within 25 %, or what the document itself varies)",
        Class::Near => "are within a factor of two",
        Class::Direction => "have the same direction only",
        Class::Not => "do not",
        Class::Undefined => "are undefined",
    }
}

/// Each ratio of a table, behind a summary.
pub(super) fn rows(table: &Table) -> String {
    if table.sizes.is_empty() {
        return String::new();
    }
    let mut out = "<details><summary>Every published ratio</summary><div class=\"scroll\"><table><thead><tr>\
                   <th></th><th></th><th class=\"n\">ours</th><th class=\"n\">published</th>\
                   <th class=\"n\">bounds</th><th class=\"n\">times apart</th><th></th></tr></thead><tbody>"
        .to_string();
    for size in table.sizes.iter().take(SHOWN) {
        let ours = match size.ratio {
            Some(ratio) if size.half > 0.0 => format!("{} \u{b1} {}", show(ratio), show(size.half)),
            ratio => number(ratio),
        };
        let bounds = size.low.zip(size.high).map(|(low, high)| format!("{} to {}", show(low), show(high)));
        let apart = size.ratio.zip(size.published).map(|(is, was)| is / was);
        let what = format!("{}: {} over {}", size.figure, size.system, size.over);
        out.push_str(&format!(
            "<tr><th class=\"name\">{}</th><th class=\"name\">{}</th><td>{ours}</td><td>{}</td><td>{}</td><td>{}</td>\
             <th>{}</th></tr>",
            escape(&size.case),
            escape(&what),
            number(size.published),
            bounds.unwrap_or_default(),
            number(apart),
            size.class.name()
        ));
    }
    out.push_str("</tbody></table></div></details>");
    out
}

fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| "-".into(), show)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Record;

    #[test]
    fn counts_stand_for_each_document() {
        let size = |class, figure: &str| {
            Record::from(Size {
                table: "S<1>".into(),
                figure: figure.into(),
                ratio: Some(2.0),
                published: Some(4.0),
                class,
                ..Size::default()
            })
        };
        let digest = Digest::of(vec![size(Class::Near, "a"), size(Class::Not, "b"), size(Class::Not, "c")]);
        let text = counts(&digest);
        assert!(text.contains("Of 3 published ratios 0 are reproduced"), "{text}");
        assert!(
            text.contains("S&lt;1&gt;</a></th><td>3</td><td>0</td><td>1</td><td>0</td><td>2</td>"),
            "{text}"
        );
        assert_eq!(rows(&digest.tables[0]).matches("<td>0.5000</td>").count(), 3);
        assert!(counts(&Digest::of(Vec::new())).is_empty());
    }
}
