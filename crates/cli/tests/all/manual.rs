//! The manual: pages that man(1) and mandoc take without a word, completions that the shells load, topics, the version,
//! what `make install-files` installs, the Debian package,
//! a script's usage, and a system that has nothing but the command.

use crate::support::installed::{install, project};
use crate::support::{commands, plat, succeed};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::scratch::Scratch;
use testkit::tool;

fn said(command: &mut Command) -> String {
    let output = succeed(command);
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

/// The pages of the manual, sorted.
fn pages(scratch: &Scratch) -> Vec<PathBuf> {
    let directory = scratch.join("man1");
    succeed(plat(&["man"]).arg(&directory).env("SOURCE_DATE_EPOCH", "1700000000"));
    let mut pages: Vec<PathBuf> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    pages
}

#[test]
fn each_command_has_a_page_with_its_exit_codes() {
    let scratch = Scratch::new("manual");
    let pages = pages(&scratch);
    let listed = commands();
    assert!(listed.len() > 38, "{listed:?}");
    let of_store = pages.iter().filter(|page| page.to_string_lossy().contains("plat-store-")).count();
    assert_eq!((pages.len(), of_store), (listed.len() + 1 + of_store, 9));
    for name in &listed {
        let page = fs::read_to_string(scratch.join("man1").join(format!("plat-{name}.1"))).unwrap();
        for section in
            ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "\"EXIT STATUS\"", "\"SEE ALSO\""]
        {
            assert!(page.contains(&format!(".SH {section}\n")), "{name}: no section {section}");
        }
        assert!(page.starts_with(".TH PLAT\\-") && page.contains(" 1 2023-11-14 "), "{name}");
        assert_eq!(page.contains("\\fB32\\fR"), name == "check", "{name}: codes of fsck");
        assert!(!page.contains('`'), "{name}");
    }
    let page = fs::read_to_string(scratch.join("man1/plat.1")).unwrap();
    assert!(
        listed.iter().all(|name| page.contains(&format!("\\fBplat\\-{}\\fR(1)", name.replace('-', "\\-"))))
    );
}

#[test]
fn man_and_mandoc_are_silent() {
    let test = "man_and_mandoc_are_silent";
    let scratch = Scratch::new("manual");
    let pages = pages(&scratch);
    if tool::have_tools(test, &["mandoc"]) {
        assert_eq!(said(tool::command("mandoc").args(["-T", "lint", "-W", "style"]).args(&pages)), "");
    }
    if tool::have_tools(test, &["man", "groff"]) {
        for page in &pages {
            let output =
                succeed(tool::command("man").args(["--warnings", "-l"]).arg(page).env("MANWIDTH", "80"));
            assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}", page.display());
            assert!(output.stdout.len() > 300, "{}", page.display());
        }
    }
}

/// An image, a disk with two partitions, and a store with two volumes.
const FOR_VALUES: &str = "plat mkfs -q P 1M 2>/dev/null; echo inside | plat put P - /inside; plat push -q P file://$PWD/store#first; \
                          plat push -q P file://$PWD/store#second; truncate -s 8M disk; printf 'label: gpt\\nsize=1M\\nsize=2M\\n' | sfdisk -q disk";

/// Lines that are completed in zsh and fish.
const LINES: &str = "'plat ch' 'plat ls --re' 'plat help mount-' 'plat mount -o fake' 'plat mkfs -O has_' 'plat build -T larg' \
                     'plat placement --set alloc=le' 'plat check --explain superblock-da' 'plat ls disk@' \
                     \"plat ls file://$PWD/store#f\" 'plat cat P /' 'plat get P /in' 'plat ls P in'";

/// Functions of zsh's completion work behind a line editor only: a shell on a terminal notes what they offer, and ends.
const ZSHRC: &str = r#"
unsetopt global_rcs; autoload -U compinit; compinit -u -D; source SCRIPT
compadd() {
    [[ ${@[1,(i)--]} == *\ -[OAD]* ]] && { builtin compadd "$@"; return }
    local -a hits
    builtin compadd -A hits "$@"
    print -rl -- $hits >>hits
    builtin compadd "$@"
}
ended() { exit }
comppostfuncs=(ended)
"#;

/// Types the lines, each with a tab, into such shells.
const BY_TAB: &str = r#"
zmodload zsh/zpty
for line in LINES; do
    zpty shell zsh -i
    zpty -w -n shell "$line"$'\t'
    while zpty -r shell said; do :; done
    zpty -d shell
