//! Helpers that the tests of the command share: running `plat`, and seeing a volume by other eyes.
pub mod installed;
pub mod mounted;
pub mod volumes;

use std::path::Path;
use std::process::{Command, Output};
use testkit::odd;
use testkit::scratch::Scratch;
use testkit::tool;

/// The command under test, with the words of `line` as arguments and an environment of its own.
pub fn plat(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plat"));
    command.args(arguments).env_remove("SOURCE_DATE_EPOCH").env("LC_ALL", "C");
    command
}

/// Options with which the command has a cage or does nothing; none where the kernel has no cages, or coverage is measured.
pub fn caged(test: &str) -> &'static [&'static str] {
    let scratch = Scratch::new("cages");
    let image = scratch.join("image");
    succeed(plat(&["mkfs", "-q"]).arg(&image).arg("4M"));
    let has = plat(&["ls", "--sandbox=require"]).arg(&image).output().unwrap().status.success();
    if has && std::env::var_os("LLVM_PROFILE_FILE").is_none() {
        return &["--sandbox=require"];
    }
    tool::skip(test, "needs Landlock and seccomp, and no coverage");
    &[]
}

/// The commands that the help lists.
pub fn commands() -> Vec<String> {
    let help = String::from_utf8(succeed(&mut plat(&["--help"])).stdout).unwrap();
    let listed =
        help.lines().take_while(|line| *line != "Options:").filter_map(|line| line.strip_prefix("  "));
    let names = listed.filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
    names.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Runs the command and asserts that it succeeds.
pub fn succeed(command: &mut Command) -> Output {
    tool::run(command)
}

/// Runs the command and asserts that it fails as a command should: exit 1, one error on standard error, nothing on standard output.
pub fn fail(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
    assert!(said.lines().count() >= 1, "{command:?}: no error message");
    assert!(!said.contains("panicked"), "{command:?}: {said}");
    said
}

/// `plat build SOURCE IMAGE` with further options; the check of ours must find the image sound.
pub fn build(source: &Path, image: &Path, options: &[&str]) {
    succeed(plat(&["build"]).args(options).arg(source).arg(image));
    let device = platfs::device::FileDevice::new(std::fs::File::open(image).unwrap()).unwrap();
    let options = platfs::check::Options::default();
    let checked = platfs::check::check(std::sync::Arc::new(device), &options, &mut Refusing);
    assert!(checked.unwrap().summary.is_sound());
}

/// Fails over the first issue.
struct Refusing;

impl platfs::check::Sink for Refusing {
    fn issue(&mut self, issue: platfs::check::Issue) -> platfs::check::Decision {
        panic!("the check of ours: {issue:?}");
    }
}

/// A modest odd tree below `scratch`.
pub fn modest_tree(scratch: &Scratch, options: &odd::Options) -> std::path::PathBuf {
    let tree = scratch.join("tree");
    std::fs::create_dir(&tree).unwrap();
    odd::make(&tree, options);
    tree
}
