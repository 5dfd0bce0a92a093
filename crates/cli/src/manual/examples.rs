//! Examples of each command, for its long help and its page.
//!
//! Owns: the lines and what they do. A test has the parser take each.

use std::fmt::Write as _;

/// A line, and what it does.
type Example = (&'static str, &'static str);

/// Commands, those of `plat store` by both words, with their examples.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "build",
        &[
            ("plat build rootfs.tar disk.img", "an image of a tar archive, with some room to spare"),
            (
                "plat build --owner 0:0 --size min rootfs disk.img",
                "of a directory, as small as can be, all of it root's",
            ),
            (
                "plat build --reproducible --tag latest image.oci disk.qcow2",
                "of a container image, equal each time",
            ),
        ],
    ),
    (
        "mkfs",
        &[
            ("plat mkfs disk.img 64M", "an empty ext4 volume in a new file"),
            ("plat mkfs -t ext2 -L boot disk.img@part1", "in a partition, as large as that is"),
        ],
    ),
    (
        "ls",
        &[
            ("plat ls disk.img", "the names in the root directory"),
            (
                "plat ls -lh disk.img /etc '/var/log/*.log'",
                "with sizes, times and owners; patterns match names",
            ),
        ],
    ),
    ("tree", &[("plat tree -L 2 disk.img /usr", "two levels below a directory")]),
    (
        "stat",
        &[
            ("plat stat disk.img /etc/passwd", "everything that is known of a file"),
            ("plat stat -c '%a %u %s' disk.img /etc/passwd", "permissions, owner and size, for scripts"),
        ],
    ),
    ("cat", &[("plat cat disk.img /etc/os-release", "the contents of a file")]),
    (
        "get",
        &[
            ("plat get disk.img /etc/passwd .", "a file into this directory"),
            ("plat get -r disk.img /var/log logs", "a directory with all below it"),
            ("plat get disk.img /etc/passwd -", "to standard output"),
        ],
    ),
    (
        "put",
        &[
            ("plat put disk.img motd /etc", "a file into a directory of the image"),
            ("plat put -r --owner 33:33 disk.img site /var/www", "a directory, and whose it is"),
            ("plat put disk.img - /etc/hostname", "from standard input"),
        ],
    ),
    ("cp", &[("plat cp -rp disk.img /etc /etc.old", "a copy with owners, times and attributes")]),
    ("import", &[("plat import disk.img files.tar --to /srv", "an archive into a directory of the image")]),
    ("mkdir", &[("plat mkdir -p disk.img /srv/www", "a directory, and those above it")]),
    ("ln", &[("plat ln -s disk.img /usr/bin /bin", "a symbolic link `/bin` that leads to `/usr/bin`")]),
    ("mv", &[("plat mv -f disk.img /etc/motd.new /etc/motd", "in the place of a file that is there")]),
    ("rm", &[("plat rm -r disk.img /var/cache/apt", "a directory with all below it")]),
    ("chmod", &[("plat chmod -R disk.img go-w /etc", "nobody but the owner writes below /etc")]),
    ("chown", &[("plat chown -R disk.img 0:0 /etc", "everything below /etc is root's")]),
    (
        "xattr",
        &[
            ("plat xattr disk.img /bin/ping", "the attributes of a file"),
            ("plat xattr -s user.origin=build disk.img /etc/motd", "sets one"),
        ],
    ),
    ("fallocate", &[("plat fallocate -l 1G disk.img /var/swap", "space for a file, at once")]),
    (
        "quota",
        &[
            ("plat quota --on user,group disk.img", "has the volume count"),
            ("plat quota --user 1000 --block-hard 2G disk.img", "what a user may use, at most"),
        ],
    ),
    ("info", &[("plat info disk.img", "size, free space, features, state")]),
    (
        "resize",
        &[
            ("plat resize disk.img 2G", "to this size, larger or smaller"),
            ("plat resize disk.img +512M", "that much larger"),
            ("plat resize -M disk.img", "as small as it can be"),
        ],
    ),
    (
        "tune",
        &[
            ("plat tune -O ^has_journal disk.img", "takes the journal away"),
            ("plat tune -L root disk.img", "a label"),
        ],
    ),
    ("placement", &[("plat placement", "all policies and their parameters")]),
    (
        "check",
        &[
            ("plat check -n disk.img", "looks, and changes nothing"),
            ("plat check -y --undo disk.undo disk.img", "repairs everything, and keeps the way back"),
        ],
    ),
    ("diff", &[("plat diff old.img new.img", "which paths differ")]),
    ("frag", &[("plat frag disk.img /var", "which files below a directory lie in pieces")]),
    ("convert", &[("plat convert disk.img --to ext4 --all", "all files by extents")]),
    (
        "defrag",
        &[
            ("plat defrag -n disk.img", "what it would do"),
            ("plat defrag disk.img /var", "the files below a directory"),
        ],
    ),
    ("freefrag", &[("plat freefrag disk.img", "free runs by their length")]),
    (
        "map",
        &[
            ("plat map disk.img", "on the terminal"),
            ("plat map -o disk.html disk.img", "as a page for a browser"),
            ("plat map --block 8193 disk.img", "whose a block is"),
        ],
    ),
    ("journal", &[("plat journal disk.img", "the transactions that it holds")]),
    (
        "undelete",
        &[
            ("plat undelete disk.img", "what can be recovered"),
            ("plat undelete --into found disk.img", "recovers it into a new directory"),
        ],
    ),
    (
        "export",
        &[
            ("plat export disk.img files.tar.zst", "as an archive"),
            ("plat export disk.img files/", "as a directory"),
        ],
    ),
    ("trim", &[("plat trim disk.img", "free blocks become holes of the file")]),
    ("image", &[("plat image --metadata disk.img report.img", "a copy without contents of files")]),
    ("snapshot", &[("plat snapshot /mnt copy.img", "a mount as it is now, while programs write")]),
    (
        "serve",
        &[("plat serve --nbd /run/disk.sock disk.img", "for `qemu -drive file=nbd:unix:/run/disk.sock`")],
    ),
    (
        "push",
        &[
            ("plat push disk.img s3://bucket/prefix#debian", "into a bucket"),
            ("plat push disk.img file:///srv/store#debian", "into a directory of this host"),
        ],
    ),
    ("pull", &[("plat pull s3://bucket/prefix#debian disk.img", "a file of a volume")]),
    (
        "store",
        &[
            ("plat store ls file:///srv/store", "the volumes of a store"),
            ("plat store gc -n file:///srv/store", "what a clean-up would remove"),
        ],
    ),
    ("store ls", &[("plat store ls s3://bucket/prefix", "the volumes of a store, and who has them open")]),
    ("store stats", &[("plat store stats file:///srv/store", "objects, bytes, and what is not in use")]),
    ("store verify", &[("plat store verify file:///srv/store", "reads all that volumes refer to")]),
    (
        "store gc",
        &[("plat store gc --grace 48 file:///srv/store", "what nothing has referred to for two days")],
    ),
    (
        "store compact",
        &[("plat store compact file:///srv/store#debian", "writes again what is left of objects")],
    ),
    (
        "store snapshot",
        &[("plat store snapshot file:///srv/store#debian before", "`debian@before`, which never changes")],
    ),
    ("store fork", &[("plat store fork file:///srv/store#debian vm7", "a volume that begins as this one")]),
    ("store mv", &[("plat store mv file:///srv/store#vm7 vm8", "another name")]),
    ("store rm", &[("plat store rm file:///srv/store#vm8", "takes a volume out")]),
    (
        "mount",
        &[
            ("plat mount", "lists what is mounted"),
            ("plat mount disk.img /mnt", "for reading and writing"),
            ("plat mount -o ro,uid=1000 disk.img /mnt", "for reading, and all files are shown as one's own"),
        ],
    ),
    ("stats", &[("plat stats /mnt", "requests, times, what waits")]),
    ("sync", &[("plat sync /mnt", "returns when all is on the device")]),
    ("umount", &[("plat umount /mnt", "returns when the image is free")]),
    ("completions", &[("plat completions bash", "a script that bash loads")]),
    ("help", &[("plat help mount-options", "a topic"), ("plat help store gc", "a command")]),
    ("version", &[("plat version", "which one this is, and what it was built with")]),
];

