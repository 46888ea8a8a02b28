//! From the physical plan to subtasks, rings and mailboxes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::mailbox::Mailboxes;
use super::restore::divide;
use super::subtask::{Subtask, SubtaskEnvironment, SubtaskParts};
use crate::base::error::Error;
use crate::base::id::{OperatorUid, SubtaskId, SubtaskIndex, VertexId};
use crate::base::key_group::KeyGroups;
use crate::config::JobConfig;
use crate::exchange::ExchangeConfig;
use crate::graph::PhysicalPlan;
use crate::metrics::SubtaskCounters;
use crate::operator::context::Ports;
use crate::operator::failure::caught;
use crate::ring::Budget;
use crate::snapshot::{CompletedCheckpoint, StateFiles};
use crate::sync::wake::Waker;

/// All subtasks of one attempt, on the workers that will step them.
#[derive(Debug)]
pub struct Deployment {
    /// The subtasks of each worker, in the order of `wakers`.
    pub workers: Vec<Vec<Subtask>>,
    /// Commands go here.
    pub mailboxes: Mailboxes,
    /// Every subtask, and whether it is a source.
    pub subtasks: Vec<(SubtaskId, bool)>,
    /// Numbers of the subtasks, in the order of `subtasks`.
    pub counters: Vec<Arc<SubtaskCounters>>,
}

/// Makes the subtasks of a plan. `wakers` stand for the workers; `uids` are the operators of each vertex.
///
/// # Errors
/// If a source cannot divide its input, or a user's function panics when it is cloned.
pub fn deploy(
    plan: &mut PhysicalPlan,
    uids: &[Vec<OperatorUid>],
    wakers: &[Waker],
    config: &JobConfig,
    restored: Option<(&CompletedCheckpoint, &Arc<dyn StateFiles>)>,
    env: &SubtaskEnvironment,
) -> Result<Deployment, Error> {
    let exchange = ExchangeConfig {
        ring_capacity: config.ring_capacity,
        parking: Budget::new(config.parking_max_bytes),
    };
    let placement = place(plan, wakers.len());
    let mut ports: Vec<Vec<Ports>> = plan
        .vertices
        .iter()
        .map(|vertex| (0..vertex.parallelism).map(|_| Ports::default()).collect())
        .collect();
    let wakers_of = |vertex: VertexId| -> Vec<Waker> {
        placement[vertex.index()].iter().map(|worker| wakers[*worker].clone()).collect()
    };
    for edge in &plan.edges {
        let (outputs, inputs) =
            edge.factory.link(edge.wiring, &wakers_of(edge.from), &wakers_of(edge.to), &exchange);
        for (ports, ends) in ports[edge.from.index()].iter_mut().zip(outputs) {
            ports.put_outputs(edge.id, ends);
        }
        for (ports, ends) in ports[edge.to.index()].iter_mut().zip(inputs) {
            ports.put_inputs(edge.id, ends);
        }
    }
    let mut deployment = Deployment {
        workers: wakers.iter().map(|_| Vec::new()).collect(),
        mailboxes: Mailboxes::default(),
        subtasks: Vec::new(),
        counters: Vec::new(),
    };
    for (vertex, ports) in plan.vertices.iter_mut().zip(ports) {
        let key_groups = KeyGroups::new(plan.max_parallelism, vertex.parallelism);
        // Clones the user's functions and divides the sources' input: what panics in there fails the execution.
        let chain = chain_name(&uids[vertex.id.index()]);
        let (factory, parallelism) = (&mut vertex.factory, vertex.parallelism);
        let heads = catch_unwind(AssertUnwindSafe(|| factory.heads(parallelism, restored.is_none())))
            .unwrap_or_else(|payload| Err(caught(payload)))
            .map_err(|error| error.in_operator(&chain))?;
        let mut parts = restored
            .map(|(checkpoint, files)| {
                divide(checkpoint, files, &uids[vertex.id.index()], vertex.parallelism)
            })
            .transpose()?
            .unwrap_or_default()
            .into_iter();
        for (index, (head, ports)) in heads.into_iter().zip(ports).enumerate() {
            let id = SubtaskId {
                vertex: vertex.id,
                index: SubtaskIndex(u32::try_from(index).expect("parallelism fits 32 bits")),
            };
            let worker = placement[vertex.id.index()][index];
            let waker = wakers[worker].clone();
            let counters = Arc::<SubtaskCounters>::default();
            let parts = SubtaskParts {
                id,
                chain: chain.clone(),
                head,
                is_source: vertex.is_source,
                key_groups,
                ports,
                mailbox: deployment.mailboxes.add(id, waker.clone()),
                waker,
                restored: parts.next(),
                counters: Arc::clone(&counters),
            };
            deployment.workers[worker].push(Subtask::new(parts, env.clone()));
            deployment.subtasks.push((id, vertex.is_source));
            deployment.counters.push(counters);
        }
    }
    Ok(deployment)
}

/// The worker of each subtask, by vertex.
///
/// Subtasks with the same index share a worker where there are enough of them to fill all, so that a forward edge stays on one
/// core; chains with fewer subtasks than workers are spread.
fn place(plan: &PhysicalPlan, workers: usize) -> Vec<Vec<usize>> {
    let mut offset = 0;
    plan.vertices
        .iter()
        .map(|vertex| {
            let parallelism = vertex.parallelism as usize;
            let first = if parallelism < workers { offset } else { 0 };
            offset += parallelism;
            (0..parallelism).map(|index| (first + index) % workers).collect()
        })
        .collect()
}

/// All operators of a chain, for the log and for an error that belongs to one of them and does not say to which.
fn chain_name(uids: &[OperatorUid]) -> OperatorUid {
    OperatorUid::new(uids.iter().map(OperatorUid::as_str).collect::<Vec<_>>().join(" -> "))
}
