//! Facts of a file in a form of the caller's, with the letters of `stat -c` of coreutils; types, times and names are as this
//! program prints them.

use platfs::Metadata;

use crate::text::{self, Shown};

/// A letter behind `%` with what it stands for.
fn fact(letter: char, path: &[u8], facts: &Metadata, block_size: u32) -> Option<String> {
    let times = &facts.times;
    Some(match letter {
        'n' => Shown(path).to_string(),
        'a' => format!("{:o}", facts.permissions),
        'A' => text::mode(facts.file_type, facts.permissions),
        'b' => facts.sectors.to_string(),
        'B' => "512".to_owned(),
        'F' => text::type_name(facts.file_type).to_owned(),
        // The names are the image's concern; numbers are the same everywhere.
        'g' | 'G' => facts.gid.to_string(),
        'u' | 'U' => facts.uid.to_string(),
        'h' => facts.links.to_string(),
        'i' => facts.inode.to_string(),
        'o' => block_size.to_string(),
        's' => facts.size.to_string(),
        'x' => text::time(times.access),
        'X' => times.access.seconds.to_string(),
        'y' => text::time(times.modify),
        'Y' => times.modify.seconds.to_string(),
        'z' => text::time(times.change),
        'Z' => times.change.seconds.to_string(),
        'w' => times.create.map_or_else(|| "-".to_owned(), text::time),
        'W' => times.create.map_or(0, |time| time.seconds).to_string(),
        '%' => "%".to_owned(),
        _ => return None,
    })
}

/// The line of one file.
///
/// # Errors
/// A letter that stands for nothing.
pub(super) fn line(format: &str, path: &[u8], facts: &Metadata, block_size: u32) -> Result<String, String> {
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let letter = letters.next().ok_or("-c: a letter is missing behind the last %")?;
        let fact = fact(letter, path, facts, block_size);
        out += &fact.ok_or_else(|| {
            format!(
                "-c: %{letter} stands for nothing; known are n a A b B F g G h i o s u U w W x X y Y z Z %"
            )
        })?;
    }
    Ok(out)
}
