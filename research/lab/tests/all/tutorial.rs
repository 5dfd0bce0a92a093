//! The commands of research/docs/tutorial.md and of research/docs/lab.md's page for a policy run as they stand there.

use std::path::Path;
use std::process::Command;
use testkit::scratch::Scratch;

/// Words of a line as a shell has them: double quotes keep blanks.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

/// The calls of `plat-lab` in a document, from a prompt or through cargo, with a policy that there is for the reader's.
fn calls(document: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../research/docs").join(document);
    let text = std::fs::read_to_string(path).unwrap();
    let call = |line: &str| {
        let line = line.trim();
        let by_cargo = line.strip_prefix("cargo run ").and_then(|rest| rest.split_once(" -- "));
        let own = line.strip_prefix("$ plat-lab ").or(by_cargo.map(|(_, own)| own))?;
        Some(own.replace("stripes", "xfs"))
    };
    text.lines().filter_map(call).collect()
}

#[test]
fn every_command_of_the_tutorial_works() {
    let scratch = Scratch::new("tutorial");
    let calls = calls("tutorial.md");
    assert_eq!(calls.len(), 5, "{calls:?}");
    for call in calls {
        // Small sizes: what is tried is the command.
        let mut words = words(&call.replace("--seeds 5", "--seeds 1"));
        if !["replay"].contains(&&*words[0]) {
            words.push("--quick".into());
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_plat-lab"));
        let output = command.args(&words).current_dir(scratch.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "plat-lab {call}: {said}");
        assert!(words[0] == "record" || !output.stdout.is_empty(), "plat-lab {call} says nothing");
    }
}
