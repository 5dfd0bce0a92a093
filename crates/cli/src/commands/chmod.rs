//! `plat chmod`: permissions of files in an image.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;

use super::cage;
use crate::console::{Console, Failure};
use crate::reading::OpenImage;
use crate::sandbox;
use crate::writing::{self, Target};

/// Arguments of `plat chmod`.
#[derive(Args, Debug)]
pub struct Chmod {
    #[command(flatten)]
    image: Target,
    /// Octal digits, or changes as chmod(1) takes them: `u+x,go-w,a=rX`.
    #[arg(value_parser = parse, allow_hyphen_values = true)]
    mode: Mode,
    /// Files in the image; symbolic links are followed.
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Everything in directories, too; symbolic links there are passed over.
    #[arg(short = 'R', long, short_alias = 'r')]
    recursive: bool,
}

/// Change of permissions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// They become these.
    Exactly(u16),
    /// They change, in this order.
    Changes(Vec<Change>),
}

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Bits that may change: those of users, groups, others, as the letters before the sign say.
    whose: u16,
    sign: u8,
    /// Bits named behind the sign.
    bits: u16,
    /// Execution for directories, and for files that any user may execute.
    execute_some: bool,
}

/// Octal digits.
///
/// # Errors
/// Anything else, and more than 7777.
pub fn octal(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("{text} is not a mode of up to four octal digits"))
}

fn parse(text: &str) -> Result<Mode, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return octal(text).map(Mode::Exactly);
    }
    let mut changes = Vec::new();
    for clause in text.split(',') {
        let signs = clause.find(['+', '-', '=']).ok_or_else(|| no_mode(clause))?;
        let (whose, mut rest) = clause.split_at(signs);
        let whose = classes(whose)?;
        while let Some(sign) = rest.bytes().next() {
            let end = rest.get(1..).unwrap_or_default().find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
            let (one, later) = rest.split_at(end);
            changes.push(change(whose, sign, one.get(1..).unwrap_or_default())?);
            rest = later;
        }
    }
    Ok(Mode::Changes(changes))
}

/// The message about a clause that has no sign.
fn no_mode(clause: &str) -> String {
    if clause.contains(['.', '/']) {
        return "is no mode: first comes the image, then the mode, then paths".into();
    }
    format!("{clause}: no `+`, `-` or `=`, as in `u+x`, and no octal digits")
}

fn classes(text: &str) -> Result<u16, String> {
    let class = |letter| match letter {
        'u' => Ok(0o4700),
        'g' => Ok(0o2070),
        'o' => Ok(0o1007),
        'a' => Ok(0o7777),
        other => Err(format!("{other} is not one of u, g, o, a")),
    };
    if text.is_empty() {
        Ok(0o7777)
    } else {
        text.chars().try_fold(0, |all, letter| Ok(all | class(letter)?))
    }
}

fn change(whose: u16, sign: u8, letters: &str) -> Result<Change, String> {
    let mut change = Change { whose, sign, bits: 0, execute_some: false };
    for letter in letters.chars() {
        match letter {
            'r' => change.bits |= 0o444,
            'w' => change.bits |= 0o222,
            'x' => change.bits |= 0o111,
            'X' => change.execute_some = true,
            's' => change.bits |= 0o6000,
            't' => {
                change.bits |= 0o1000;
                change.whose |= 0o1000;
            }
            other => return Err(format!("{other} is not one of r, w, x, X, s, t")),
        }
    }
    Ok(change)
}

impl Mode {
    fn apply(&self, before: u16, is_directory: bool) -> u16 {
        let changes = match self {
            Mode::Exactly(mode) => return *mode,
            Mode::Changes(changes) => changes,
        };
        changes.iter().fold(before, |mode, change| {
            let execute = change.execute_some && (is_directory || mode & 0o111 != 0);
            let bits = (change.bits | if execute { 0o111 } else { 0 }) & change.whose;
            match change.sign {
                b'+' => mode | bits,
                b'-' => mode & !bits,
                // The special bits of directories stay unless they are named.
                _ => mode & !(change.whose & if is_directory { 0o777 } else { 0o7777 }) | bits,
            }
        })
    }
}

impl Chmod {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        cage::changing(self.image.name())
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        writing::change_each(&self.image, &self.paths, console, |image, path| {
            let inode = image.find(path, true)?;
            let change = |path: &[u8], inode| self.one(image, path, inode);
            if self.recursive {
                return writing::tree(image, path.as_bytes(), inode, change);
            }
            change(path.as_bytes(), inode)
        })
    }

    fn one(&self, image: &OpenImage, path: &[u8], inode: InodeNumber) -> Result<(), Failure> {
        let done = image.volume.metadata(inode).and_then(|facts| {
            if facts.file_type == FileType::Symlink {
                return Ok(());
            }
            let mode = self.mode.apply(facts.permissions, facts.file_type == FileType::Directory);
            image.volume.inode(inode).set_permissions(mode)
        });
        done.map_err(|error| image.failure(path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str, before: u16, is_directory: bool) -> u16 {
        parse(text).unwrap().apply(before, is_directory)
    }

    #[test]
    fn changes_are_those_of_chmod() {
        assert_eq!(applied("0755", 0o4644, false), 0o755);
        assert_eq!(applied("u+x,go-w", 0o666, false), 0o744);
        assert_eq!(applied("a=rX", 0o700, false), 0o555);
        assert_eq!(applied("a=rX", 0o600, false), 0o444);
        assert_eq!(applied("go=", 0o2777, true), 0o2700);
        assert_eq!(applied("+t,g+s", 0o755, true), 0o3755);
        assert_eq!(applied("u=rw-w", 0o777, false), 0o477);
        assert!(parse("q+x").is_err() && parse("u").is_err() && parse("8").is_err() && parse("u+z").is_err());
    }
}
