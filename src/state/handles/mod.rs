//! What a user's function holds: the state of the current key, and of no other.

mod reducing;
mod value;

pub use reducing::ReducingState;
pub use value::ValueState;
