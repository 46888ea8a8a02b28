//! The ring against a `VecDeque`, and two threads against each other.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::slots::lane_bytes;
use super::*;
use crate::base::rng::Rng;
use crate::sync::thread;
use crate::sync::wake::Parker;

thread_local! {
    /// Records made and not dropped on this thread.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

fn live() -> isize {
    LIVE.get()
}

/// What a record carries; `from_id` may forget some of the id.
trait Payload: Copy + Eq + Debug {
    fn from_id(id: u64) -> Self;
}

impl Payload for () {
    fn from_id(_: u64) -> Self {}
}

impl Payload for u8 {
    fn from_id(id: u64) -> Self {
        id as u8
    }
}

impl Payload for u64 {
    fn from_id(id: u64) -> Self {
        id
    }
}

/// Twelve bytes with an alignment of four: words of marks come to stand askew.
impl Payload for [u32; 3] {
    fn from_id(id: u64) -> Self {
        [id as u32, !id as u32, 7]
    }
}

impl Payload for [u64; 8] {
    fn from_id(id: u64) -> Self {
        [id; 8]
    }
}

/// A record that counts its drops.
#[derive(Debug, PartialEq, Eq)]
struct Counted<P>(P);

impl<P: Payload> Counted<P> {
    fn new(id: u64) -> Self {
        LIVE.set(live() + 1);
        Self(P::from_id(id))
    }
}

impl<P> Drop for Counted<P> {
    fn drop(&mut self) {
        LIVE.set(live() - 1);
    }
}

fn mark(id: u64) -> Mark {
    Mark { tag: NonZeroU8::new((id % 255) as u8 + 1).unwrap(), word: !id }
}

fn config(capacity: usize, first_segment: usize, parking: &Budget) -> RingConfig {
    RingConfig { capacity, first_segment, parking: parking.clone() }
}

fn plain(capacity: usize) -> RingConfig {
    config(capacity, capacity, &Budget::new(0))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry<P> {
    Record(P),
    Mark(Mark),
}

/// What the ring is supposed to do.
struct Model<P> {
    entries: VecDeque<Entry<P>>,
    visible: usize,
    capacity: usize,
    first_segment: usize,
    /// Slots of the last segment and how many entries were pushed into it; none before the first.
    last: Option<(usize, usize)>,
    parked: bool,
}

impl<P: Payload> Model<P> {
    /// Entries that the last segment still holds.
    fn in_last(&self) -> usize {
        self.last.map_or(0, |(_, pushed)| pushed.min(self.entries.len()))
    }

    /// Slots of the segment that takes the next entry, and whether it is a new one; none if the ring is to refuse. What it
    /// would be charged is added to the bytes used.
    fn room(&self, used_bytes: &mut usize, limit_bytes: usize) -> Option<(usize, bool)> {
        let Some((slots, _)) = self.last else { return Some((self.first_segment, true)) };
        if self.in_last() < slots {
            return Some((slots, false));
        }
        let bytes = lane_bytes::<Counted<P>>(self.capacity);
        if slots < self.capacity {
            return Some(((slots * 4).min(self.capacity), true));
        }
        if !self.parked || *used_bytes + bytes > limit_bytes {
            return None;
        }
        *used_bytes += bytes;
        Some((self.capacity, true))
    }

    fn push(&mut self, entry: Entry<P>, (slots, is_new): (usize, bool)) {
        let pushed = self.last.filter(|_| !is_new).map_or(0, |(_, pushed)| pushed);
        self.last = Some((slots, pushed + 1));
        self.entries.push_back(entry);
    }

    fn run(&self) -> usize {
        self.entries.iter().take(self.visible).take_while(|entry| matches!(entry, Entry::Record(_))).count()
    }

    fn pop(&mut self) -> Entry<P> {
        self.visible -= 1;
        self.entries.pop_front().unwrap()
    }
}

fn against_the_model<P: Payload>(seed: u64, capacity: usize, first_segment: usize, operations: usize) {
    let mut rng = Rng::new(seed);
    let parking = Budget::new(lane_bytes::<Counted<P>>(capacity) * rng.below(4) as usize);
    let (mut producer, mut consumer) = ring::<Counted<P>>(&config(capacity, first_segment, &parking));
    let mut model = Model::<P> {
        entries: VecDeque::new(),
        visible: 0,
        capacity,
        first_segment,
        last: None,
        parked: false,
    };
    let mark_once_in = 1 + rng.below(20);
    let max_batch = 1 + rng.below(2 * capacity as u64);
    let mut id = 0;
    for _ in 0..operations {
        match rng.below(13) {
            12 => {
                let (mut used_bytes, limit_bytes) = (parking.used_bytes(), parking.limit_bytes());
                let wanted = rng.below(max_batch);
                let panic_at = rng.one_in(4).then(|| id + rng.below(max_batch));
                let last = id + wanted;
                let mut made = id;
                let mut records = std::iter::from_fn(|| {
                    if Some(made) == panic_at {
                        resume_unwind(Box::new(()));
                    }
                    (made < last).then(|| {
                        made += 1;
                        Counted::new(made)
                    })
                });
                let pushed = catch_unwind(AssertUnwindSafe(|| producer.push_from(&mut records)));
                match &pushed {
                    Ok(pushed) => assert_eq!(*pushed as u64, made - id),
                    Err(_) => assert_eq!(Some(made), panic_at),
                }
                while id < made {
                    id += 1;
                    let room = model.room(&mut used_bytes, limit_bytes).expect("it was pushed");
                    model.push(Entry::Record(P::from_id(id)), room);
                }
                match model.room(&mut used_bytes, limit_bytes) {
                    // The iterator was asked for one more, and a segment was linked for that.
                    Some((slots, true)) => model.last = Some((slots, 0)),
                    Some(_) => {}
                    None => assert!(pushed.is_ok()),
                }
                assert!(
                    made == last
                        || Some(made) == panic_at
                        || model.room(&mut used_bytes, limit_bytes).is_none()
                );
                assert_eq!(parking.used_bytes(), used_bytes);
            }
            0..4 => {
                for _ in 0..rng.below(max_batch) {
                    id += 1;
                    let room = model.room(&mut parking.used_bytes(), parking.limit_bytes());
                    if rng.one_in(3) {
                        // May link a segment by itself, and the push that follows then finds it.
                        assert_eq!(producer.has_room(), room.is_some());
                        if let Some((slots, true)) = room
                            && model.last.is_some_and(|(old, _)| old == capacity)
                        {
                            model.last = Some((slots, 0));
                        }
                    }
                    let room = model.room(&mut parking.used_bytes(), parking.limit_bytes());
                    if rng.one_in(mark_once_in) {
                        let result = producer.push_mark(mark(id));
                        assert_eq!(result, if room.is_some() { Ok(()) } else { Err(mark(id)) });
                        if let Some(room) = room {
                            model.push(Entry::Mark(mark(id)), room);
                        }
                    } else {
                        let result = producer.push(Counted::new(id));
                        assert_eq!(
                            result.as_ref().err().map(|back| back.0),
                            room.map_or(Some(P::from_id(id)), |_| None)
                        );
                        if let Some(room) = room {
                            model.push(Entry::Record(P::from_id(id)), room);
                        }
                    }
                    assert_eq!(producer.unpublished(), model.entries.len() - model.visible);
                }
            }
            4 | 5 => {
                let is_new = model.visible < model.entries.len();
                assert_eq!(producer.publish(), is_new);
                assert_eq!(producer.unpublished(), 0);
                model.visible = model.entries.len();
            }
            6 | 7 => {
                let max = 1 + rng.below(max_batch) as usize;
                match consumer.peek(max) {
                    Peek::Empty => assert_eq!(model.visible, 0),
                    Peek::Records(n) => assert!(n > 0 && n <= max && n <= model.run()),
                    Peek::Mark(mark) => assert_eq!(model.entries[0], Entry::Mark(mark)),
                    Peek::Closed => panic!("the producer is there"),
                }
                let records = consumer.records(max);
                assert_eq!(records.is_empty(), model.run() == 0);
                for (record, entry) in records.iter().zip(&model.entries) {
                    assert_eq!(Entry::Record(record.0), *entry);
                }
            }
            8 => {
                let max = rng.below(max_batch + 1) as usize;
                let stop_after = 1 + rng.below(max_batch);
                let panic_instead = rng.one_in(2);
                let had_run = model.run() > 0;
                let mut taken = 0;
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    consumer.drain(max, |record| {
                        taken += 1;
                        assert_eq!(model.pop(), Entry::Record(record.0));
                        if taken == stop_after && panic_instead {
                            resume_unwind(Box::new(()));
                        }
                        taken < stop_after
                    })
                }));
                match outcome {
                    Ok(n) => {
                        assert_eq!(n as u64, taken);
                        assert_eq!(n > 0, had_run && max > 0);
                    }
                    Err(_) => assert!(panic_instead && taken == stop_after),
                }
            }
            9 => match consumer.pop_mark() {
                Some(mark) => assert_eq!(model.pop(), Entry::Mark(mark)),
                None => assert!(model.visible == 0 || model.run() > 0),
            },
            10 => {
                model.parked = rng.one_in(2);
                consumer.set_parked(model.parked);
            }
            _ => {
                assert_eq!(consumer.backlog(), model.visible);
                assert_eq!(consumer.is_empty(), model.visible == 0);
                if model.visible == 0 && producer.unpublished() == 0 && !producer.hidden_growth() {
                    assert_eq!(consumer.extra_segments(), 0);
                    assert_eq!(parking.used_bytes(), 0, "a drained ring owes nothing");
                }
                assert!(!producer.is_abandoned());
            }
        }
        let records = model.entries.iter().filter(|entry| matches!(entry, Entry::Record(_))).count();
        assert_eq!(live(), records as isize);
    }
    match rng.below(3) {
        0 => {
            drop(consumer);
            assert!(producer.is_abandoned());
            drop(producer);
        }
        1 => {
            drop(producer);
            drop(consumer);
        }
        _ => {
            drop(producer);
            while let Some(entry) = model.entries.pop_front() {
                match entry {
                    Entry::Mark(mark) => assert_eq!(consumer.pop_mark(), Some(mark)),
                    Entry::Record(record) => assert_eq!(
                        consumer.drain(1, |got| {
                            assert_eq!(got.0, record);
                            true
                        }),
                        1
                    ),
                }
            }
            assert_eq!(consumer.peek(1), Peek::Closed);
            assert_eq!(consumer.pop_mark(), None);
            assert_eq!(consumer.peek(1), Peek::Closed);
        }
    }
    assert_eq!(live(), 0);
    assert_eq!(parking.used_bytes(), 0);
}

