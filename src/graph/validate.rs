//! All mistakes of a graph at once.

use std::collections::HashMap;
use std::fmt;

use super::logical::{LogicalGraph, OperatorKind};
use crate::base::error::{Error, ErrorKind, Recovery};
use crate::base::key_group::MAX_PARALLELISM_LIMIT;
use crate::config::JobConfig;

/// Rings of one exchange at most: each takes a few hundred bytes even while it is empty.
const RINGS_MAX: u64 = 1 << 20;

/// The graph or its settings are not valid; holds every mistake, not only the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// One sentence each.
    pub mistakes: Vec<String>,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mistakes.as_slice() {
            [one] => f.write_str(one),
            many => {
                write!(f, "{} mistakes in the job:", many.len())?;
                many.iter().try_for_each(|mistake| write!(f, "\n  - {mistake}"))
            }
        }
    }
}

impl std::error::Error for PlanError {}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Self {
        Self::new(ErrorKind::Plan, Recovery::RejectJob, error.to_string())
    }
}

/// Checks a graph against its settings.
///
/// # Errors
/// Lists every mistake found.
pub fn validate(graph: &LogicalGraph, config: &JobConfig) -> Result<(), PlanError> {
    let mut mistakes = config.faults();
    mistakes.extend(graph.mistakes.iter().cloned());
    // If none is given, that of the snapshot from which the job goes on is not known yet.
    let goes_on = config.recovery.resumes || config.recovery.path.is_some();
    let max_parallelism = if config.max_parallelism.is_none() && goes_on {
        MAX_PARALLELISM_LIMIT
    } else {
        config.max_parallelism()
    };
    if config.parallelism > max_parallelism && max_parallelism > 0 {
        mistakes.push(format!(
            "parallelism.default is {}, more than pipeline.max-parallelism, which is {}",
            config.parallelism, max_parallelism
        ));
    }
    if !graph.operators.iter().any(|operator| operator.kind == OperatorKind::Source) {
        mistakes.push("the job has no source".to_owned());
    }
    let mut by_uid: HashMap<_, Vec<&str>> = HashMap::new();
    for operator in &graph.operators {
        let name = &operator.name;
        by_uid.entry(operator.uid_or_default()).or_default().push(name);
        let parallelism = graph.parallelism(operator.id, config.parallelism);
        // A wrong default is one mistake in the settings, reported above, and not one in each operator.
        let is_default = operator.parallelism.is_none() && parallelism == config.parallelism;
        if parallelism == 0 && !is_default {
            mistakes.push(format!("operator {name:?} has parallelism 0; it must be at least 1"));
        } else if parallelism > max_parallelism && !is_default {
            mistakes.push(format!(
                "operator {name:?} has parallelism {parallelism}, more than pipeline.max-parallelism, which is {max_parallelism}"
            ));
        }
        if operator.kind != OperatorKind::Sink && !graph.edges.iter().any(|edge| edge.from == operator.id) {
            mistakes
                .push(format!("operator {name:?} leads to no sink; add one, `discard` if nothing is wanted"));
        }
        let mut names: Vec<_> = operator.states.iter().map(|(name, _)| name).collect();
        names.sort();
        for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
            mistakes.push(format!("operator {name:?} declares the state {:?} twice", pair[0]));
        }
        if operator.uid.as_ref().is_some_and(|uid| uid.as_str().is_empty()) {
            mistakes.push(format!("operator {name:?} has an empty uid"));
        }
        if operator.states.iter().any(|(state, _)| state.is_empty()) {
            mistakes.push(format!("operator {name:?} declares a state without a name"));
        }
    }
    for edge in &graph.edges {
        let of = |operator| graph.parallelism(operator, config.parallelism);
        let (from, to) = (of(edge.from), of(edge.to));
        let one_to_one = edge.partitioning.is_one_to_one(from, to);
        let rings = if one_to_one { u64::from(from) } else { u64::from(from) * u64::from(to) };
        if rings > RINGS_MAX {
            mistakes.push(format!(
                "from {:?} to {:?} there would be {rings} rings ({from} to {to} subtasks); more than {RINGS_MAX} are not supported, \
                 choose a lower parallelism",
                graph.operator(edge.from).name,
                graph.operator(edge.to).name
            ));
        }
    }
    let mut duplicates: Vec<_> = by_uid.into_iter().filter(|(_, names)| names.len() > 1).collect();
    duplicates.sort();
    for (uid, names) in duplicates {
        mistakes.push(format!(
            "the uid {uid:?} is used by {} operators ({}); a uid names one operator",
            names.len(),
            names.join(", ")
        ));
    }
    if mistakes.is_empty() { Ok(()) } else { Err(PlanError { mistakes }) }
}

/// Things that are allowed and probably not meant.
#[must_use]
pub fn warnings(graph: &LogicalGraph, checkpointing: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    for operator in graph.operators.iter().filter(|_| checkpointing) {
        let has_state = !operator.states.is_empty() || operator.kind == OperatorKind::Source;
        if has_state && operator.uid.is_none() {
            warnings.push(format!(
                "operator {:?} has state but no uid: its state cannot be found again once the job changes",
                operator.name
            ));
        }
        if !operator.replayable {
            warnings.push(format!(
                "{:?} cannot be read again: records on their way are lost when the job fails",
                operator.name
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::OperatorUid;
    use crate::graph::logical::Partitioning;

    #[test]
    fn every_mistake_is_reported_in_one_go() {
        let mut graph = LogicalGraph::default();
        let a = graph.add(OperatorKind::Transformation, "a");
        let b = graph.add(OperatorKind::Transformation, "b");
        graph.connect(a, b, Partitioning::Forward);
        for id in [a, b] {
            graph.operator_mut(id).uid = Some(OperatorUid::new("same"));
        }
        graph.operator_mut(a).parallelism = Some(0);
        graph.operator_mut(b).parallelism = Some(500);
        graph.operator_mut(b).states = vec![("s".into(), "value".into()), ("s".into(), "value".into())];
        let config = JobConfig { ring_capacity: 3, ..JobConfig::default() };
        let text = validate(&graph, &config).unwrap_err().to_string();
        for expected in [
            "ring.capacity is 3",
            "no source",
            "parallelism 0",
            "parallelism 500",
            "no sink",
            "twice",
            "uid \"same\"",
        ] {
            assert!(text.contains(expected), "{expected:?} is missing in {text}");
        }
    }
}
