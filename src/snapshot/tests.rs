mod damage;
mod disk;
mod faults;
pub(crate) mod fixture;
mod formats;
mod job_storage;
mod local;
mod memory;
mod sections;
