//! Documents that are read together with the API.

#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("formats.md")]
pub mod formats {}

#[doc = include_str!("changelog.md")]
pub mod changelog {}

#[doc = include_str!("configuration.md")]
pub mod configuration {}