fn many_seeds<P: Payload>() {
    let seeds = if cfg!(miri) { 2 } else { 60 };
    for (shape, &(capacity, first_segment)) in
        [(1, 1), (2, 1), (2, 2), (4, 1), (4, 4), (8, 2), (8, 8), (64, 1), (128, 4)].iter().enumerate()
    {
        for seed in 0..seeds {
            against_the_model::<P>(seed * 100 + shape as u64, capacity, first_segment, 400);
        }
    }
}

#[test]
fn behaves_like_a_queue_with_records_of_no_size() {
    many_seeds::<()>();
}

#[test]
fn behaves_like_a_queue_with_records_of_one_byte() {
    many_seeds::<u8>();
}

#[test]
fn behaves_like_a_queue_with_records_of_one_word() {
    many_seeds::<u64>();
}

#[test]
fn behaves_like_a_queue_with_records_of_twelve_bytes() {
    many_seeds::<[u32; 3]>();
}

#[test]
fn behaves_like_a_queue_with_records_of_a_cache_line() {
    many_seeds::<[u64; 8]>();
}

#[test]
fn nothing_is_visible_before_it_is_published_even_if_the_ring_grew() {
    let (mut producer, mut consumer) = ring(&config(64, 1, &Budget::new(0)));
    for record in 0..1 + 4 + 16 + 64 {
        producer.push(record).unwrap();
    }
    assert_eq!(producer.push(0), Err(0));
    assert_eq!(producer.unpublished(), 85);
    assert_eq!(consumer.peek(1), Peek::Empty);
    assert_eq!(consumer.backlog(), 0);
    assert!(producer.publish());
    assert!(!producer.publish());
    assert_eq!(consumer.backlog(), 85);
    let mut next = 0;
    while consumer.drain(1000, |record| {
        assert_eq!(record, next);
        next += 1;
        true
    }) > 0
    {}
    assert_eq!(next, 85);
    assert!(consumer.is_empty());
}

