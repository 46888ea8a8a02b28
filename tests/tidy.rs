//! Keeps the map of the crate true: who imports whom, and which files may touch the outside world.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each part and the complete list of the parts that it may import. A new arrow is a decision about the design: it stands here
/// and in `src/docs/architecture.md`, with its reason, in one commit.
const IMPORTS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("sync", &[]),
    ("ring", &["base", "sync"]),
    ("metrics", &["base", "sync"]),
    ("element", &["base"]),
    ("codec", &["base"]),
    ("config", &["base"]),
    ("snapshot", &["base", "codec", "metrics"]),
    ("state", &["base", "codec", "snapshot", "metrics"]),
    ("time", &["base", "element", "state"]),
    ("operator", &["base", "sync", "element", "codec", "snapshot", "state", "time", "metrics"]),
    ("align", &["base", "element"]),
    ("exchange", &["base", "sync", "ring", "element", "codec", "metrics", "operator"]),
    ("graph", &["base", "sync", "codec", "operator", "exchange", "config"]),
    ("api", &["base", "graph", "operator", "codec", "state", "time", "config"]),
    ("checkpoint", &["base", "snapshot", "metrics", "config"]),
    (
        "connectors",
        &["base", "sync", "ring", "element", "codec", "operator", "snapshot", "metrics", "config"],
    ),
    (
        "runtime",
        &[
            "base",
            "sync",
            "ring",
            "metrics",
            "element",
            "codec",
            "config",
            "snapshot",
            "state",
            "time",
            "operator",
            "align",
            "exchange",
            "graph",
            "checkpoint",
        ],
    ),
    (
        "job",
        &[
            "base",
            "sync",
            "operator",
            "api",
            "graph",
            "runtime",
            "checkpoint",
            "snapshot",
            "metrics",
            "config",
        ],
    ),
    ("jobs", &["base", "api", "operator", "connectors", "time", "state", "codec", "config"]),
    ("savepoint", &["base", "snapshot"]),
    ("cli", &["base", "jobs", "job", "savepoint", "api", "config", "metrics"]),
];

/// Parts that may import anything: entry points and tests.
const UNRESTRICTED: &[&str] = &["lib", "prelude", "testing", "docs", "bin"];

/// A call that reaches outside the process, and the only files that make it.
const OUTSIDE: &[(&str, &[&str])] = &[
    ("Instant::now", &[]),
    ("SystemTime::now", &["base/clock.rs"]),
    ("thread::sleep", &[]),
    ("thread::spawn", &[]),
    (
        "thread::Builder",
        &[
            "runtime/worker.rs",
            "runtime/blocking.rs",
            "runtime/snapshot_pool.rs",
            "job/execute.rs",
            "cli/signals.rs",
        ],
    ),
    ("std::fs", &["snapshot/local.rs", "connectors/", "cli/", "jobs/"]),
    ("File::open", &["snapshot/local.rs", "connectors/", "cli/"]),
    ("std::net", &["connectors/socket.rs"]),
    ("TcpStream", &["connectors/socket.rs"]),
];

/// The only places that may contain unsafe code.
const UNSAFE: &[&str] = &["sync/", "ring/", "state/heap/table.rs"];

fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All source files with their path below `src`.
fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    walk(&source_root(), &mut files);
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(source_root()).unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// The part that a file belongs to: its folder below `src`, or its own name.
fn part(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

/// The code without a module of tests at its end. A line that only declares such a module hides nothing.
fn without_tests(text: &str) -> &str {
    let inline = |at: &usize| {
        let item = &text[*at..];
        let end = item.find(['{', ';']).unwrap_or(item.len());
        item[end..].starts_with('{')
    };
    let starts = text.match_indices("#[cfg(test)]\nmod").chain(text.match_indices("#[cfg(all(test"));
    starts.map(|(at, _)| at).filter(inline).min().map_or(text, |at| &text[..at])
}

fn is_test_file(file: &str) -> bool {
    file.ends_with("tests.rs") || file.ends_with("loom.rs") || file.contains("/tests/")
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

#[test]
fn every_part_imports_only_what_the_map_allows() {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (file, text) in sources().iter().filter(|(file, _)| !is_test_file(file)) {
        let part = part(file);
        if UNRESTRICTED.contains(&part) {
            continue;
        }
        let Some((_, allowed)) = IMPORTS.iter().find(|(name, _)| *name == part) else {
            wrong.push(format!("src/{file}: the part {part:?} is not on the map"));
            continue;
        };
        for line in without_tests(text).lines().filter(|line| !is_comment(line)) {
            for rest in line.split("crate::").skip(1) {
                let target: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                seen.insert((part.to_owned(), target.clone()));
                if target != part && !allowed.contains(&target.as_str()) {
                    wrong.push(format!("src/{file}: {part} must not import {target}: {}", line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} forbidden imports:\n{}", wrong.len(), wrong.join("\n"));
    assert!(seen.len() > 30, "the check has read the sources");
}

#[test]
fn the_runtime_knows_only_the_protocol_of_checkpoints() {
    for (file, text) in sources().iter().filter(|(file, _)| part(file) == "runtime") {
        for line in text.lines().filter(|line| line.contains("crate::checkpoint::")) {
            assert!(line.contains("crate::checkpoint::protocol"), "src/{file}: {line}");
        }
    }
}

#[test]
fn only_the_named_files_reach_outside_the_process() {
    let mut wrong = Vec::new();
    for (file, text) in sources().iter().filter(|(file, _)| !is_test_file(file)) {
        for (number, line) in without_tests(text).lines().enumerate().filter(|(_, line)| !is_comment(line)) {
            for (call, files) in OUTSIDE {
                if line.contains(call) && !files.iter().any(|allowed| file.starts_with(allowed)) {
                    wrong.push(format!("src/{file}:{}: {call}", number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "the simulation cannot replace these calls:\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    for (file, text) in sources() {
        let has_unsafe = text.lines().any(|line| !is_comment(line) && line.contains("unsafe {"));
        assert!(
            !has_unsafe || UNSAFE.iter().any(|room| file.starts_with(room)),
            "src/{file} has unsafe code"
        );
    }
}

#[test]
fn the_architecture_page_names_every_part() {
    let page = fs::read_to_string(source_root().join("docs/architecture.md")).unwrap();
    for (part, _) in IMPORTS {
        assert!(page.contains(&format!("`{part}`")), "src/docs/architecture.md does not name `{part}`");
    }
}

#[test]
fn the_architecture_page_names_every_target_of_the_log() {
    let page = fs::read_to_string(source_root().join("docs/architecture.md")).unwrap();
    for (file, text) in sources().iter().filter(|(file, _)| !is_test_file(file)) {
        for rest in text.split("target: \"").skip(1) {
            let target = rest.split('"').next().unwrap();
            assert!(
                target.starts_with("stoplog::"),
                "src/{file}: the target {target} is not named after a part"
            );
            assert!(
                page.contains(&format!("| `{target}` |")),
                "src/docs/architecture.md does not name `{target}`"
            );
        }
    }
}

#[test]
fn no_stub_is_left() {
    for (file, text) in sources() {
        for stub in ["todo!(", "unimplemented!(", "dbg!("] {
            assert!(!text.contains(stub), "src/{file} contains {stub}");
        }
    }
}
