//! The interleavings of the two halves, and of the wake-up protocol around them. Run by `tools/loom.sh`.
//!
//! The rings hold two entries: every wrap, refusal and growth step happens within three or four of them. Records are
//! tracked: loom reports the one that is leaked.

use ::loom::alloc::Track;
use ::loom::{model, thread};

use super::slots::lane_bytes;
use super::*;
use crate::sync::wake::{Parker, Waker};

const MARK: Mark = Mark { tag: NonZeroU8::MAX, word: 77 };

type Record = Track<u32>;

fn config(first_segment: usize, extra_segments: usize) -> RingConfig {
    let parking = Budget::new(extra_segments * lane_bytes::<Record>(2));
    RingConfig { capacity: 2, first_segment, parking }
}

/// Takes whatever stands at the front. None if nothing does.
fn next(consumer: &mut Consumer<Record>) -> Option<u32> {
    let mut taken = None;
    consumer.drain(1, |record| {
        taken = Some(*record.get_ref());
        true
    });
    taken.or_else(|| consumer.pop_mark().map(|mark| mark.word as u32))
}

fn next_of_open(consumer: &mut Consumer<Record>) -> u32 {
    loop {
        match consumer.peek(1) {
            Peek::Empty => thread::yield_now(),
            Peek::Closed => panic!("the end was seen before the last entry"),
            Peek::Records(_) | Peek::Mark(_) => return next(consumer).expect("an entry was seen"),
        }
    }
}

fn push(producer: &mut Producer<Record>, entry: u32) {
    loop {
        let refused = if entry == MARK.word as u32 {
            producer.push_mark(MARK).is_err()
        } else {
            producer.push(Track::new(entry)).is_err()
        };
        if !refused {
            return;
        }
        thread::yield_now();
    }
}

fn expect_closed(consumer: &mut Consumer<Record>) {
    loop {
        match consumer.peek(1) {
            Peek::Empty => thread::yield_now(),
            found => return assert_eq!(found, Peek::Closed),
        }
    }
}

/// Sends the entries one by one through a ring of two slots.
fn pass(first_segment: usize, entries: &'static [u32]) {
    model(move || {
        let (mut producer, mut consumer) = ring(&config(first_segment, 0));
        let filling = thread::spawn(move || {
            for &entry in entries {
                push(&mut producer, entry);
                producer.publish();
            }
        });
        for &entry in entries {
            assert_eq!(next_of_open(&mut consumer), entry);
        }
        expect_closed(&mut consumer);
        filling.join().unwrap();
    });
}

#[test]
fn loom_records_pass_in_order_and_slots_are_used_again() {
    pass(2, &[1, 2, 3, 4]);
}

#[test]
fn loom_a_slot_carries_a_mark_then_a_record() {
    pass(2, &[77, 2, 3]);
}

#[test]
fn loom_a_slot_carries_a_record_then_a_mark() {
    pass(2, &[1, 2, 77]);
}

#[test]
fn loom_the_ring_grows_under_the_consumer() {
    pass(1, &[1, 77, 3, 4]);
}

#[test]
fn loom_a_batch_becomes_visible_together_across_a_growth_step() {
    model(|| {
        let (mut producer, mut consumer) = ring(&config(1, 0));
        let filling = thread::spawn(move || {
            push(&mut producer, 1);
            push(&mut producer, 2);
            push(&mut producer, 77);
            producer.publish();
        });
        let visible = consumer.backlog();
        assert!(visible == 0 || visible == 1 || visible == 3);
        for entry in [1, 2, 77] {
            assert_eq!(next_of_open(&mut consumer), entry);
        }
        filling.join().unwrap();
    });
}

#[test]
fn loom_the_rest_of_a_segment_becomes_visible_before_its_successor() {
    model(|| {
        let config = RingConfig { capacity: 4, first_segment: 2, parking: Budget::new(0) };
        let (mut producer, mut consumer) = ring(&config);
        push(&mut producer, 1);
        producer.publish();
        let filling = thread::spawn(move || {
            push(&mut producer, 2);
            push(&mut producer, 3);
            producer.publish();
        });
        for entry in 1..=3 {
            assert_eq!(next_of_open(&mut consumer), entry);
        }
        filling.join().unwrap();
    });
}

#[test]
fn loom_a_parked_ring_grows_and_shrinks_again() {
    model(|| {
        let config = config(2, 1);
        let (mut producer, mut consumer) = ring(&config);
        consumer.set_parked(true);
        let filling = thread::spawn(move || {
            for entry in 1..=3 {
                push(&mut producer, entry);
                producer.publish();
            }
            producer
        });
        // The parked consumer waits for nothing; it goes on after what may be any number of entries.
        consumer.set_parked(false);
        for entry in 1..=3 {
            assert_eq!(next_of_open(&mut consumer), entry);
        }
        let mut producer = filling.join().unwrap();
        assert!(consumer.is_empty());
        assert_eq!(consumer.extra_segments(), 0);
        assert_eq!(config.parking.used_bytes(), 0);
        assert!(producer.has_room());
    });
}

#[test]
fn loom_two_rings_share_a_parking_budget() {
    model(|| {
        let config = config(2, 1);
        let rings = [ring(&config), ring(&config)];
        let filling = rings.map(|(mut producer, mut consumer)| {
            consumer.set_parked(true);
            let pushed =
                thread::spawn(move || (0..3).filter(|&i| producer.push(Track::new(i)).is_ok()).count());
            (pushed, consumer)
        });
        let pushed = filling.map(|(filling, _consumer)| filling.join().unwrap());
        assert!(pushed.iter().sum::<usize>() >= 5);
        assert_eq!(config.parking.used_bytes(), 0);
    });
}

