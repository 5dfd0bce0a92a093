//! `plat xattr`: extended attributes of files in an image: showing, setting and removing them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Args;
use platfs::Error;
use serde_json::{Map, Value};

use super::cage;
use super::json::Array;
use crate::console::{Console, Failure};
use crate::reading::OpenImage;
use crate::sandbox;
use crate::text::{Shown, hex, put_bytes};
use crate::writing::{self, Target};

/// Arguments of `plat xattr`.
#[derive(Args, Debug)]
pub struct Xattr {
    #[command(flatten)]
    image: Target,
    /// Files in the image. A symbolic link is meant itself.
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Sets an attribute to these bytes, or with `NAME=0x...` to those in hexadecimal.
    #[arg(short, long, value_name = "NAME=VALUE")]
    set: Vec<OsString>,
    /// Removes an attribute.
    #[arg(short = 'x', long, short_alias = 'r', value_name = "NAME")]
    remove: Vec<OsString>,
    /// What is shown, as a JSON array with one object per attribute.
    #[arg(long, conflicts_with_all = ["set", "remove"])]
    json: bool,
}

/// One change of one attribute.
enum Change {
    Set(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
}

fn parse_set(text: &OsStr) -> Result<Change, Failure> {
    let bytes = text.as_bytes();
    let usage = |what: &str| Failure::Usage(format!("--set {}: {what}", Shown(bytes)));
    let at =
        bytes.iter().position(|byte| *byte == b'=').ok_or_else(|| usage("`=` and a value are missing"))?;
    let (name, value) = (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..).unwrap_or_default());
    let value = match value.strip_prefix(b"0x") {
        Some(digits) => from_hex(digits).ok_or_else(|| usage("not pairs of hexadecimal digits"))?,
        None => value.to_vec(),
    };
    Ok(Change::Set(name.to_vec(), value))
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digits
        .chunks(2)
        .map(|pair| if let [high, low] = pair { Some(digit(high)? << 4 | digit(low)?) } else { None })
        .collect()
}

impl Xattr {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::changing(self.image.name())
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let mut changes = self.set.iter().map(|text| parse_set(text)).collect::<Result<Vec<_>, _>>()?;
        changes.extend(self.remove.iter().map(|name| Change::Remove(name.clone().into_vec())));
        if changes.is_empty() {
            return self.show(console);
        }
        writing::change_each(&self.image, &self.paths, console, |image, path| {
            change_one(image, path, &changes)
        })
    }

    fn show(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let image = OpenImage::open(self.image.name(), console)?;
        let mut array = Array::default();
        for path in &self.paths {
            let found = image.find(path, false).and_then(|inode| {
                image.volume.inode(inode).xattrs().map_err(|error| image.failure(path.as_bytes(), &error))
            });
            let found = match found {
                Ok(found) => found,
                Err(failure) => {
                    console.complain(failure)?;
                    continue;
                }
            };
            for (name, value) in found {
                if self.json {
                    array.push(console.out, object(path, &name, &value))?;
                } else {
                    let (path, name) = (Shown(path.as_bytes()), Shown(&name));
                    writeln!(console.out, "{path}: {name}={}", text(&value))?;
                }
            }
        }
        if self.json { Ok(array.end(console.out)?) } else { Ok(()) }
    }
}

/// In the form that `--set` takes.
fn text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) && !text.starts_with("0x") => text.to_owned(),
        _ => format!("0x{}", hex(value)),
    }
}

fn object(path: &OsStr, name: &[u8], value: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    put_bytes(&mut object, "path", path.as_bytes());
    put_bytes(&mut object, "name", name);
    put_bytes(&mut object, "value", value);
    object
}

fn change_one(image: &OpenImage, path: &OsStr, changes: &[Change]) -> Result<(), Failure> {
    let inode = image.find(path, false)?;
    for change in changes {
        let done = match change {
            Change::Set(name, value) => image.volume.inode(inode).set_xattr(name, value),
            Change::Remove(name) => image.volume.inode(inode).remove_xattr(name),
        };
        done.map_err(|error| match (&error, change) {
            // The file is there.
            (Error::NotFound, Change::Remove(name)) => {
                let subject = format!("{}: {}", image.name, Shown(path.as_bytes()));
                Failure::of(subject, &error, format_args!("has no attribute {}", Shown(name)))
            }
            _ => image.failure(path.as_bytes(), &error),
        })?;
    }
    Ok(())
}
