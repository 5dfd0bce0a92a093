//! Every command of the command line: what it is run with, and what it works on that can be slow.

/// Service that a command waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slow {
    /// An image on a slow disk.
    Image,
    /// An archive there.
    Archive,
    /// A volume that is mounted from there.
    Mount,
    /// A store of objects on such a volume.
    Store,
    /// Nothing: it has no work that could last.
    Nothing,
    /// It lasts as long as it is wanted, and tests of its own run it.
    Serves,
}

/// A command.
pub struct Row {
    pub name: &'static str,
    pub slow: Slow,
    /// The words behind its name. `disk.img` is what is slow, `m` the mount, `tree` a directory, `SCRATCH` where these are,
    /// `STORE` the store on the mount.
    pub words: &'static str,
    /// True if it prints the same each time.
    pub is_steady: bool,
}

const fn steady(name: &'static str, slow: Slow, words: &'static str) -> Row {
    Row { name, slow, words, is_steady: true }
}

const fn varies(name: &'static str, slow: Slow, words: &'static str) -> Row {
    Row { name, slow, words, is_steady: false }
}

/// All of them.
pub const ROWS: &[Row] = &[
    varies("build", Slow::Archive, "disk.img new.img"),
    varies("mkfs", Slow::Image, "-F -E offset=1048576 disk.img 4M"),
    varies("ls", Slow::Image, "disk.img /d0"),
    steady("tree", Slow::Image, "disk.img /d0"),
    varies("stat", Slow::Image, "disk.img /d0/f0"),
    steady("cat", Slow::Image, "disk.img /text"),
    steady("get", Slow::Image, "disk.img /d0/f0 got"),
    steady("put", Slow::Image, "disk.img tree/text /new"),
    steady("cp", Slow::Image, "disk.img -r /d0 /copy"),
    steady("cp", Slow::Mount, "-r m/d0 m/copy"),
    varies("import", Slow::Archive, "fast.img disk.img --to /d1"),
    varies("import", Slow::Mount, "m/d0 fast.tar"),
    steady("mkdir", Slow::Image, "disk.img /made"),
    steady("ln", Slow::Image, "disk.img /text /other"),
    steady("mv", Slow::Image, "disk.img /text /other"),
    steady("rm", Slow::Image, "disk.img -r /d0"),
    steady("rm", Slow::Mount, "-r m/d0"),
    steady("chmod", Slow::Image, "disk.img 600 /text"),
    steady("chown", Slow::Image, "disk.img 7:7 /text"),
    steady("xattr", Slow::Image, "disk.img /text"),
    steady("fallocate", Slow::Image, "disk.img /text --length 100000"),
    varies("quota", Slow::Image, "disk.img --on user"),
    varies("info", Slow::Image, "disk.img"),
    varies("resize", Slow::Image, "disk.img 12M"),
    varies("tune", Slow::Image, "disk.img -L label"),
    varies("placement", Slow::Image, "disk.img"),
    varies("check", Slow::Image, "-n disk.img"),
    steady("diff", Slow::Image, "disk.img fast.img"),
    steady("frag", Slow::Image, "disk.img"),
    varies("convert", Slow::Image, "disk.img --to ext2 --all"),
    varies("defrag", Slow::Image, "disk.img"),
    varies("defrag", Slow::Mount, "m"),
    varies("freefrag", Slow::Image, "disk.img"),
    varies("map", Slow::Image, "disk.img"),
    varies("journal", Slow::Image, "disk.img"),
    varies("undelete", Slow::Image, "disk.img"),
    steady("export", Slow::Image, "disk.img new.tar"),
    varies("trim", Slow::Image, "disk.img"),
    varies("image", Slow::Image, "--metadata disk.img new.img"),
    varies("snapshot", Slow::Image, "disk.img new.img"),
    varies("snapshot", Slow::Mount, "m new.img"),
    varies("serve", Slow::Serves, ""),
    varies("push", Slow::Image, "disk.img file://SCRATCH/store#new"),
    varies("push", Slow::Store, "fast.img STORE#new"),
    varies("pull", Slow::Store, "STORE#kept new.img"),
    varies("store", Slow::Store, "ls STORE"),
    varies("store", Slow::Store, "verify STORE"),
    varies("mount", Slow::Serves, ""),
    varies("stats", Slow::Nothing, "tree"),
    steady("sync", Slow::Mount, "m"),
    steady("umount", Slow::Mount, "m"),
    varies("completions", Slow::Nothing, "bash"),
    varies("man", Slow::Nothing, "pages"),
    varies("help", Slow::Nothing, "sizes"),
    varies("version", Slow::Nothing, ""),
];