#[test]
fn loom_the_producer_goes_away_while_its_entries_are_drained() {
    model(|| {
        let (mut producer, mut consumer) = ring(&config(1, 0));
        push(&mut producer, 1);
        producer.publish();
        let filling = thread::spawn(move || {
            push(&mut producer, 2);
        });
        assert_eq!(next_of_open(&mut consumer), 1);
        assert_eq!(next_of_open(&mut consumer), 2);
        expect_closed(&mut consumer);
        filling.join().unwrap();
    });
}

#[test]
fn loom_the_consumer_goes_away_while_the_producer_pushes() {
    model(|| {
        let config = config(1, 1);
        let (mut producer, mut consumer) = ring::<Record>(&config);
        consumer.set_parked(true);
        let filling = thread::spawn(move || {
            for entry in 1..=4 {
                drop(producer.push(Track::new(entry)));
                producer.publish();
            }
        });
        next(&mut consumer);
        drop(consumer);
        filling.join().unwrap();
        assert_eq!(config.parking.used_bytes(), 0);
    });
}

#[test]
fn loom_the_wake_up_protocol_alone() {
    use crate::sync::AtomicBool;
    model(|| {
        let parker = Parker::new();
        let waker = parker.waker();
        let work = Arc::new(AtomicBool::new(false));
        let publisher = {
            let work = Arc::clone(&work);
            thread::spawn(move || {
                work.store(true, Ordering::Release);
                waker.wake();
            })
        };
        // Without a re-poll after the park: one wake-up for one piece of work.
        while !work.load(Ordering::Acquire) {
            parker.prepare();
            if work.load(Ordering::Acquire) {
                parker.cancel();
                break;
            }
            parker.park(None);
        }
        publisher.join().unwrap();
    });
}

/// Sleeps until something stands at the front.
fn next_asleep(consumer: &mut Consumer<Record>, parker: &Parker) -> u32 {
    loop {
        if let Some(entry) = next(consumer) {
            return entry;
        }
        parker.prepare();
        if consumer.is_empty() { parker.park(None) } else { parker.cancel() }
    }
}

#[test]
fn loom_a_sleeping_consumer_is_woken_by_a_publish() {
    model(|| {
        let (mut producer, mut consumer) = ring(&config(2, 0));
        let parker = Parker::new();
        let waker = parker.waker();
        let filling = thread::spawn(move || {
            for entry in [1, 77] {
                push(&mut producer, entry);
                producer.publish();
                waker.wake();
            }
            // Alive until the end: the drop of the producer is another test.
            producer
        });
        assert_eq!(next_asleep(&mut consumer, &parker), 1);
        assert_eq!(next_asleep(&mut consumer, &parker), 77);
        filling.join().unwrap();
    });
}

#[test]
fn loom_a_sleeping_consumer_is_woken_by_the_end() {
    model(|| {
        let (producer, mut consumer) = ring::<Record>(&config(2, 0));
        let parker = Parker::new();
        let waker = parker.waker();
        let filling = thread::spawn(move || {
            drop(producer);
            waker.wake();
        });
        while consumer.peek(1) != Peek::Closed {
            parker.prepare();
            if consumer.peek(1) == Peek::Empty { parker.park(None) } else { parker.cancel() }
        }
        filling.join().unwrap();
    });
}

/// Sleeps until the ring has room.
fn push_asleep(producer: &mut Producer<Record>, parker: &Parker, entry: u32) {
    let mut record = Track::new(entry);
    while let Err(back) = producer.push(record) {
        record = back;
        parker.prepare();
        if producer.has_room() { parker.cancel() } else { parker.park(None) }
    }
}

/// A producer that finds the ring of two full, against a consumer that changes that by `act`.
fn full_until(extra_segments: usize, act: fn(&mut Consumer<Record>)) {
    model(move || {
        let (mut producer, mut consumer) = ring(&config(2, extra_segments));
        push(&mut producer, 1);
        push(&mut producer, 2);
        producer.publish();
        let parker = Parker::new();
        let waker: Waker = parker.waker();
        let filling = thread::spawn(move || {
            push_asleep(&mut producer, &parker, 3);
        });
        act(&mut consumer);
        waker.wake();
        filling.join().unwrap();
    });
}

#[test]
fn loom_a_sleeping_producer_is_woken_by_a_drain() {
    full_until(0, |consumer| assert_eq!(consumer.drain(2, |_| true), 2));
}

#[test]
fn loom_a_sleeping_producer_is_woken_when_the_channel_is_parked() {
    full_until(1, |consumer| consumer.set_parked(true));
}

#[test]
fn loom_both_sides_sleep_in_turn() {
    model(|| {
        let (mut producer, mut consumer) = ring(&config(1, 0));
        let (filling, draining) = (Parker::new(), Parker::new());
        let (wake_filling, wake_draining) = (filling.waker(), draining.waker());
        let source = thread::spawn(move || {
            for entry in 1..=4 {
                push_asleep(&mut producer, &filling, entry);
                producer.publish();
                wake_draining.wake();
            }
            producer
        });
        for entry in 1..=4 {
            assert_eq!(next_asleep(&mut consumer, &draining), entry);
            wake_filling.wake();
        }
        source.join().unwrap();
    });
}
