//! Jobs built and run through the public API, on real threads.

use std::collections::HashMap;
use std::time::Duration;

use stoplog::prelude::*;

fn config(parallelism: u32) -> JobConfig {
    JobConfig { parallelism, idle_strategy: IdleStrategy::BackOff, ..JobConfig::default() }
}

fn words() -> Vec<String> {
    let text = "to be or not to be that is the question whether tis nobler in the mind to suffer";
    text.split(' ').cycle().take(10_000).map(str::to_owned).collect()
}

fn expected_counts() -> HashMap<String, u64> {
    let mut counts = HashMap::new();
    words().into_iter().for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}

/// Every count from 1 to n exactly once per word.
fn assert_updates(updates: Vec<(String, u64)>) {
    let mut by_word: HashMap<String, Vec<u64>> = HashMap::new();
    updates.into_iter().for_each(|(word, n)| by_word.entry(word).or_default().push(n));
    let expected = expected_counts();
    assert_eq!(by_word.len(), expected.len());
    for (word, mut counts) in by_word {
        counts.sort_unstable();
        assert_eq!(counts, (1..=expected[&word]).collect::<Vec<_>>(), "{word}");
    }
}

#[test]
fn word_count_is_right_at_every_parallelism() {
    for parallelism in [1, 2, 3, 7, 33] {
        let env = StreamEnvironment::new(config(parallelism));
        let counts = CollectSink::new();
        env.source("words", VecSource::new(words()))
            .key_by_parts(|word| (word, 1u64))
            .reduce(|sum, one| *sum += one)
            .sink("counts", counts.clone());
        let result = env.execute().unwrap();
        assert_eq!((result.records_in, result.records_out), (10_000, 10_000));
        assert_updates(counts.take());
    }
}

#[test]
fn word_count_is_right_while_checkpoints_are_taken() {
    for parallelism in [1, 2, 5] {
        let mut config = config(parallelism);
        config.checkpoints.interval = Some(Duration::from_millis(1));
        let env = StreamEnvironment::new(config);
        let counts = CollectSink::new();
        env.source("words", VecSource::new(words()))
            .key_by_parts(|word| (word, 1u64))
            .reduce(|sum, one| *sum += one)
            .sink("counts", counts.clone());
        let result = env.execute().unwrap();
        assert!(result.checkpoints.completed >= 1, "at least the final checkpoint");
        assert_updates(counts.take());
    }
}

#[test]
fn a_final_reduce_hands_on_each_key_once() {
    let env = StreamEnvironment::new(config(2));
    let counts = CollectSink::new();
    env.source("words", VecSource::new(words()))
        .key_by(|word| word.clone())
        .process_with(ValueStateDescriptor::<u64>::new("n"), |_, mut n, cx| {
            n.modify(|| 0, |n| *n += 1);
            Some((cx.key().clone(), 1u64))
        })
        .key_by_parts(|pair| pair)
        .reduce_final(|sum, one| *sum += one)
        .sink("counts", counts.clone());
    env.execute().unwrap();
    let counts: HashMap<_, _> = counts.take().into_iter().collect();
    assert_eq!(counts, expected_counts());
}