/// The examples of a command.
pub(super) fn of(command: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(name, _)| *name == command).map_or(&[], |(_, examples)| examples)
}

/// Examples as text behind a long help.
pub(super) fn text(command: &str) -> String {
    let mut out = String::from("Examples:");
    for (line, meaning) in of(command) {
        // Writing into a string does not fail.
        let _ = write!(out, "\n  {line}\n      {meaning}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a line as a shell has them, without anything but single quotes.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut quoted) = (vec![String::new()], false);
        for letter in line.chars() {
            match letter {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                letter => words.last_mut().unwrap().push(letter),
            }
        }
        words
    }

    #[test]
    fn each_command_has_examples_that_the_parser_takes() {
        let mut known = Vec::new();
        super::super::each(&crate::manual::parser(), &mut |name, _| known.push(name.to_owned()));
        for name in known.iter().filter(|name| *name != "plat") {
            assert!(!of(name).is_empty(), "{name}");
        }
        for (name, examples) in EXAMPLES.iter().filter(|(name, _)| known.iter().any(|other| other == name)) {
            for (line, meaning) in *examples {
                assert!(line.starts_with(&format!("plat {name}")) && meaning.len() <= 70, "{line}");
                assert!(crate::parsed(words(line).into_iter().map(Into::into)).is_ok(), "{line}");
            }
        }
    }
}
