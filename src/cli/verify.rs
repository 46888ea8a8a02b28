//! `stoplog verify PATH`.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, FromArgMatches as _};

use super::args::SnapshotOptions;
use super::{FAILED, mistakes};
use crate::savepoint::{LocalStore, Verification, verify};

/// Prints what was found and answers with the exit status: 0 if all is whole, 1 if anything is damaged, 2 if there is nothing to verify.
pub(super) fn run(matches: &ArgMatches) -> ExitCode {
    let options = match SnapshotOptions::from_arg_matches(matches) {
        Ok(options) => options,
        Err(error) => return mistakes(&[error.to_string()]),
    };
    let verification = match verify(Arc::new(LocalStore), &options.path) {
        Ok(verification) => verification,
        Err(error) => return mistakes(&[error.to_string()]),
    };
    let text = if options.json {
        serde_json::to_string(&verification).expect("a verification is valid JSON") + "\n"
    } else {
        text(&verification)
    };
    // A reader that has seen enough is no mistake.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    ExitCode::from(if verification.whole { 0 } else { FAILED })
}

fn text(verification: &Verification) -> String {
    let Verification { path, snapshots, files, sections, bytes, damage, .. } = verification;
    let mut text = String::new();
    for fault in damage {
        text.push_str(&format!("{}: {}\n", fault.file, fault.reason));
    }
    let verdict = match damage.len() {
        0 => "whole".to_owned(),
        faults => format!("DAMAGED in {faults} places"),
    };
    text + &format!(
        "{path}: {verdict} ({snapshots} snapshots, {files} files, {sections} sections, {bytes} bytes)\n"
    )
}
