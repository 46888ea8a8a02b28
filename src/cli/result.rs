//! What is printed about a job that is over.

use serde::Serialize;

use crate::job::{JobResult, JobState};
use crate::metrics::Durations;

/// The result of a run in the form that scripts read. Fields are added, never renamed.
#[derive(Debug, Serialize)]
pub(super) struct RunResult<'a> {
    job: &'a str,
    job_id: String,
    state: &'static str,
    parallelism: u32,
    backend: &'static str,
    records_in: u64,
    records_out: u64,
    seconds: f64,
    records_per_second: f64,
    restore_ms: f64,
    checksum: Option<u64>,
    restarts: u32,
    alerts: u64,
    late_records: u64,
    restored_from: Option<String>,
    checkpoints: Checkpoints,
    alignment_stall_us: Option<Percentiles<u64>>,
    sync_pause_us: Option<Percentiles<u64>>,
    checkpoint_duration_ms: Option<Percentiles<f64>>,
    latency_us: Option<Percentiles<u64>>,
    peak_rss_bytes: Option<u64>,
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Checkpoints {
    triggered: u64,
    completed: u64,
    failed: u64,
    subsumed: u64,
    last: Option<LastCheckpoint>,
}

#[derive(Debug, Serialize)]
struct LastCheckpoint {
    id: u64,
    path: String,
    duration_ms: f64,
    sync_us_max: u64,
    async_ms_max: f64,
    alignment_us_max: u64,
    bytes: u64,
    /// No checkpoint is incremental.
    incremental_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Percentiles<N> {
    count: u64,
    p50: N,
    p90: N,
    p99: N,
    p999: N,
    p9999: N,
    max: N,
}

impl<N> Percentiles<N> {
    /// `None` if nothing was measured.
    fn of(durations: &Durations, convert: fn(u64) -> N) -> Option<Self> {
        let at = |quantile| convert(durations.value_at_quantile(quantile));
        (!durations.is_empty()).then(|| Self {
            count: durations.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: convert(durations.max()),
        })
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn millis(duration: std::time::Duration) -> f64 {
    micros(duration) as f64 / 1000.0
}

fn per_second(result: &JobResult) -> f64 {
    let seconds = result.duration.as_secs_f64();
    if seconds > 0.0 { result.records_in as f64 / seconds } else { 0.0 }
}

impl<'a> RunResult<'a> {
    pub(super) fn new(result: &'a JobResult, parallelism: u32, alerts: u64) -> Self {
        let counts = &result.checkpoints;
        let last = result.last_checkpoint.as_ref().map(|last| LastCheckpoint {
            id: last.id.0,
            path: result.last_checkpoint_path.clone().unwrap_or_default(),
            duration_ms: millis(last.duration),
            sync_us_max: micros(last.sync_max),
            async_ms_max: millis(last.async_max),
            alignment_us_max: micros(last.alignment_max),
            bytes: last.bytes,
            incremental_bytes: None,
        });
        Self {
            job: &result.name,
            job_id: result.job_id.to_string(),
            state: result.state.name(),
            parallelism,
            backend: "heap",
            records_in: result.records_in,
            records_out: result.records_out,
            seconds: result.duration.as_secs_f64(),
            records_per_second: per_second(result),
            restore_ms: millis(result.restore),
            checksum: result.accumulators.get("checksum").copied(),
            restarts: result.restarts,
            alerts,
            // No operator drops records for being late.
            late_records: 0,
            restored_from: result.restored_from.clone(),
            checkpoints: Checkpoints {
                triggered: counts.triggered,
                completed: counts.completed,
                failed: counts.failed,
                subsumed: counts.subsumed,
                last,
            },
            alignment_stall_us: Percentiles::of(&result.alignment_us, |us| us),
            sync_pause_us: Percentiles::of(&result.sync_pause_us, |us| us),
            checkpoint_duration_ms: Percentiles::of(&result.checkpoint_duration_us, |us| us as f64 / 1000.0),
            latency_us: None,
            peak_rss_bytes: peak_rss_bytes(),
            error: result.error.as_ref().map(ToString::to_string),
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("the result has only text keys and finite numbers")
    }
}

/// The most memory that the process ever held, as the system counts it; `None` where it does not say.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// The result for people.
pub(super) fn summary(result: &JobResult, alerts: u64) -> String {
    let mut text = format!(
        "{} {} ({}): {} records in, {} out, {:.3} s, {:.0} records/s",
        result.name,
        result.state,
        result.job_id,
        result.records_in,
        result.records_out,
        result.duration.as_secs_f64(),
        per_second(result)
    );
    if let Some(checksum) = result.accumulators.get("checksum").filter(|_| result.state == JobState::Finished)
    {
        text += &format!("\nchecksum {checksum}");
    }
    let counts = &result.checkpoints;
    if counts.triggered > 0 {
        text += &format!(
            "\ncheckpoints: {} completed, {} failed, {} subsumed of {}",
            counts.completed, counts.failed, counts.subsumed, counts.triggered
        );
    }
    if result.restarts > 0 {
        text += &format!("\nrestarts: {}", result.restarts);
        if let Some(path) = &result.restored_from {
            text += &format!(", the last one from {path}");
        }
    }
    if alerts > 0 {
        text += &format!("\nalerts: {alerts}");
    }
    text
}
