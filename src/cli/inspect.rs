//! `stoplog inspect PATH`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, FromArgMatches as _};

use super::args::SnapshotOptions;
use super::mistakes;
use crate::savepoint::{
    Inspection, LocalStore, OperatorDescription, RunDescription, SnapshotDescription, inspect,
};

/// Prints the description and answers with the exit status.
pub(super) fn run(matches: &ArgMatches) -> ExitCode {
    let options = match SnapshotOptions::from_arg_matches(matches) {
        Ok(options) => options,
        Err(error) => return mistakes(&[error.to_string()]),
    };
    let inspection = match inspect(Arc::new(LocalStore), &options.path) {
        Ok(inspection) => inspection,
        Err(error) => return mistakes(&[error.to_string()]),
    };
    let text = if options.json {
        serde_json::to_string(&inspection).expect("a description is valid JSON") + "\n"
    } else {
        match &inspection {
            Inspection::Snapshot(snapshot) => snapshot_text(snapshot),
            Inspection::Run(run) => run_text(run),
        }
    };
    // A reader that has seen enough is no mistake.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn run_text(run: &RunDescription) -> String {
    let mut text = format!("{}\n", run.path);
    match &run.record {
        Some(record) => {
            let (name, job, state, lives) = (&record.name, &record.job_id, record.state, record.lives);
            let began = utc(record.started_at_ms);
            let _ = writeln!(text, "run {job} of {name}: {state}, led by {lives} processes, began {began}");
        }
        None => text.push_str("a run without a record\n"),
    }
    if run.checkpoints.is_empty() {
        text.push_str("no completed checkpoint\n");
    }
    for checkpoint in &run.checkpoints {
        text.push('\n');
        text.push_str(&snapshot_text(checkpoint));
    }
    text
}

fn snapshot_text(snapshot: &SnapshotDescription) -> String {
    let SnapshotDescription { path, checkpoint_id, job_id, max_parallelism, bytes, inline_bytes, .. } =
        snapshot;
    let (files, triggered) = (snapshot.files.len(), utc(snapshot.triggered_at_ms));
    let took = snapshot.completed_at_ms.saturating_sub(snapshot.triggered_at_ms);
    let mut text = format!("{path}\n");
    let _ =
        writeln!(text, "checkpoint {checkpoint_id} of run {job_id}, triggered {triggered}, took {took} ms");
    let _ = writeln!(
        text,
        "max parallelism {max_parallelism}, {bytes} bytes of state, {inline_bytes} of them in the metadata, {files} files"
    );
    let mut table = vec![
        ["operator", "subtasks", "state", "kind", "serializer", "keys", "holds", "bytes"].map(str::to_owned),
    ];
    snapshot.operators.iter().for_each(|operator| rows(operator, &mut table));
    text.push_str(&aligned(&table));
    text
}

fn rows(operator: &OperatorDescription, table: &mut Vec<[String; 8]>) {
    let mut subtasks = operator.parallelism.to_string();
    if operator.ended_subtasks > 0 {
        let _ = write!(subtasks, " ({} ended)", operator.ended_subtasks);
    }
    let first = table.len();
    for state in &operator.keyed_states {
        let range = match (state.first_key_group, state.last_key_group) {
            (Some(first), Some(last)) => format!(" ({first}-{last})"),
            _ => String::new(),
        };
        table.push([
            String::new(),
            String::new(),
            state.name.clone(),
            state.kind.clone(),
            format!("{} {}", state.serializer, state.serializer_version),
            state.key_form.clone(),
            format!("{} key groups{range}", state.key_groups),
            state.bytes.to_string(),
        ]);
    }
    for list in &operator.list_states {
        let items = list.items.to_string() + " items";
        let [no_serializer, no_keys] = ["-".to_owned(), "-".to_owned()];
        let bytes = list.bytes.to_string();
        let kind = "list".to_owned();
        table.push([
            String::new(),
            String::new(),
            list.name.clone(),
            kind,
            no_serializer,
            no_keys,
            items,
            bytes,
        ]);
    }
    if table.len() == first {
        table.push(Default::default());
    }
    table[first][0].clone_from(&operator.uid);
    table[first][1] = subtasks;
}

/// The rows with their columns below each other, the last one to the right.
fn aligned(rows: &[[String; 8]]) -> String {
    let mut widths = [0; 8];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let _ =
                if column == 7 { write!(line, "{cell:>width$}") } else { write!(line, "{cell:width$}  ") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The time in words, in the calendar that is used since 1582.
fn utc(ms: u64) -> String {
    let (seconds, mut days) = (ms / 1000 % 86_400, ms / 1000 / 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // 400 years always have the same number of days.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_words() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399_999), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_700_000_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(utc(4_107_542_400_000), "2100-03-01 00:00:00 UTC");
        assert!(utc(u64::MAX).ends_with(" UTC"));
    }

    #[test]
    fn columns_stand_below_each_other() {
        let row = |cells: [&str; 8]| cells.map(str::to_owned);
        let rows =
            [row(["a", "b", "c", "d", "e", "f", "g", "bytes"]), row(["long", "", "", "", "", "", "h", "7"])];
        assert_eq!(aligned(&rows), "a     b  c  d  e  f  g  bytes\nlong                 h      7\n");
    }
}
