//! Topics that hold for all commands: those of `plat help`, which are sections of plat(1), too.

use std::fmt::Write as _;

use super::mount_options;

/// A theme with its text.
pub struct Topic {
    /// Its name for `plat help`.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Paragraphs.
    pub parts: &'static [Part],
}

/// A paragraph.
pub enum Part {
    /// Sentences.
    Text(&'static str),
    /// A word with its explanation.
    Item(&'static str, &'static str),
}

use Part::{Item, Text};

/// All topics.
pub const TOPICS: &[Topic] = &[
    Topic {
        name: "images",
        title: "Images",
        parts: &[
            Text("Where a command takes an IMAGE, this may be:"),
            Item("disk.img", "a file that holds a volume"),
            Item("/dev/sdb1", "a block device"),
            Item("disk.img@part1", "a partition of a file or a device, by its number"),
            Item("disk.img@part:root", "a partition by its name in a GPT"),
            Item("disk.img@1M", "a volume that begins at this byte"),
            Item("s3://bucket/prefix#NAME", "a volume of an object store: `plat help stores`"),
            Text(
                "A path in an image is a word of its own: `plat ls disk.img /etc`. It begins at the root of the volume with \
                 or without a slash. Patterns with `*`, `?` and `[..]` match names in an image where the path as it is \
                 leads to nothing; quote them, or the shell looks in this directory. A name is taken as it is printed, too: \
                 `\\xff` is a byte, `\\\\` a backslash, where no file has the name as it is.",
            ),
            Text(
                "A file that is really called `disk.img@part1` is meant if it exists. Many commands take a directory of \
                 a mount by `plat mount` in place of an image, too: their help says so.",
            ),
        ],
    },
    Topic {
        name: "sizes",
        title: "Sizes",
        parts: &[Text(
            "A size is a number of bytes, or a number with K, M, G or T (powers of 1,024). With one of these it may have \
             a fraction: `1.5G`. `plat mkfs` takes a plain number for KiB, as mke2fs does.",
        )],
    },
    Topic {
        name: "exit-codes",
        title: "Exit status",
        parts: &[
            Item("0", "all was done"),
            Item(
                "1",
                "something failed; a message on standard error says what, and what can be done about it",
            ),
            Item("2", "wrong usage"),
            Text("`plat check` has the codes of fsck(8):"),
            Item("0", "nothing is wrong"),
            Item("1", "all that was wrong is repaired"),
            Item("4", "something is wrong still"),
            Item("8", "the check could not be done"),
            Item("16", "wrong usage"),
            Item("32", "the check was stopped"),
        ],
    },
    Topic {
        name: "environment",
        title: "Environment",
        parts: &[
            Item(
                "SOURCE_DATE_EPOCH",
                "seconds since 1970 that commands which make or change an image take for the time of the change; no \
                 time of a file that they bring is later, so that the same commands give the same bytes",
            ),
            Item("NO_COLOR", "if it is set and not empty, no output is coloured but by `--color always`"),
            Item(
                "TMPDIR",
                "where temporary files are made, as what is unpacked or comes as a stream; they may become as large as \
                 the contents of a layer. `plat build` makes them beside the image if nothing is said",
            ),
            Text("Volumes of object stores:"),
            Item(
                "PLAT_CACHE",
                "the directory of the cache, `~/.cache/platfs` if nothing is said; empty for none. `PLAT_CACHE_SIZE` \
                 bounds it (8G)",
            ),
            Item(
                "PLAT_STORE_PATIENCE",
                "how long a store that does not answer is waited for: `90s`, `5m`, `1h`, `0`; five minutes if nothing is \
                 said",
            ),
            Item(
                "PLAT_STORE_FLUSH",
                "`local`: a sync ends in a log on this host; `store`, or nothing: in the store. `PLAT_STORE_LOG` is the \
                 directory of the logs, `PLAT_STORE_LOG_SIZE` the most bytes of one (1G)",
            ),
            Item("PLAT_STORE_TAKEOVER", "`1`: a volume that a lost host has open for writing is taken over"),
            Item(
                "AWS_...",
                "how S3 is reached: AWS_ENDPOINT, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
                 AWS_SESSION_TOKEN, AWS_PROFILE, AWS_CA_BUNDLE, AWS_ALLOW_HTTP=true for a server without TLS; else \
                 `~/.aws`",
            ),
        ],
    },
    Topic {
        name: "output",
        title: "Output",
        parts: &[
            Text(
                "Facts go to standard output, messages and progress to standard error. Progress is shown on a terminal \
                 only. A command that prints facts has `--json`, whose fields stay the same between versions, but for \
                 new ones.",
            ),
            Text(
                "`-` is standard input where a file is read and standard output where one is written. `-q` leaves out \
                 progress and summary, not what was asked for.",
            ),
            Text(
                "With `--json` a failure is an object, too, on a line of standard error: `{\"error\": {\"kind\": \
                 \"not-found\", \"file\": \"disk.img\", \"text\": \"...\"}}`; a warning has `warning` in place of `error`.",
            ),
            Text(
                "Names are shown with bytes that are not printable escaped. `--raw` and `--null` of `plat ls` give them \
                 byte for byte.",
            ),
        ],
    },
    Topic {
        name: "in-use",
        title: "Images in use",
        parts: &[Text(
            "A command that writes first makes sure that no other program uses the image, and says which one does: a \
             mount of the kernel, a mount of ours, a loop device, or another command that writes. A failed or \
             interrupted command leaves no half-written image.",
        )],
    },
    Topic {
        name: "owners",
        title: "Owners",
        parts: &[Text(
            "An owner is `USER`, `USER:GROUP` or `:GROUP`: numbers, or names from the image's own /etc/passwd and \
             /etc/group (of the source in `plat build`), never from those of this machine. `plat quota` takes names of this \
             machine, as it shows them.",
        )],
    },
    Topic {
        name: "stores",
        title: "Object stores",
        parts: &[
            Text(
                "A volume of an object store stands wherever a command takes an image. What is before the `#` is the store, \
                 behind it stands the volume, behind an `@` a snapshot of it:",
            ),
            Item("file:///srv/store#debian", "in a directory of this host"),
            Item("s3://bucket/prefix#debian@before", "in S3, and all servers that speak as it does"),
            Item(
                "gs://bucket/prefix#debian",
                "in Google Cloud Storage, where the build has it (`plat version`)",
            ),
            Item("az://container/prefix#debian", "in Azure, where the build has it"),
            Text(
                "`plat push IMAGE STORE#NAME` brings an image there, `plat pull` back. `plat store` lists, verifies, \
                 snapshots, forks and cleans up. Variables of the environment say how a store is reached: `plat help environment`.",
            ),
        ],
    },
    mount_options::TOPIC,
];

/// The topic of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.name == name)
}

