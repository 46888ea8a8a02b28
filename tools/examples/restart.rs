//! What happens to the counts when a function panics in the middle of the job? Nothing: it goes back to the newest checkpoint,
//! state and source positions together, and every number comes out once.
//!
//! `cargo run --release --example restart`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stoplog::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = JobConfig { name: "restart".into(), ..JobConfig::default() };
    config.checkpoints.interval = Some(Duration::from_millis(5));
    config.restart = Some(RestartConfig::FixedDelay { attempts: 10, delay: Duration::from_millis(1) });

    let env = StreamEnvironment::new(config);
    let panics_left = Arc::new(AtomicU32::new(3));
    let counts = CollectSink::new();
    env.source("numbers", GeneratorSource::new(200_000, |n| n).rate(500_000.0))
        .uid("numbers")
        .map(move |n| {
            let unlucky = n % 50_000 == 49_999;
            let once_more = |left: u32| left.checked_sub(1);
            if unlucky && panics_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, once_more).is_ok() {
                panic!("number {n} brings bad luck");
            }
            n
        })
        .key_by_parts(|n| (n % 10, 1u64))
        .reduce(|sum, one| *sum += one)
        .uid("counter")
        .sink("counts", counts.clone());
    let result = env.execute()?;

    let mut counts = counts.take();
    counts.sort_unstable();
    let expected: Vec<_> = (0..10).flat_map(|key| (1..=20_000).map(move |count| (key, count))).collect();
    assert!(counts == expected, "every count of every key comes out exactly once");
    println!("{} restarts, {} checkpoints, every count once", result.restarts, result.checkpoints.completed);
    Ok(())
}
