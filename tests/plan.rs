//! What the planner makes of a declared job: chains, exchanges, and every mistake at once.

use stoplog::prelude::*;

fn env(parallelism: u32) -> StreamEnvironment {
    StreamEnvironment::new(JobConfig { parallelism, ..JobConfig::default() })
}

fn numbers() -> VecSource<u64> {
    VecSource::new((0..10).collect())
}

#[test]
fn operators_of_equal_parallelism_are_one_chain() {
    let env = env(2);
    env.source("numbers", numbers())
        .uid("numbers")
        .map(|n| n + 1)
        .filter(|n| n % 2 == 0)
        .flat_map(|n| [n, n])
        .key_by_parts(|n| (n % 3, n))
        .reduce(|sum, n| *sum += n)
        .uid("sums")
        .map(|(_, sum)| sum)
        .sink("out", DiscardSink);
    let plan = env.plan().unwrap().explain();
    assert_eq!(
        plan,
        "max parallelism 128\n\
         chain 0 (parallelism 2)\n  \
           Source: numbers (uid numbers)\n  \
           Map (uid map-1, made up)\n  \
           Filter (uid filter-2, made up)\n  \
           FlatMap (uid flatmap-3, made up)\n\
         chain 1 (parallelism 2)\n  \
           <- HASH from chain 0 (postcard v1)\n  \
           Reduce (uid sums) states [reduced: reducing]\n  \
           Map (uid map-5, made up)\n  \
           Sink: out (uid sinkout-6, made up)\n"
    );
}

#[test]
fn another_parallelism_ends_a_chain_and_the_same_one_does_not() {
    let chains = |parallelism: u32| {
        let env = env(2);
        env.source("numbers", numbers()).map(|n| n).parallelism(parallelism).sink("out", DiscardSink);
        let plan = env.plan().unwrap();
        let wiring = plan.physical.edges.iter().map(|edge| edge.partitioning).collect::<Vec<_>>();
        (plan.physical.vertices.len(), wiring)
    };
    assert_eq!(chains(2), (1, vec![]));
    assert_eq!(chains(3), (2, vec!["REBALANCE"]));
}

#[test]
fn a_new_chain_of_equal_parallelism_is_linked_one_to_one() {
    let env = env(2);
    env.source("numbers", numbers()).map(|n| n).start_new_chain().sink("out", DiscardSink);
    let plan = env.plan().unwrap().explain();
    assert!(plan.contains("<- FORWARD from chain 0"), "{plan}");
}

#[test]
fn a_union_is_no_operator_and_its_inputs_keep_their_parallelism() {
    let env = env(2);
    let left = env.source("left", numbers()).parallelism(1);
    let right = env.source("right", numbers()).parallelism(3);
    let out = CollectSink::new();
    left.union(right).key_by_parts(|n| (n, 1u64)).reduce(|sum, one| *sum += one).sink("out", out.clone());
    let plan = env.plan().unwrap();
    assert_eq!(plan.physical.vertices.len(), 3);
    assert_eq!(plan.physical.edges.iter().filter(|edge| edge.partitioning == "HASH").count(), 2);
    let result = plan.start().unwrap().wait();
    assert_eq!(result.state, JobState::Finished);
    let mut sums = out.take();
    sums.sort_unstable();
    let expected: Vec<_> = (0..10).flat_map(|n| [(n, 1), (n, 2)]).collect();
    assert_eq!(sums, expected);
}

#[test]
fn each_use_of_a_shared_stream_gets_every_record() {
    let env = env(3);
    let shared = env.source("numbers", numbers()).map(|n| n * 10).share();
    let (plain, odd) = (CollectSink::new(), CollectSink::new());
    shared.stream().sink("plain", plain.clone());
    shared.stream().map(|n| n + 1).parallelism(2).rebalance().sink("odd", odd.clone()).parallelism(1);
    env.execute().unwrap();
    let sorted = |mut records: Vec<u64>| {
        records.sort_unstable();
        records
    };
    assert_eq!(sorted(plain.take()), (0..10).map(|n| n * 10).collect::<Vec<_>>());
    assert_eq!(sorted(odd.take()), (0..10).map(|n| n * 10 + 1).collect::<Vec<_>>());
}

#[test]
fn every_mistake_in_a_job_is_reported_at_once() {
    let config = JobConfig { max_parallelism: Some(4), ring_capacity: 100, ..JobConfig::default() };
    let env = StreamEnvironment::new(config);
    let stream = env.source("numbers", numbers()).uid("same").map(|n| n).uid("same");
    stream.key_by_parts(|n| (n, n)).reduce(|sum, n| *sum += n).parallelism(5).sink("out", DiscardSink);
    let _ = env.source("lost", numbers());
    let error = env.plan().unwrap_err();
    let text = error.to_string();
    assert!(error.mistakes.len() >= 4, "{text}");
    for part in ["ring.capacity is 100", "uid \"same\"", "parallelism 5", "\"Source: lost\" leads to no sink"]
    {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
}

#[test]
fn what_follows_a_rebalance_has_the_parallelism_of_the_job() {
    let env = env(4);
    env.source("numbers", numbers()).parallelism(1).rebalance().map(|n| n).sink("out", DiscardSink);
    let plan = env.plan().unwrap();
    let parallelism: Vec<_> = plan.physical.vertices.iter().map(|vertex| vertex.parallelism).collect();
    assert_eq!((parallelism, plan.physical.edges[0].partitioning), (vec![1, 4], "REBALANCE"));
}

#[test]
fn streams_of_two_environments_do_not_make_one_job() {
    let (one, other) = (env(1), env(1));
    let left = one.source("left", numbers());
    left.union(other.source("right", numbers())).sink("out", DiscardSink);
    let error = one.plan().unwrap_err().to_string();
    assert!(error.contains("two environments"), "{error}");
}

#[test]
#[should_panic(expected = "the job was planned already")]
fn nothing_is_added_to_a_job_that_was_planned() {
    let env = env(1);
    let sink = env.source("numbers", numbers()).sink("out", DiscardSink);
    let _plan = env.plan().unwrap();
    sink.uid("late");
}

#[test]
fn a_job_is_planned_once() {
    let env = env(1);
    env.source("numbers", numbers()).sink("out", DiscardSink);
    let again = env.clone();
    assert!(env.plan().is_ok());
    assert!(again.plan().unwrap_err().to_string().contains("planned already"));
}

/// Rings go by the subtasks that are linked: a one-to-one edge has few however many subtasks there are.
#[test]
fn only_an_exchange_with_too_many_rings_is_refused() {
    let wide = || {
        StreamEnvironment::new(JobConfig {
            parallelism: 2000,
            max_parallelism: Some(4000),
            ..JobConfig::default()
        })
    };
    let env = wide();
    env.source("numbers", numbers()).map(|n| n).start_new_chain().sink("out", DiscardSink);
    assert!(env.plan().is_ok());
    let env = wide();
    env.source("numbers", numbers())
        .key_by_parts(|n| (n, n))
        .reduce(|sum, n| *sum += n)
        .sink("out", DiscardSink);
    let error = env.plan().unwrap_err().to_string();
    assert!(error.contains("4000000 rings (2000 to 2000 subtasks)"), "{error}");
}
