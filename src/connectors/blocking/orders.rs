//! Orders to a helper: carried out one after the other, each with an answer.

use std::collections::VecDeque;
use std::fmt;

use super::{hand_over, small_ring};
use crate::base::error::{BoxError, message_with_causes};
use crate::operator::OpenContext;
use crate::operator::context::{Helper, HelperStatus};
use crate::ring::{Consumer, Peek, Producer};
use crate::sync::wake::Waker;

/// Orders and answers that are on their way at once. Further orders wait on the subtask's side.
pub(super) const SLOTS: usize = 32;

/// Work that waits, done in the order in which it is asked for.
pub(crate) trait BlockingWork: Send + 'static {
    /// What is asked for.
    type Order: Send + 'static;
    /// What comes back for each order.
    type Answer: Send + 'static;

    /// True if what was asked for is still done when the execution ends, in whatever way.
    const CARRIES_OUT_THE_REST: bool;

    /// Makes ready; called once, before anything else.
    ///
    /// # Errors
    /// If nothing can be done.
    fn open(&mut self) -> Result<(), BoxError>;

    /// Carries out one order. May wait for as long as the system makes it.
    ///
    /// # Errors
    /// If it cannot be carried out; nothing but `refuse` is called after that.
    fn carry_out(&mut self, order: Self::Order) -> Result<Self::Answer, BoxError>;

    /// An order that is not carried out, since the work failed before for this reason. Whoever waits for its outcome is told.
    fn refuse(&mut self, order: Self::Order, reason: &str) {
        let _ = (order, reason);
    }

    /// Called last if the job ends in an orderly way.
    ///
    /// # Errors
    /// If what was done cannot be promised to stay.
    fn stop(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

/// The subtask's end: takes every order, and never waits.
pub(crate) struct Orders<O, A> {
    to_do: Producer<O>,
    answers: Consumer<Result<A, BoxError>>,
    helper: Waker,
    /// In the ring, being carried out, or answered without the answer having been taken.
    on_their_way: usize,
    /// For which the ring has no room yet.
    waiting: VecDeque<O>,
    has_failed: bool,
}

impl<O, A> fmt::Debug for Orders<O, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").field("unanswered", &self.unanswered()).finish_non_exhaustive()
    }
}

impl<O: Send + 'static, A: Send + 'static> Orders<O, A> {
    /// Starts the helper.
    pub(crate) fn spawn(
        cx: &mut OpenContext<'_>,
        name: &str,
        work: impl BlockingWork<Order = O, Answer = A>,
    ) -> Result<Self, BoxError> {
        let (to_do, orders) = small_ring(SLOTS);
        let (answers, done) = small_ring(SLOTS);
        let helper = OrderHelper { work, state: State::Closed, orders, answers, subtask: cx.waker.clone() };
        let helper = cx.spawn_helper(name, Box::new(helper))?;
        Ok(Self {
            to_do,
            answers: done,
            helper,
            on_their_way: 0,
            waiting: VecDeque::new(),
            has_failed: false,
        })
    }
}

impl<O, A> Orders<O, A> {
    /// How many orders have not been answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.on_their_way + self.waiting.len()
    }

    /// Gives an order. After a failure nobody carries it out: it is refused, or dropped once the failure is known here.
    pub(crate) fn give(&mut self, order: O) {
        if !self.has_failed {
            self.waiting.push_back(order);
            self.hand_over();
        }
    }

    /// Shows the answers that have come to `take`, and hands over what has waited for them.
    ///
    /// # Errors
    /// If the helper failed: its error, once.
    pub(crate) fn take_answers(&mut self, mut take: impl FnMut(A)) -> Result<(), BoxError> {
        let on_their_way = &mut self.on_their_way;
        let mut failed = None;
        let mut receive = |answer| {
            match answer {
                Ok(answer) => {
                    *on_their_way -= 1;
                    take(answer);
                }
                // It may come without an order, and nothing follows it.
                Err(error) => failed = Some(error),
            }
            true
        };
        while self.answers.drain(SLOTS, &mut receive) > 0 {}
        if let Some(error) = failed {
            self.has_failed = true;
            self.waiting.clear();
            return Err(error);
        }
        self.hand_over();
        Ok(())
    }

    /// As many answers as orders can be on their way: both sides always find room in the rings.
    fn hand_over(&mut self) {
        let before = self.on_their_way;
        while self.on_their_way < SLOTS
            && let Some(order) = self.waiting.pop_front()
        {
            // A helper that has failed may be gone; its last answer says so.
            hand_over(&mut self.to_do, order);
            self.on_their_way += 1;
        }
        if self.on_their_way > before {
            self.helper.wake();
        }
    }
}