done
cat hits
"#;

/// Loads the completions into a shell and returns what it offers for the lines; nothing if the shell is not installed.
fn completed(shell: &str, script: &Path) -> Option<String> {
    let home = script.parent().unwrap();
    let script = script.to_str().unwrap();
    let words = match shell {
        "bash" => format!(
            "PATH={}:$PATH; source {script}; at() {{ COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _plat_words plat \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; \
             echo \"${{COMPREPLY[@]}}\"; }}; at plat ch; at plat ls --re; echo [$(at plat ls '')]; at plat help mount-; \
             at plat mount -o fake; mkdir ~/place; cd ~/place; touch P; echo [$(at plat cat '')]; at plat store s; \
             plat mkfs -q P 1M; echo inside | plat put P - /inside; at plat cat P /; at plat ls P in; echo [$(at plat get P in)]; \
             at plat mkfs -O has_; at plat tune -O extent,^dir_i; at plat build -T larg; at plat placement --set alloc=le; \
             at plat check --explain superblock-da; plat push -q P file://$PWD/store#first; plat push -q P file://$PWD/store#second; \
             COMP_LINE=\"plat ls file://$PWD/store#f\"; COMP_POINT=${{#COMP_LINE}}; at plat ls file : //$PWD/store#f; \
             truncate -s 8M disk; echo 'label: gpt
             size=1M
             size=2M' | sfdisk -q disk; COMP_LINE='plat ls disk@'; COMP_POINT=${{#COMP_LINE}}; at plat ls disk @",
            Path::new(env!("CARGO_BIN_EXE_plat")).parent().unwrap().display()
        ),
        "fish" => format!(
            "{FOR_VALUES}\nsource {script}; for line in {LINES}; complete -C $line; end"
        ),
        _ => {
            fs::write(home.join(".zshrc"), ZSHRC.replace("SCRIPT", script)).unwrap();
            format!("{FOR_VALUES}\n{}", BY_TAB.replace("LINES", LINES))
        }
    };
    if !tool::have_tools("completions_work_in_the_shells", &[shell, "sfdisk", "timeout"]) {
        return None;
    }
    let flag = if shell == "zsh" { "-fc" } else { "-c" };
    let place = home.join(format!("in-{shell}"));
    fs::create_dir(&place).unwrap();
    let found = Path::new(env!("CARGO_BIN_EXE_plat")).parent().unwrap().display();
    let found = format!("{found}:{}", std::env::var("PATH").unwrap());
    // A completion that does not come to its end is a failure.
    let mut command = tool::command("timeout");
    command.arg("300").arg(tool::find(shell).unwrap()).args([flag, &words]);
    command.envs([("HOME", home), ("ZDOTDIR", home)]).env("PATH", found);
    let output = command.current_dir(place).output().unwrap();
    assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn completions_work_in_the_shells() {
    let scratch = Scratch::new("manual");
    for shell in ["bash", "zsh", "fish"] {
        let script = scratch.join(format!("plat.{shell}"));
        fs::write(&script, succeed(&mut plat(&["completions", shell])).stdout).unwrap();
        let Some(words) = completed(shell, &script) else { continue };
        for word in ["check", "chmod", "chown", "--recursive", "mount-options", "fakeroot"] {
            assert!(words.contains(word), "{shell}: {word} is not among {words}");
        }
        // Values of options: features, types, policies, kinds of damage.
        for word in ["has_journal", "largefile4", "alloc=lease", "superblock-damaged"] {
            assert!(words.contains(word), "{shell}: {word} is not among {words}");
        }
        // Partitions behind their disk, volumes of a store behind its address, paths in an image.
        for word in ["@part1", "@part2", "/inside", "/lost+found", "#first"] {
            let said = words.replace("\\#", "#");
            assert!(said.contains(word) && !said.contains("#second"), "{shell}: {word} is not among {said}");
        }
        for other in ["mkfs", "uninit_bg", "/etc"] {
            assert!(!words.contains(other), "{shell}: {words}");
        }
        // Of a list the last word; volumes of a store behind its address, partitions behind their disk.
        for word in ["extent,^dir_index\n", "superblock-damaged\n", "/store#first\n", "@part1 @part2\n"] {
            assert!(shell != "bash" || words.contains(word), "{word} is not among {words}");
        }
        // Where a path is due nothing is offered, so that the shell offers files; never a placeholder of the usage, which
        // bash would take for a pattern of files.
        assert!(shell != "bash" || words.matches("[]").count() == 3 && words.contains("snapshot"), "{words}");
        // Paths in an image, where one is typed.
        assert!(shell != "bash" || words.contains("/inside /lost+found\ninside\n"), "{words}");
        let text = fs::read_to_string(&script).unwrap();
        let images: Vec<&str> = text.lines().filter(|line| line.starts_with("':image --")).collect();
        assert!(
            shell != "zsh" || images.len() > 20 && images.iter().all(|line| line.contains(":_plat_files'")),
            "{images:?}"
        );
    }
    let refused = plat(&["completions", "csh"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn help_knows_commands_and_topics() {
    assert_eq!(said(&mut plat(&["help", "ls"])), said(&mut plat(&["ls", "--help"])));
    assert_eq!(said(&mut plat(&["help"])), said(&mut plat(&["--help"])));
    let help = said(&mut plat(&["--help"]));
    let topics = help.split("Topics of `plat help TOPIC`: ").nth(1).unwrap();
    let topics: Vec<&str> = topics.split(',').map(str::trim).collect();
    assert_eq!(topics.len(), 9);
    assert!(said(&mut plat(&["help", "environment"])).contains("AWS_ENDPOINT"));
    assert!(said(&mut plat(&["help", "mount-options"])).contains("fakeroot"));
    assert_eq!(said(&mut plat(&["help", "store", "gc"])), said(&mut plat(&["store", "gc", "--help"])));
    assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    for topic in topics {
        let text = said(&mut plat(&["help", topic]));
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.len() <= 80), "{topic}: {text}");
    }
    let unknown = plat(&["help", "nothing"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("exit-codes"));
}

#[test]
fn help_has_heads_and_lists_have_whole_seconds() {
    let help = String::from_utf8(succeed(&mut plat(&["build", "--help"])).stdout).unwrap();
    for head in ["\nContents:\n", "\nAlike images:\n", "\nFormat options (as in mke2fs):\n", "\nExamples:\n"]
    {
        assert!(help.contains(head), "{head:?}: {help}");
    }
    let scratch = Scratch::new("whole-seconds");
    let image = scratch.join("disk.img");
    succeed(plat(&["mkfs", "-q"]).arg(&image).arg("4M"));
    succeed(plat(&["mkdir"]).arg(&image).arg("/directory"));
    let list = String::from_utf8(succeed(plat(&["ls", "-l"]).arg(&image)).stdout).unwrap();
    let times = list.lines().map(|line| line.split_whitespace().nth_back(1).unwrap());
    assert!(
        times.clone().count() == 2 && times.clone().all(|time| time.len() == "2026-11-28T01:59:14Z".len()),
        "{list}"
    );
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = said(&mut plat(&["--version"]));
    assert!(version.starts_with(concat!("plat ", env!("CARGO_PKG_VERSION"))), "{version}");
    assert_eq!(said(&mut plat(&["check", "-V"])), version.replacen("plat ", "plat check ", 1));
    let said = said(&mut plat(&["version"]));
    assert!(said.starts_with(&version) && said.contains("built with archives"), "{said}");
}

#[test]
fn make_installs_below_a_directory() {
    if !tool::have_tools("make_installs_below_a_directory", &["make"]) {
        return;
    }
    let scratch = Scratch::new("manual");
    assert_eq!(install(&scratch.join("x"), &["PREFIX=/usr", "HELPERS=/usr/sbin"]), "");
    let share = scratch.join("x/usr/share");
    for file in [
        "man/man1/plat.1",
        "man/man1/plat-build.1",
        "man/man1/plat-store-gc.1",
        "man/man8/mount.plat.8",
        "bash-completion/completions/plat",
        "zsh/site-functions/_plat",
        "fish/vendor_completions.d/plat.fish",
    ] {
        assert!(share.join(file).metadata().unwrap().len() > 10, "{file}");
    }
    let version = said(Command::new(scratch.join("x/usr/bin/plat")).arg("--version"));
    assert!(version.starts_with("plat "), "{version}");
    // The helper of mount(8) is the command itself; `-f` makes it do nothing.
    let helper = scratch.join("x/usr/sbin/mount.plat");
    assert_eq!(said(Command::new(helper).args(["a", "b", "-f"])), version);
}

/// `make install` and `make install-c` install what cargo has built, wherever `CARGO_TARGET_DIR` has it put that.
#[test]
fn make_installs_from_where_cargo_builds() {
    if !tool::have_tools("make_installs_from_where_cargo_builds", &["make"]) {
        return;
    }
    let scratch = Scratch::new("installed-from");
    let release = scratch.join("elsewhere/release");
    fs::create_dir_all(&release).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plat"), release.join("plat")).unwrap();
    for library in ["libplatfs_c.so", "libplatfs_c.a"] {
        fs::write(release.join(library), "of this build").unwrap();
    }
    let mut make = tool::command("make");
    make.arg("-s").arg("-C").arg(project()).args(["install", "install-c", "CARGO=true"]);
    make.args(["PREFIX=/usr", "HELPERS=/usr/sbin"]).arg(format!("DESTDIR={}", scratch.join("x").display()));
    succeed(make.env("CARGO_TARGET_DIR", scratch.join("elsewhere")));
    let version = said(Command::new(scratch.join("x/usr/bin/plat")).arg("--version"));
    assert!(version.starts_with("plat "), "{version}");
    for library in ["libplatfs.so", "libplatfs.a"] {
        assert_eq!(fs::read(scratch.join("x/usr/lib").join(library)).unwrap(), b"of this build");
    }
}

#[test]
fn a_comparison_with_other_tools_refuses_words_that_it_does_not_know() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/interop.sh");
    for words in [&["image"][..], &["archives", "images"], &["1"], &["--help"]] {
        let done = Command::new("bash").arg(&script).args(words).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{words:?}");
        assert!(String::from_utf8_lossy(&done.stderr).contains("usage: "), "{words:?}");
    }
}

/// A system of which all is this one's, but what is installed, in `root`: as root, behind a namespace of its own.
const SYSTEM: &str = r#"set -eu
mount -t tmpfs none "$1"
mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" "$1/root"
for one in dev proc sys; do mount --rbind /$one "$1/root/$one"; done
make -s -C "$2" install-files "PLAT=$3" "DESTDIR=$1/root"
exec chroot "$1/root" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C bash -euc "$4"
"#;

/// An image is mounted there by mount(8) and by /etc/fstab.
const MOUNTS: &str = r#"mkdir /srv/mnt; plat mkfs -q /srv/disk.img 16M
mount -t plat /srv/disk.img /srv/mnt; echo one >/srv/mnt/one; findmnt -no FSTYPE /srv/mnt; umount /srv/mnt
mount -t fuse.plat -o ro /srv/disk.img /srv/mnt; cat /srv/mnt/one; umount /srv/mnt
echo "/srv/disk.img /srv/mnt fuse.plat noauto 0 0" >>/etc/fstab
mount /srv/mnt; echo two >/srv/mnt/two; umount /srv/mnt
plat check -n /srv/disk.img >/dev/null; plat cat /srv/disk.img /two
"#;

/// The pages there, as man(1) finds them.
const PAGES: &str = r#"export MANPAGER=cat MANWIDTH=80
man plat-mount | grep -c "^ *fakeroot"; man mount.plat | grep -c "^ *plat mount"; man plat-store-gc | grep -c "^EXAMPLES"
"#;

#[test]
fn what_is_installed_works_with_mount_fstab_man_and_shells() {
    let test = "what_is_installed_works_with_mount_fstab_man_and_shells";
    let tools = ["make", "unshare", "chroot", "mount", "findmnt", "man", "bash", "zsh", "fish"];
    if !tool::have_tools(test, &tools) || !tool::have_root(test) || !crate::support::mounted::have_fuse(test)
    {
        return;
    }
    let scratch = Scratch::new("system");
    let there = |script: &str| {
        let mut command = tool::command("unshare");
        command.args(["--mount", "--propagation", "private", "bash", "-c", SYSTEM, "bash"]);
        command.arg(scratch.path()).arg(project()).arg(env!("CARGO_BIN_EXE_plat")).arg(script);
        String::from_utf8(succeed(&mut command).stdout).unwrap()
    };
    assert_eq!(there(MOUNTS), "fuse.plat\none\ntwo\n");
    for count in there(PAGES).lines() {
        assert!(count.parse::<u32>().unwrap() > 0, "{count}");
    }
    let bash = r#"source /usr/local/share/bash-completion/completions/plat; complete -p plat"#;
    assert!(there(bash).contains("_plat"));
    assert_eq!(there(r#"zsh -fc 'autoload -U compinit; compinit -u -D; echo $_comps[plat]'"#), "_plat\n");
    // Where fish looks besides its own directories says the session.
    assert!(
        there(r#"XDG_DATA_DIRS=/usr/local/share fish -c 'complete -C "plat chec"'"#).starts_with("check")
    );
}

/// dpkg with a root directory of its own, in which nothing else is installed.
fn dpkg(root: &Path, words: &[&str]) -> Command {
    let mut command = tool::command("dpkg");
    let database = root.join("var/lib/dpkg");
    fs::create_dir_all(database.join("updates")).unwrap();
    fs::create_dir_all(database.join("info")).unwrap();
    for file in ["status", "available"] {
        fs::OpenOptions::new().append(true).create(true).open(database.join(file)).unwrap();
    }
    command.arg("--root").arg(root).args(["--force-depends", "--force-script-chrootless"]).args(words);
    command.env("LC_ALL", "C");
    command
}

#[test]
fn a_debian_package_is_installed_has_fsck_s_names_on_request_and_goes() {
    let test = "a_debian_package_is_installed_has_fsck_s_names_on_request_and_goes";
    if !tool::have_tools(test, &["make", "dpkg-deb", "dpkg", "dpkg-divert", "strip"])
        || !tool::have_root(test)
    {
        return;
    }
    let scratch = Scratch::new("deb");
    let project = project();
    let mut script = tool::command("bash");
    script.arg(project.join("scripts/deb.sh")).env("PLAT", env!("CARGO_BIN_EXE_plat"));
    let made = said(script.env("OUT", scratch.path()).env("COMPRESSION", "none"));
    let root = scratch.join("root");
    let sbin = root.join("usr/sbin");
    fs::create_dir_all(&sbin).unwrap();
    std::os::unix::fs::symlink("usr/sbin", root.join("sbin")).unwrap();
    fs::write(sbin.join("fsck.ext4"), "of e2fsprogs").unwrap();
    succeed(dpkg(&root, &["-i"]).arg(made.trim()));
    let version = said(Command::new(root.join("usr/bin/plat")).arg("--version"));
    assert!(version.starts_with("plat "), "{version}");
    assert!(sbin.join("mount.plat").exists() && root.join("usr/share/man/man8/mount.plat.8.gz").exists());
    let fsck = || fs::read_link(sbin.join("fsck.ext4")).ok();
    assert_eq!(fsck(), None);
    succeed(Command::new(sbin.join("plat-fsck-names")).arg("add").env("DPKG_ROOT", &root));
    assert_eq!(fsck().as_deref(), Some(Path::new("/usr/bin/plat")));
    assert_eq!(fs::read(sbin.join("fsck.ext4.e2fsprogs")).unwrap(), b"of e2fsprogs");
    succeed(&mut dpkg(&root, &["-r", "platfs"]));
    assert_eq!(fs::read(sbin.join("fsck.ext4")).unwrap(), b"of e2fsprogs");
    assert!(!root.join("usr/bin/plat").exists() && !sbin.join("fsck.ext2").exists());
}

#[test]
fn an_image_is_the_same_where_proc_is_not_mounted() {
    let test = "an_image_is_the_same_where_proc_is_not_mounted";
    if !tool::have_tools(test, &["unshare", "mount"]) || !tool::have_root(test) {
        return;
    }
    let scratch = Scratch::new("noproc");
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("directory")).unwrap();
    let mut marked = true;
    for path in ["file", "directory/file", "directory"].map(|name| tree.join(name)) {
        if !path.is_dir() {
            fs::write(&path, "contents").unwrap();
        }
        // Not every file system has attributes of users.
        marked &= rustix::fs::setxattr(&path, "user.mark", b"seen", rustix::fs::XattrFlags::empty()).is_ok();
    }
    std::os::unix::fs::symlink("file", tree.join("link")).unwrap();
    let built = |name: &str, before: &str| {
        let image = scratch.join(name);
        let script = format!("{before} && exec \"$0\" build -q -U $3 -E hash_seed=$3 \"$1\" \"$2\"");
        let mut command = tool::command("unshare");
        command.args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_plat")]).arg(&tree).arg(&image);
        command.arg("01234567-89ab-cdef-0123-456789abcdef");
        let said = said(command.env("SOURCE_DATE_EPOCH", "1700000000"));
        (fs::read(image).unwrap(), said)
    };
    let (usual, silent) = built("usual.img", "true");
    assert_eq!(silent, "");
    let (bare, said) = built("bare.img", "mount -t tmpfs none /proc");
    assert!(usual == bare, "the images differ");
    assert!(said.contains("/proc is not mounted") && said.lines().count() == 1, "{said}");
    assert_eq!(usual.windows(4).any(|bytes| bytes == b"mark"), marked);
}

/// Two scripts learn that something failed, and why, without reading prose.
#[test]
fn failures_are_json_where_json_is_asked_for() {
    let scratch = Scratch::new("json");
    let missing = scratch.join("missing.img");
    let missing = missing.to_str().unwrap();
    for (words, code, kind, file) in [
        (vec!["info", missing, "--json"], 1, "not-found", Some(missing)),
        (vec!["ls", "--json", missing], 1, "not-found", Some(missing)),
        (vec!["ls", "--json", "--frob", missing], 2, "usage", None),
        (vec!["frob", "--json"], 2, "usage", None),
        (vec!["check", "-n", "--json", missing], 8, "not-found", Some(missing)),
    ] {
        let output = plat(&words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        let told: serde_json::Value =
            serde_json::from_str(said.trim()).unwrap_or_else(|_| panic!("{words:?}: {said}"));
        assert_eq!(
            (told["error"]["kind"].as_str(), told["error"]["file"].as_str()),
            (Some(kind), file),
            "{words:?}"
        );
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

/// A command that prints nothing else says what it has done, and a server says when it is there: each an object.
#[test]
fn what_was_done_is_json_where_json_is_asked_for() {
    let scratch = Scratch::new("json-done");
    let [image, tree, point] = ["d.img", "tree", "point"].map(|name| scratch.join(name));
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::create_dir(&point).unwrap();
    fs::write(tree.join("file"), "five\n").unwrap();
    let json = |words: &[&str]| -> serde_json::Value {
        let output = succeed(plat(words).arg("--json").current_dir(scratch.path()));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    };
    let done = |words: &[&str]| {
        let told = json(words);
        ["files", "directories", "bytes"]
            .map(|name| told[name].as_u64().unwrap_or_else(|| panic!("{words:?}: {told}")))
    };
    assert_eq!(json(&["mkfs", "d.img", "8M"])["written"], true);
    assert_eq!(done(&["put", "-r", "d.img", "tree", "/tree"]), [1, 2, 5]);
    assert_eq!(done(&["put", "d.img", "tree/file", "/file"]), [1, 0, 5]);
    assert_eq!(done(&["get", "-r", "d.img", "/tree", "got"]), [1, 2, 5]);
    assert_eq!(done(&["get", "d.img", "/file", "got-file"]), [1, 0, 5]);
    assert_eq!(done(&["mkdir", "-p", "d.img", "/a/b", "/a/c"]), [0, 3, 0]);
    assert_eq!(done(&["export", "d.img", "all.tar"])[2], 10);
    assert!(json(&["version"])["with"].is_array());
    let again = plat(&["get", "d.img", "/file", "got-file", "--json"]).current_dir(scratch.path()).output();
    let told: serde_json::Value = serde_json::from_slice(&again.unwrap().stderr).unwrap();
    assert_eq!(told["error"]["kind"], "exists", "{told}");
    let contents = succeed(plat(&["get", "--json"]).arg(&image).args(["/file", "-"])).stdout;
    assert_eq!(contents, b"five\n", "contents are the output, and nothing else");
    if !crate::support::mounted::have_fuse("what_was_done_is_json_where_json_is_asked_for") {
        return;
    }
    let _away = Away(&point);
    let mounted = json(&["mount", "d.img", "point"]);
    let listed = json(&["mount"]);
    let is_listed = listed.as_array().unwrap().contains(&mounted);
    // An owner that a mount can't have is refused before anything is made.
    let refused = plat(&["mkdir", "--owner", "www-data", "point/owned"]).current_dir(scratch.path()).output();
    assert_eq!(refused.unwrap().status.code(), Some(2));
    assert!(!point.join("owned").exists());
    let live = [
        done(&["put", "-r", "point", "tree", "/live"]),
        done(&["get", "-r", "point", "/live", "live"]),
        done(&["mkdir", "-p", "point/m/n"]),
    ];
    let refused = plat(&["get", "-r", "point", "/live", "-"]).current_dir(scratch.path()).output().unwrap();
    assert!(!refused.status.success() && !scratch.join("-").exists());
    succeed(plat(&["umount", "--json"]).arg(&point));
    assert_eq!(live, [[1, 2, 5], [1, 2, 5], [0, 2, 0]]);
    assert!(is_listed && mounted["read_only"] == false, "{mounted}: {listed}");
    // Its process in the background says it, too, in JSON.
    let output = plat(&["mount", "--json"]).arg(&tree).arg(&point).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let told: serde_json::Value = serde_json::from_str(said.trim()).unwrap_or_else(|_| panic!("{said}"));
    assert!(!output.status.success() && told["error"]["text"].is_string(), "{said}");
}

/// Takes a mount away, whatever happened.
struct Away<'p>(&'p Path);

impl Drop for Away<'_> {
    fn drop(&mut self) {
        drop(plat(&["umount", "--lazy"]).arg(self.0).output());
    }
}

/// Sizes that can't be are told as sizes, with what does it.
#[test]
fn sizes_that_are_too_small_are_told_with_the_remedy() {
    let scratch = Scratch::new("too-small");
    fs::create_dir(scratch.join("tree")).unwrap();
    for name in 0..1000 {
        fs::write(scratch.join("tree").join(name.to_string()), "x").unwrap();
    }
    succeed(plat(&["mkfs", "-q", "d.img", "8M"]).current_dir(scratch.path()));
    for (line, code, hint) in [
        ("resize d.img 10K", 1, "`plat resize -P d.img`"),
        ("build tree t.img --size 10", 1, "fewer than 16 KiB"),
        ("build tree t.img --size 100K", 1, "`--size auto`"),
        ("build tree t.img --size 400K", 1, "`--size auto` makes "),
        ("chown 0:0 d.img", 2, "`plat chown <IMAGE> <USER:GROUP> <PATHS>...`"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = plat(&words).current_dir(scratch.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(said.contains(hint) && !said.contains("superblock:"), "{line}: {said}");
    }
}

/// One voice, and no hint that leads astray.
#[test]
fn wrong_lines_are_told_in_one_voice() {
    for (line, hint) in [
        ("df a.img", Some("`plat info IMAGE`")),
        ("chekc a.img", Some("did you mean `check`?")),
        ("dd a.img", None),
        ("ls -9 a.img", None),
        ("ls --recursve a.img", Some("did you mean `--recursive`?")),
    ] {
        let output = plat(&line.split(' ').collect::<Vec<_>>()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.lines().all(|line| line.starts_with("plat: ")) && said.lines().count() == 2,
            "{line}: {said}"
        );
        assert!(said.contains("--help` shows the usage"), "{line}: {said}");
        match hint {
            Some(hint) => assert!(said.contains(hint), "{line}: {said}"),
            None => assert!(!said.contains("did you mean") && !said.contains("tip"), "{line}: {said}"),
        }
    }
    // Words that have the name of the program or of the command are words.
    let scratch = Scratch::new("voice");
    succeed(plat(&["mkfs", "-q", "d.img", "8M"]).current_dir(scratch.path()));
    for (line, meant) in [("ls plat d.img", "`plat ls d.img plat`"), ("ls ls d.img", "`plat ls d.img ls`")] {
        let words: Vec<_> = line.split(' ').collect();
        let output = plat(&words).current_dir(scratch.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(meant), "{line}: {said}");
    }
    succeed(&mut plat(&["mount"]));
    // A word that is empty in a script is no unmount.
    assert_eq!(plat(&["umount"]).output().unwrap().status.code(), Some(2));
    assert_eq!(plat(&["-q", "check", "--bad"]).output().unwrap().status.code(), Some(16));
    let said = String::from_utf8(plat(&["mounts", "a"]).output().unwrap().stderr).unwrap();
    assert!(said.contains("did you mean `mount`?"), "{said}");
}

#[test]
fn the_document_of_conventions_says_what_the_commands_do() {
    let document = fs::read_to_string(project().join("docs/conventions.md")).unwrap();
    for (letter, long) in plat_cli::manual::conventions::LETTERS {
        assert!(document.contains(&format!("| `-{letter}` | `--{long}` |")), "-{letter} --{long}");
    }
    for (name, letter, what, why) in plat_cli::manual::conventions::EXCEPTIONS {
        let line = format!("| `plat {name} -{letter}` | {what} | {why} |");
        assert!(document.contains(&line), "{line}");
    }
}
