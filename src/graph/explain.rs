//! The plan as text.

use std::fmt::Write as _;

use super::logical::LogicalGraph;
use super::physical::PhysicalPlan;

/// One block per chain: its operators with uid, parallelism and states, and where its records come from.
#[must_use]
pub fn explain(graph: &LogicalGraph, plan: &PhysicalPlan) -> String {
    let mut text = format!("max parallelism {}\n", plan.max_parallelism);
    for vertex in &plan.vertices {
        let _ = writeln!(text, "chain {} (parallelism {})", vertex.id, vertex.parallelism);
        for edge in plan.edges.iter().filter(|edge| edge.to == vertex.id) {
            let (codec, version) = edge.factory.codec();
            let _ =
                writeln!(text, "  <- {} from chain {} ({codec} v{version})", edge.partitioning, edge.from);
        }
        for id in &vertex.operators {
            let operator = graph.operator(*id);
            let made_up = if operator.uid.is_none() { ", made up" } else { "" };
            let _ = write!(text, "  {} (uid {}{made_up})", operator.name, operator.uid_or_default());
            if !operator.states.is_empty() {
                let states: Vec<_> =
                    operator.states.iter().map(|(name, kind)| format!("{name}: {kind}")).collect();
                let _ = write!(text, " states [{}]", states.join(", "));
            }
            text.push('\n');
        }
    }
    text
}
