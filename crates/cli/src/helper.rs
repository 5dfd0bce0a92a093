//! How mount(8) and umount(8) call their helpers, in our own words.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Turns the call of a mount helper (`mount.plat`, `mount.fuse.plat`: SOURCE DIR [-sfnv] [-o OPTIONS]) into one of
/// `plat mount`, and that of an umount helper into one of `plat umount`; all else stays.
pub fn by_name(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let name = arguments.first().map(Path::new).and_then(Path::file_name).and_then(OsStr::to_str);
    match name.unwrap_or_default() {
        "mount.plat" | "mount.fuse.plat" => mount(arguments),
        "umount.plat" | "umount.fuse.plat" => umount(&arguments),
        "plat" if is_by_fuse(&arguments) => mount(arguments),
        _ => arguments,
    }
}

/// Tells if mount.fuse(8) runs this for the type `fuse.plat`, where our own helper is not installed:
/// `plat SOURCE DIR -o OPTIONS`.
fn is_by_fuse(arguments: &[OsString]) -> bool {
    let [_, source, _, option, _] = arguments else { return false };
    let is_source =
        || crate::stores::is_meant(source) || platfs_host::path::is_there(crate::image::parse(source).path);
    option == "-o" && crate::usage::command_of(arguments).is_empty() && is_source()
}

/// The words of ours for a short flag of mount(8).
fn meaning(flag: u8) -> &'static [&'static str] {
    match flag {
        b's' => &["--sloppy"],
        b'v' => &["-v"],
        b'r' => &["-o", "ro"],
        b'w' => &["-o", "rw"],
        _ => &[],
    }
}

fn mount(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut turned: Vec<OsString> = vec!["plat".into(), "mount".into()];
    let mut fake = false;
    let mut rest = arguments.into_iter().skip(1);
    while let Some(word) = rest.next() {
        match word.as_bytes() {
            // The namespace and the type are mount(8)'s concern.
            b"-N" | b"-t" => drop(rest.next()),
            // mount(8) says `rw` whether it was asked for or not.
            b"-o" => turned.extend([word].into_iter().chain(rest.next().map(asked_for))),
            // Short flags may come together.
            [b'-', flags @ ..] if !flags.is_empty() && flags.iter().all(|flag| b"sfnvrw".contains(flag)) => {
                fake |= flags.contains(&b'f');
                turned.extend(flags.iter().flat_map(|flag| meaning(*flag)).map(OsString::from));
            }
            _ => turned.push(word),
        }
    }
    // Pretending to mount: all that is left is to be a command that does nothing.
    if fake { vec!["plat".into(), "--version".into()] } else { turned }
}

/// DIR [-flnrv] [-N NAMESPACE] [-t TYPE].
fn umount(arguments: &[OsString]) -> Vec<OsString> {
    let mut turned: Vec<OsString> = vec!["plat".into(), "umount".into()];
    let mut rest = arguments.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.as_bytes() {
            b"-N" | b"-t" => drop(rest.next()),
            // To force it, to leave the table of mounts alone, to mount it for reading instead: the kernel's concern,
            // or nobody's.
            [b'-', flags @ ..] if !flags.is_empty() && flags.iter().all(|flag| b"flnrv".contains(flag)) => {
                if flags.contains(&b'l') {
                    turned.push("--lazy".into());
                }
            }
            _ => turned.push(word.clone()),
        }
    }
    turned
}

/// Without the `rw` that mount(8) says by itself. In a remount it is meant.
fn asked_for(words: OsString) -> OsString {
    if words.as_bytes().split(|byte| *byte == b',').any(|word| word == b"remount") {
        return words;
    }
    let words = words.as_bytes().split(|byte| *byte == b',').filter(|word| *word != b"rw");
    OsString::from_vec(words.collect::<Vec<_>>().join(&b','))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turned(line: &str) -> String {
        let words = by_name(line.split(' ').map(OsString::from));
        words.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn mount_helpers_are_called_their_way() {
        assert_eq!(
            turned("/sbin/mount.fuse.plat a.img /mnt -o ro,noload"),
            "plat mount a.img /mnt -o ro,noload"
        );
        assert_eq!(turned("mount.plat a /m -sv -t plat -w"), "plat mount a /m --sloppy -v -o rw");
        assert_eq!(turned("mount.plat a /m -o rw,sync,unordered"), "plat mount a /m -o sync,unordered");
        assert_eq!(turned("mount.plat a /m -o rw,remount"), "plat mount a /m -o rw,remount");
        assert_eq!(turned("mount.plat a /m -f"), "plat --version");
        assert_eq!(turned("/sbin/umount.fuse.plat /m -n -v -t fuse.plat"), "plat umount /m");
        assert_eq!(turned("umount.plat /m -fl -N /proc/1/ns/mnt"), "plat umount /m --lazy");
        assert_eq!(turned("umount.plat /m -x"), "plat umount /m -x");
        assert_eq!(turned("plat mount a /m -f"), "plat mount a /m -f");
        assert_eq!(turned("/usr/bin/plat /dev/null /m -o ro,dev"), "plat mount /dev/null /m -o ro,dev");
        assert_eq!(turned("plat /nothing /m -o ro"), "plat /nothing /m -o ro");
        assert_eq!(turned("plat /dev/null@part1 /m -o ro"), "plat mount /dev/null@part1 /m -o ro");
        assert_eq!(turned("plat file:///srv/store#a /m -o ro"), "plat mount file:///srv/store#a /m -o ro");
        assert_eq!(turned("e2fsck /dev/null /m -o ro"), "e2fsck /dev/null /m -o ro");
        assert_eq!(turned("plat map /dev/null -o ro"), "plat map /dev/null -o ro");
    }
}