/// Columns of text on a terminal.
const WIDTH: usize = 80;
/// Columns of a word beside its explanation; a longer one stands above it.
const WIDEST: usize = 32;

impl Topic {
    /// The topic as plain text.
    #[must_use]
    pub fn text(&self) -> String {
        let widest = |part: &Part| if let Item(word, _) = part { word.len() } else { 0 };
        let column = self.parts.iter().map(widest).max().unwrap_or(0).min(WIDEST) + 4;
        let mut out = format!("{}\n", self.title);
        for part in self.parts {
            match part {
                Text(text) => out.push_str(&wrapped(text, 0, "\n")),
                Item(word, text) => {
                    let begun = match word.len() > WIDEST {
                        true => format!("  {word}\n{:column$}", ""),
                        false => format!("  {word:width$}", width = column - 2),
                    };
                    out.push_str(&wrapped(text, column, &begun));
                }
            }
        }
        out
    }
}

/// A paragraph in lines behind `begun`, the second and later ones `indent` columns to the right.
pub(super) fn wrapped(text: &str, indent: usize, begun: &str) -> String {
    let mut out = begun.to_owned();
    let mut column = indent;
    for (nth, word) in text.split_whitespace().enumerate() {
        if nth > 0 && column + 1 + word.len() > WIDTH {
            // Writing into a string does not fail.
            let _ = write!(out, "\n{:indent$}{word}", "");
            column = indent + word.len();
        } else {
            out.push_str(if nth > 0 { " " } else { "" });
            out.push_str(word);
            column += word.len() + usize::from(nth > 0);
        }
    }
    out.push('\n');
    out
}
