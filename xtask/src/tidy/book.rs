//! The manual as a book: `docs/SUMMARY.md` names each page once.
//!
//! Owns: the rule that pages and table agree, and that what pages link to is there and part of the book. Excludes: what pages
//! say.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Folders of `docs` that hold pages.
const FOLDERS: [&str; 2] = ["", "guides"];
const SUMMARY: &str = "SUMMARY.md";

/// Finds faults between the pages, their table, and what they lead to.
pub(super) fn check(root: &Path, found: &mut Vec<String>) {
    let docs = root.join("docs");
    let summary = fs::read_to_string(docs.join(SUMMARY)).unwrap_or_default();
    let named: Vec<_> = links(&summary).collect();
    let distinct: BTreeSet<_> = named.iter().copied().collect();
    if distinct.len() < named.len() {
        found.push(format!("docs/{SUMMARY}: a page is named twice"));
    }
    let pages = pages(&docs);
    let missing = pages.iter().filter(|page| *page != SUMMARY && !distinct.contains(page.as_str()));
    found.extend(missing.map(|page| format!("docs/{page}: docs/{SUMMARY} does not name it")));
    for page in &pages {
        let text = fs::read_to_string(docs.join(page)).unwrap_or_default();
        let folder = docs.join(page).parent().map(Path::to_path_buf).unwrap_or_default();
        for link in links(&text) {
            if !folder.join(link).exists() {
                found.push(format!("docs/{page}: leads to {link}, which is not there"));
            } else if leaves(page, link) {
                found.push(format!(
                    "docs/{page}: leads to {link}, which is no part of the book; name the file as code"
                ));
            }
        }
    }
    // The book shows it a second time, as the page that comes first, and links would lead elsewhere from there.
    let first = named.first().filter(|page| page.contains('/'));
    found.extend(
        first.map(|page| format!("docs/{SUMMARY}: the first page, {page}, does not stand in docs itself")),
    );
}

/// True if a link of a page leads out of `docs`, which is all that the book has.
fn leaves(page: &str, link: &str) -> bool {
    let above = page.matches('/').count();
    let steps = link.split('/').scan(above, |depth, part| {
        *depth = if part == ".." { depth.checked_sub(1)? } else { *depth + usize::from(part != ".") };
        Some(())
    });
    steps.count() < link.split('/').count()
}

fn pages(docs: &Path) -> Vec<String> {
    let mut pages = Vec::new();
    for folder in FOLDERS {
        let Ok(entries) = fs::read_dir(docs.join(folder)) else { continue };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let below = names.filter(|name| name.ends_with(".md"));
        pages.extend(below.map(|name| Path::new(folder).join(name).display().to_string()));
    }
    pages.sort();
    pages
}

/// Files that a page leads to, without the place in them. Code in back quotes leads nowhere.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    let prose = text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        !inside && !is_fence
    });
    let ends = prose.flat_map(|line| line.split("](").skip(1));
    let targets = ends.filter_map(|end| end.split([')', ' ']).next());
    let files = targets.map(|target| target.split('#').next().unwrap_or_default());
    files.filter(|file| !file.is_empty() && !file.contains("://") && !file.starts_with("mailto:"))
}

#[cfg(test)]
mod tests {
    use super::{leaves, links};

    #[test]
    fn links_out_of_the_book_are_known() {
        assert!(leaves("bindings.md", "../crates/x.rs") && leaves("guides/a.md", "../../README.md"));
        assert!(leaves("guides/a.md", "../b/../../c.md"));
        assert!(!leaves("guides/a.md", "../check.md") && !leaves("spec.md", "guides/../api/x.txt"));
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "see [a](b.md), [c](d.md#e) and [f](https://x/y)\n```\n[no](no.md)\n```\n[g](#h) [i](../j/k.rs)\n";
        assert_eq!(links(text).collect::<Vec<_>>(), ["b.md", "d.md", "../j/k.rs"]);
    }
}