#[test]
fn a_full_ring_takes_more_only_while_parked_and_within_the_budget() {
    let parking = Budget::new(2 * lane_bytes::<u64>(4));
    let (mut producer, mut consumer) = ring(&config(4, 4, &parking));
    let fill = |producer: &mut Producer<u64>| {
        let mut n = 0;
        while producer.push(n).is_ok() {
            n += 1;
        }
        producer.publish();
        n
    };
    assert_eq!(fill(&mut producer), 4);
    consumer.set_parked(true);
    assert_eq!(fill(&mut producer), 8);
    assert_eq!(parking.used_bytes(), parking.limit_bytes());
    assert_eq!(consumer.backlog(), 12);
    consumer.set_parked(false);
    assert_eq!(fill(&mut producer), 0);
    for extra in [2, 1, 0] {
        // Reaching the next segment needs a look at it.
        assert!(!consumer.is_empty());
        assert_eq!(consumer.extra_segments(), extra);
        assert_eq!(parking.used_bytes(), extra * lane_bytes::<u64>(4));
        assert_eq!(consumer.drain(100, |_| true), 4);
    }
    assert_eq!(fill(&mut producer), 4);
}

#[test]
fn a_run_ends_at_a_mark_and_continues_behind_it() {
    let (mut producer, mut consumer) = ring(&plain(8));
    producer.push('a').unwrap();
    producer.push_mark(mark(1)).unwrap();
    producer.push_mark(mark(2)).unwrap();
    producer.push('b').unwrap();
    producer.publish();
    assert_eq!(consumer.peek(9), Peek::Records(1));
    assert_eq!(consumer.pop_mark(), None);
    assert_eq!(consumer.records(9), ['a']);
    assert_eq!(consumer.drain(9, |_| true), 1);
    assert_eq!(consumer.drain(9, |_| true), 0);
    assert_eq!(consumer.peek(9), Peek::Mark(mark(1)));
    assert_eq!(consumer.pop_mark(), Some(mark(1)));
    assert_eq!(consumer.pop_mark(), Some(mark(2)));
    assert_eq!(consumer.records(9), ['b']);
}

