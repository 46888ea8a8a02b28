//! The rings of one edge.

use std::collections::VecDeque;

use crate::base::progress::Flow;
use crate::element::Control;
use crate::ring::{Budget, Consumer, Mark, Producer, RingConfig, ring};
use crate::sync::wake::Waker;

/// Records that a producer gathers before it publishes them, unless its input runs dry first.
///
/// Large enough that the release of the ring's index and the fence of the wake-up vanish beside the records; larger ones
/// gained nothing in `benches/ring.rs`.
const BATCH_RECORDS: usize = 256;

/// Sizes of the rings of a job.
#[derive(Debug, Clone)]
pub struct ExchangeConfig {
    /// Records that a ring holds, a power of two.
    pub ring_capacity: usize,
    /// Bytes that rings of parked channels may take beyond that, in the whole job.
    pub parking: Budget,
}

/// Which subtasks of an edge are linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// Producer `i` to consumer `i`.
    OneToOne,
    /// Each producer to each consumer.
    AllToAll,
}

/// The producing end of one channel. Takes whatever it is given: what the ring has no room for waits here, in order.
#[derive(Debug)]
pub struct OutputChannel<T> {
    producer: Producer<T>,
    overflow: VecDeque<Entry<T>>,
    consumer: Waker,
    batch: usize,
}

#[derive(Debug)]
enum Entry<T> {
    Record(T),
    Control(Control),
}

impl<T> OutputChannel<T> {
    /// Sends one record.
    #[inline]
    pub fn send(&mut self, record: T) -> Flow {
        if self.overflow.is_empty() {
            match self.producer.push(record) {
                Ok(()) => {
                    if self.producer.unpublished() >= self.batch {
                        self.publish();
                    }
                    return Flow::Continue;
                }
                Err(record) => self.keep(Entry::Record(record)),
            }
        } else {
            self.keep(Entry::Record(record));
        }
        Flow::Blocked
    }

    /// Sends one control entry. It is never refused: it waits behind the records that were sent before it.
    pub fn send_control(&mut self, control: Control) -> Flow {
        if self.overflow.is_empty() && self.push_control(control).is_ok() {
            return Flow::Continue;
        }
        self.keep(Entry::Control(control));
        Flow::Blocked
    }

    fn push_control(&mut self, control: Control) -> Result<(), Control> {
        let (tag, word) = control.to_mark();
        self.producer.push_mark(Mark { tag, word }).map_err(|_| control)
    }

    #[cold]
    fn keep(&mut self, entry: Entry<T>) {
        self.overflow.push_back(entry);
        // The consumer must see what is in the ring, or it would never make room.
        self.publish();
    }

    /// Moves what waits here into the ring.
    #[inline]
    pub fn resume(&mut self) -> Flow {
        if self.overflow.is_empty() { Flow::Continue } else { self.resume_overflow() }
    }

    fn resume_overflow(&mut self) -> Flow {
        let waiting = self.overflow.len();
        while let Some(entry) = self.overflow.pop_front() {
            let refused = match entry {
                Entry::Record(record) => self.producer.push(record).map_err(Entry::Record),
                Entry::Control(control) => self.push_control(control).map_err(Entry::Control),
            };
            if let Err(entry) = refused {
                self.overflow.push_front(entry);
                self.publish();
                // Something moved: the worker must not sleep yet, for a consumer on this same worker will not wake it.
                return if self.overflow.len() < waiting { Flow::Paused } else { Flow::Blocked };
            }
        }
        self.publish();
        Flow::Continue
    }

    /// Makes visible to the consumer what is in the ring.
    #[inline]
    pub fn publish(&mut self) {
        if self.producer.publish() {
            self.consumer.wake();
        }
    }

    /// True while something waits here.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        !self.overflow.is_empty()
    }
}

/// The consuming end of one channel.
#[derive(Debug)]
pub struct InputChannel<T> {
    /// The ring.
    pub consumer: Consumer<T>,
    /// Wakes the producer, which may wait for room.
    pub producer: Waker,
}

/// The producing ends per producer, and the consuming ends per consumer.
pub type EdgeEnds<T> = (Vec<Vec<OutputChannel<T>>>, Vec<Vec<InputChannel<T>>>);

