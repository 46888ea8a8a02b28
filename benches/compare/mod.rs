//! Hand-written rivals: what a good programmer writes when no engine is in the way.

use std::sync::Arc;
use std::thread;

use hashbrown::HashMap;
use stoplog::base::rng::splitmix64;

/// Records that one message carries.
const BATCH: usize = 2048;

/// W1 on two pinned threads: each makes half of the records, counts its own keys at once and hands the other's over in
/// batches through a ring. No state that could be snapshot, no barrier.
pub(crate) fn keyed_count(records: u64, keys: u64) -> u64 {
    let (to_second, from_first) = rtrb::RingBuffer::<Vec<u64>>::new(64);
    let (to_first, from_second) = rtrb::RingBuffer::<Vec<u64>>::new(64);
    let start = Arc::new(std::sync::Barrier::new(2));
    let half = |worker: u64, out: rtrb::Producer<Vec<u64>>, input: rtrb::Consumer<Vec<u64>>| {
        let start = Arc::clone(&start);
        thread::spawn(move || {
            core_affinity::set_for_current(core_affinity::CoreId { id: worker as usize });
            start.wait();
            count_half(worker, records, keys, out, input)
        })
    };
    let first = half(0, to_second, from_second);
    let second = half(1, to_first, from_first);
    first.join().unwrap().wrapping_add(second.join().unwrap())
}

fn count_half(
    worker: u64,
    records: u64,
    keys: u64,
    mut out: rtrb::Producer<Vec<u64>>,
    mut input: rtrb::Consumer<Vec<u64>>,
) -> u64 {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut batch = Vec::with_capacity(BATCH);
    let mut n = worker;
    while n < records {
        for _ in 0..BATCH {
            if n >= records {
                break;
            }
            let key = splitmix64(n) % keys;
            n += 2;
            if key.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 63 == worker {
                *counts.entry(key).or_insert(0) += 1;
            } else {
                batch.push(key);
            }
            if batch.len() == BATCH {
                send(
                    &mut out,
                    &mut input,
                    &mut counts,
                    std::mem::replace(&mut batch, Vec::with_capacity(BATCH)),
                );
            }
        }
        receive(&mut input, &mut counts);
    }
    send(&mut out, &mut input, &mut counts, batch);
    drop(out);
    while !input.is_abandoned() || !input.is_empty() {
        receive(&mut input, &mut counts);
        std::hint::spin_loop();
    }
    counts.iter().fold(0, |sum, (key, count)| sum.wrapping_add(splitmix64(key ^ splitmix64(*count))))
}

fn send(
    out: &mut rtrb::Producer<Vec<u64>>,
    input: &mut rtrb::Consumer<Vec<u64>>,
    counts: &mut HashMap<u64, u64>,
    mut batch: Vec<u64>,
) {
    while let Err(rtrb::PushError::Full(back)) = out.push(batch) {
        batch = back;
        receive(input, counts);
    }
}

fn receive(input: &mut rtrb::Consumer<Vec<u64>>, counts: &mut HashMap<u64, u64>) {
    while let Ok(batch) = input.pop() {
        batch.into_iter().for_each(|key| *counts.entry(key).or_insert(0) += 1);
    }
}