#[test]
fn dropping_the_producer_publishes_and_closes() {
    let (mut producer, mut consumer) = ring(&plain(2));
    assert_eq!(consumer.peek(1), Peek::Empty);
    producer.push(5).unwrap();
    drop(producer);
    assert_eq!(consumer.peek(1), Peek::Records(1));
    assert_eq!(consumer.drain(1, |_| true), 1);
    assert_eq!(consumer.peek(1), Peek::Closed);
    assert!(consumer.is_empty());

    let (producer, mut consumer) = ring::<u8>(&plain(2));
    drop(producer);
    assert_eq!(consumer.peek(1), Peek::Closed);
    assert_eq!(consumer.backlog(), 0);
}

#[test]
fn an_abandoned_ring_does_not_grow() {
    let (mut producer, consumer) = ring(&config(4, 1, &Budget::new(1 << 20)));
    producer.push(1).unwrap();
    drop(consumer);
    assert!(producer.is_abandoned());
    assert!(!producer.has_room());
    assert_eq!(producer.push(2), Err(2));
}

#[test]
fn an_idle_ring_is_cheap() {
    // Both halves and what they share, counters of the `Arc` included; no segment.
    let bytes = size_of::<Producer<u64>>()
        + size_of::<Consumer<u64>>()
        + size_of::<Shared<u64>>()
        + 2 * size_of::<usize>();
    assert!(bytes <= 256, "an unused ring takes {bytes} bytes");
}