#[derive(PartialEq, Eq)]
enum State {
    Closed,
    Open,
    /// For this reason.
    Failed(String),
}

struct OrderHelper<W: BlockingWork> {
    work: W,
    state: State,
    orders: Consumer<W::Order>,
    answers: Producer<Result<W::Answer, BoxError>>,
    subtask: Waker,
}

impl<W: BlockingWork> OrderHelper<W> {
    fn next_order(&mut self) -> Option<W::Order> {
        let mut order = None;
        self.orders.drain(1, |next| {
            order = Some(next);
            true
        });
        order
    }

    fn open(&mut self) -> Result<(), BoxError> {
        if self.state == State::Closed {
            self.work.open()?;
            self.state = State::Open;
        }
        Ok(())
    }

    fn carry_out(&mut self, order: W::Order) -> Result<W::Answer, BoxError> {
        self.open()?;
        self.work.carry_out(order)
    }

    /// The subtask reports an error, for it knows the operator.
    fn answer(&mut self, answer: Result<W::Answer, BoxError>) {
        if let Err(error) = &answer {
            self.fail(error);
        }
        hand_over(&mut self.answers, answer);
        self.subtask.wake();
    }

    fn fail(&mut self, error: &BoxError) {
        self.state = State::Failed(message_with_causes(error.as_ref()));
    }

    /// The subtask may still give orders until it has seen the failure.
    fn refuse_all(&mut self) {
        while let Some(order) = self.next_order() {
            if let State::Failed(reason) = &self.state {
                self.work.refuse(order, reason);
            }
        }
    }

    fn is_over(&mut self) -> bool {
        self.orders.peek(1) == Peek::Closed
    }

    fn carry_out_the_rest(&mut self) -> Result<(), BoxError> {
        while W::CARRIES_OUT_THE_REST
            && !matches!(self.state, State::Failed(_))
            && let Some(order) = self.next_order()
        {
            if let Err(error) = self.carry_out(order) {
                self.fail(&error);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl<W: BlockingWork> Helper for OrderHelper<W> {
    fn step(&mut self) -> Result<HelperStatus, BoxError> {
        if let State::Failed(_) = self.state {
            self.refuse_all();
            return Ok(if self.is_over() { HelperStatus::Done } else { HelperStatus::Idle });
        }
        if self.state == State::Closed
            && let Err(error) = self.open()
        {
            // In place of the answer to the first order, which may not have come yet.
            self.answer(Err(error));
            return Ok(HelperStatus::Worked);
        }
        let Some(order) = self.next_order() else {
            return Ok(if self.is_over() { HelperStatus::Done } else { HelperStatus::Idle });
        };
        let answer = self.carry_out(order);
        self.answer(answer);
        Ok(HelperStatus::Worked)
    }

    fn stop(&mut self) -> Result<(), BoxError> {
        self.carry_out_the_rest()?;
        if self.state == State::Open { self.work.stop() } else { Ok(()) }
    }
}

impl<W: BlockingWork> Drop for OrderHelper<W> {
    fn drop(&mut self) {
        // Whoever dropped the subtask did so before, so no order is added any more.
        if let Err(error) = self.carry_out_the_rest() {
            tracing::warn!(target: "stoplog::connectors", "{error}");
        }
    }
}
