//! From the graph that the builder describes to the plan that is deployed.
//!
//! [`logical`] is what the user wrote; [`validate`] finds all of its mistakes at once; [`chain`] fuses operators and makes
//! [`physical`], whose vertices and edges make subtasks and rings; [`explain`] prints both.

pub mod chain;
pub mod explain;
pub mod logical;
pub mod physical;
pub mod validate;

pub use chain::{EdgeKind, Pipe, Planner, Tail};
pub use logical::{LogicalGraph, LogicalOperator, OperatorKind};
pub use physical::PhysicalPlan;
pub use validate::PlanError;