#[test]
fn two_threads_agree_on_content_and_order() {
    let records = if cfg!(miri) { 2_000 } else { 300_000 };
    for (seed, &(capacity, first_segment)) in [(2, 1), (8, 2), (64, 4), (1024, 16)].iter().enumerate() {
        let parking = Budget::new(3 * lane_bytes::<Box<u64>>(capacity));
        let (mut producer, mut consumer) = ring::<Box<u64>>(&config(capacity, first_segment, &parking));
        let (filling, draining) = (Parker::new(), Parker::new());
        let (wake_filling, wake_draining) = (filling.waker(), draining.waker());

        let source = thread::spawn(move || {
            let mut rng = Rng::new(seed as u64);
            let mut next = 0;
            while next < records {
                for _ in 0..=rng.below(40) {
                    let pushed = if next % 97 == 0 {
                        producer.push_mark(mark(next)).is_ok()
                    } else {
                        producer.push(Box::new(next)).is_ok()
                    };
                    if pushed {
                        next += 1;
                        continue;
                    }
                    if producer.publish() {
                        wake_draining.wake();
                    }
                    filling.prepare();
                    if producer.has_room() { filling.cancel() } else { filling.park(None) }
                }
                if producer.publish() {
                    wake_draining.wake();
                }
            }
            drop(producer);
            wake_draining.wake();
            next
        });

        let mut rng = Rng::new(!(seed as u64));
        let mut next = 0;
        loop {
            match consumer.peek(1 + rng.below(50) as usize) {
                Peek::Records(n) => {
                    let first = next;
                    for (record, expected) in consumer.records(n).iter().zip(first..) {
                        assert_eq!(**record, expected);
                    }
                    consumer.drain(n, |record| {
                        assert_eq!(*record, next);
                        next += 1;
                        true
                    });
                    wake_filling.wake();
                }
                Peek::Mark(seen) => {
                    assert_eq!(seen, mark(next));
                    assert_eq!(consumer.pop_mark(), Some(seen));
                    next += 1;
                    consumer.set_parked(rng.one_in(2));
                    wake_filling.wake();
                }
                Peek::Empty => {
                    draining.prepare();
                    if consumer.is_empty() && consumer.peek(1) == Peek::Empty {
                        draining.park(None);
                    } else {
                        draining.cancel();
                    }
                }
                Peek::Closed => break,
            }
        }
        assert_eq!(next, source.join().unwrap());
        drop(consumer);
        assert_eq!(parking.used_bytes(), 0);
    }
}

#[test]
fn halves_dropped_at_the_same_time_free_everything_once() {
    let rounds = if cfg!(miri) { 10 } else { 300 };
    for round in 0..rounds {
        let parking = Budget::new(1 << 20);
        let (mut producer, mut consumer) = ring::<Arc<u32>>(&config(4, 1, &parking));
        let witness = Arc::new(0);
        consumer.set_parked(true);
        let filling = {
            let witness = Arc::clone(&witness);
            thread::spawn(move || {
                for _ in 0..round % 40 {
                    let _ = producer.push(Arc::clone(&witness));
                    producer.publish();
                }
                let _ = producer.push(witness);
            })
        };
        consumer.drain(round % 3, |_| true);
        drop(consumer);
        filling.join().unwrap();
        assert_eq!(Arc::strong_count(&witness), 1);
        assert_eq!(parking.used_bytes(), 0);
    }
}