/// Makes the rings of one edge. `producers` and `consumers` wake the subtasks on either side. Channel `c` of a consumer comes
/// from producer `c`; output `o` of a producer goes to consumer `o`.
///
/// # Panics
/// If a one-to-one edge has different numbers of subtasks.
#[must_use]
pub fn link<T>(
    wiring: Wiring,
    producers: &[Waker],
    consumers: &[Waker],
    config: &ExchangeConfig,
) -> EdgeEnds<T> {
    // Many rings are mostly empty ones: they begin smaller, and grow where records come.
    let rings = producers.len() * if wiring == Wiring::AllToAll { consumers.len() } else { 1 };
    let first_segment = if rings > 1024 { 8 } else { 64 };
    let ring_config = RingConfig {
        capacity: config.ring_capacity,
        first_segment: config.ring_capacity.min(first_segment),
        parking: config.parking.clone(),
    };
    let batch = BATCH_RECORDS.min(config.ring_capacity / 2).max(1);
    let mut outputs: Vec<Vec<_>> = producers.iter().map(|_| Vec::new()).collect();
    let mut inputs: Vec<Vec<_>> = consumers.iter().map(|_| Vec::new()).collect();
    let mut connect = |from: usize, to: usize| {
        let (producer, consumer) = ring(&ring_config);
        // Two subtasks of one worker never wait for each other asleep: no fence for them.
        let same_worker = producers[from].is_same(&consumers[to]);
        let waker = |waker: &Waker| if same_worker { Waker::noop() } else { waker.clone() };
        outputs[from].push(OutputChannel {
            producer,
            overflow: VecDeque::new(),
            consumer: waker(&consumers[to]),
            batch,
        });
        inputs[to].push(InputChannel { consumer, producer: waker(&producers[from]) });
    };
    match wiring {
        Wiring::OneToOne => {
            assert_eq!(producers.len(), consumers.len(), "a one-to-one edge has equal parallelism");
            (0..producers.len()).for_each(|index| connect(index, index));
        }
        Wiring::AllToAll => {
            for from in 0..producers.len() {
                (0..consumers.len()).for_each(|to| connect(from, to));
            }
        }
    }
    (outputs, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::CheckpointId;
    use crate::base::rng::Rng;
    use crate::ring::Peek;

    fn channel(capacity: usize) -> (OutputChannel<u64>, InputChannel<u64>) {
        let config = ExchangeConfig { ring_capacity: capacity, parking: Budget::new(0) };
        let (mut outputs, mut inputs) = link(Wiring::OneToOne, &[Waker::noop()], &[Waker::noop()], &config);
        (outputs[0].remove(0), inputs[0].remove(0))
    }

    fn take(input: &mut InputChannel<u64>) -> Option<Result<u64, Control>> {
        match input.consumer.peek(1) {
            Peek::Records(_) => {
                let mut taken = None;
                input.consumer.drain(1, |record| {
                    taken = Some(Ok(record));
                    true
                });
                taken
            }
            Peek::Mark(mark) => {
                input.consumer.pop_mark();
                Some(Err(Control::from_mark(mark.tag, mark.word)))
            }
            Peek::Empty | Peek::Closed => None,
        }
    }

    /// Whatever is sent while the ring is full or half empty: nothing overtakes anything.
    #[test]
    fn entries_stay_in_order_however_full_the_ring_is() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut output, mut input) = channel(2 << rng.below(3));
            let (mut sent, mut received) = (Vec::new(), Vec::new());
            for n in 0..200 {
                match rng.below(5) {
                    0 => {
                        let barrier = Control::Barrier(CheckpointId(n));
                        let _ = output.send_control(barrier);
                        sent.push(Err(barrier));
                    }
                    1 | 2 => {
                        let _ = output.send(n);
                        sent.push(Ok(n));
                    }
                    3 => received.extend(take(&mut input)),
                    _ => {
                        let flow = output.resume();
                        assert_eq!(flow.is_blocked(), output.is_blocked(), "seed {seed}");
                    }
                }
            }
            while output.resume().is_blocked() || received.len() < sent.len() {
                received.extend(take(&mut input));
                output.publish();
            }
            assert_eq!(received, sent, "seed {seed}");
        }
    }
}
