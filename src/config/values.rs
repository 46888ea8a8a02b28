//! Reads the values of keys.

use std::path::PathBuf;
use std::time::Duration;

use super::{CheckpointRetention, Cores, SnapshotCompression};

/// Why a value is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// This would have been valid.
    Expected(&'static str),
    /// It names a file system that there is no code for.
    Scheme(String),
    /// It asks for something that the engine does not do, for this reason.
    Refused(&'static str),
}

impl From<&'static str> for Fault {
    fn from(expected: &'static str) -> Self {
        Self::Expected(expected)
    }
}

pub(super) fn number<N: std::str::FromStr>(value: &str) -> Result<N, &'static str> {
    value.parse().map_err(|_| "a whole number")
}

pub(super) fn boolean(value: &str) -> Result<bool, &'static str> {
    value.parse().map_err(|_| "true or false")
}

/// The name of a choice as it is compared: Flink writes `EXACTLY_ONCE`, a command line `exactly-once`.
pub(super) fn choice(value: &str) -> String {
    value.to_ascii_lowercase().replace('_', "-")
}

pub(super) fn retention(value: &str) -> Result<CheckpointRetention, &'static str> {
    match choice(value).as_str() {
        "retain-on-cancellation" => Ok(CheckpointRetention::RetainOnCancellation),
        "delete-on-cancellation" => Ok(CheckpointRetention::DeleteOnCancellation),
        "no-externalized-checkpoints" => Ok(CheckpointRetention::NoExternalizedCheckpoints),
        _ => Err("RETAIN_ON_CANCELLATION, DELETE_ON_CANCELLATION or NO_EXTERNALIZED_CHECKPOINTS"),
    }
}

/// Flink's `true` and `false` are zstd and none.
pub(super) fn compression(value: &str) -> Result<SnapshotCompression, &'static str> {
    match choice(value).as_str() {
        "zstd" | "true" => Ok(SnapshotCompression::Zstd),
        "lz4" => Ok(SnapshotCompression::Lz4),
        "none" | "false" => Ok(SnapshotCompression::None),
        _ => Err("zstd, lz4 or none"),
    }
}

pub(super) fn cores(value: &str) -> Result<Cores, &'static str> {
    const EXPECTED: &str = "a count of at least 1, or a list of cores such as 0,2,3";
    // A comma behind the last core makes a list of one core.
    if value.contains(',') {
        let value = value.strip_suffix(',').unwrap_or(value);
        let cores: Result<_, _> =
            value.split(',').map(|core| core.trim().parse().map_err(|_| EXPECTED)).collect();
        return cores.map(Cores::List);
    }
    match value.parse() {
        Ok(0) | Err(_) => Err(EXPECTED),
        Ok(count) => Ok(Cores::Count(count)),
    }
}

/// Reads where something lies in a file system: a plain path, `file:/path` or `file:///path`, none of them with escapes.
///
/// As in Flink, what stands before a colon in front of the first slash is a scheme; a relative path that has one begins with `./`.
pub(super) fn local_path(value: &str) -> Result<PathBuf, Fault> {
    const EXPECTED: Fault = Fault::Expected("a path or file:///path");
    let scheme = value.split_once(':').filter(|(scheme, _)| is_scheme(scheme));
    let path = match scheme {
        None => value,
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => {
            let path = match rest.strip_prefix("//") {
                // An authority may stand between the second and the third slash; only this machine is one.
                Some(authority_and_path) => {
                    let path = authority_and_path.strip_prefix("localhost").unwrap_or(authority_and_path);
                    path.starts_with('/').then_some(path)
                }
                None => rest.starts_with('/').then_some(rest),
            };
            path.ok_or(EXPECTED)?
        }
        Some((scheme, _)) => return Err(Fault::Scheme(scheme.to_ascii_lowercase())),
    };
    if path.is_empty() || path.contains('\0') { Err(EXPECTED) } else { Ok(PathBuf::from(path)) }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// A number and its unit.
fn split_unit(value: &str) -> Option<(u64, &str)> {
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number = value.get(..end)?.parse().ok()?;
    Some((number, value.get(end..)?.trim()))
}

/// Reads a duration: `250ms`, `10s`, `5min`, `1h`, `2d`; a bare number is milliseconds.
pub(super) fn duration(value: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "a duration such as 250ms, 10s or 5min";
    let (number, unit) = split_unit(value).ok_or(EXPECTED)?;
    let nanos_per_unit: u64 = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" | "milli" | "millis" | "" => 1_000_000,
        "s" | "sec" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000_000,
        "h" | "hour" | "hours" => 3_600_000_000_000,
        "d" | "day" | "days" => 86_400_000_000_000,
        _ => return Err(EXPECTED),
    };
    number.checked_mul(nanos_per_unit).map(Duration::from_nanos).ok_or(EXPECTED)
}

/// Reads a size in bytes: `64kb`, `1gb`; a bare number is bytes, units are powers of 1024 as in Flink.
pub(super) fn size(value: &str) -> Result<usize, &'static str> {
    const EXPECTED: &str = "a size such as 64kb, 16mb or 1gb";
    let (number, unit) = split_unit(value).ok_or(EXPECTED)?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "b" | "bytes" | "" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(EXPECTED),
    };
    number.checked_mul(1 << shift).and_then(|bytes| usize::try_from(bytes).ok()).ok_or(EXPECTED)
}

/// Levenshtein's distance, for suggestions.
pub(super) fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_as_flink_writes_them() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("60000"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("5min"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("10 s"), Ok(Duration::from_secs(10)));
        for wrong in ["", "s", "-1s", "1.5s", "5 parsecs", "99999999999999999999", "9999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(size("64kb"), Ok(65_536));
        assert_eq!(size("1gb"), Ok(1 << 30));
        assert!(size("99999999999tb").is_err());
    }

    #[test]
    fn a_directory_is_a_path_or_a_file_uri_and_every_other_scheme_is_named() {
        for (value, path) in [
            ("/a/b", "/a/b"),
            ("a/b", "a/b"),
            ("./hdfs:x", "./hdfs:x"),
            ("/a:b", "/a:b"),
            ("file:/a/b", "/a/b"),
            ("file:///a/b", "/a/b"),
            ("FILE:///a/b", "/a/b"),
            ("file://localhost/a", "/a"),
            ("file:///a%20b", "/a%20b"),
        ] {
            assert_eq!(local_path(value), Ok(PathBuf::from(path)), "{value}");
        }
        for (value, scheme) in
            [("hdfs:///flink", "hdfs"), ("s3://bucket/x", "s3"), ("OSS://x", "oss"), ("x:y", "x")]
        {
            assert_eq!(local_path(value), Err(Fault::Scheme(scheme.to_owned())), "{value}");
        }
        for wrong in ["", "file:", "file:a", "file://host/a", "file://localhosts/a", "a\0b"] {
            assert!(matches!(local_path(wrong), Err(Fault::Expected(_))), "{wrong:?}");
        }
    }
}
