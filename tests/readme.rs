//! Every command that the README shows works. (Its Rust example is a documentation test.)

use std::fs;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn commands() -> Vec<String> {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut commands = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            _ if inside => commands.push(line.to_owned()),
            _ => {}
        }
    }
    commands
}

#[test]
fn the_commands_of_the_readme_work() {
    // What an earlier check left there is of no interest.
    let _ = fs::remove_dir_all(root().join("target/try"));
    let commands = commands();
    assert!(commands.len() >= 6, "{commands:?}");
    for command in commands {
        match command.split_whitespace().next().unwrap() {
            // The script builds this same binary, in release, and hands on its arguments.
            "tools/run.sh" => {
                let line = command.replacen("tools/run.sh", env!("CARGO_BIN_EXE_stoplog"), 1);
                let mut run = Command::new("bash");
                let output = run.current_dir(root()).args(["-o", "pipefail", "-c", &line]).output().unwrap();
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{command}: {}\n{stderr}", output.status);
                assert!(!output.stdout.is_empty(), "{command} prints something");
            }
            // This very test is part of it; what can be checked here is that it exists and that the CI runs it.
            "tools/check.sh" => {
                let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
                assert!(ci.contains("tools/check.sh"));
                let check = fs::read_to_string(root().join("tools/check.sh")).unwrap();
                assert!(check.contains("nextest run") && check.contains("--doc"));
            }
            other => panic!("the README shows {other}, which nothing tests"),
        }
    }
}
