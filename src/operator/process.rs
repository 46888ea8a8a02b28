//! The keyed operator: a user's function with state of the current key.

use std::fmt;
use std::marker::PhantomData;

use super::context::{CloseContext, OpenContext, OperatorFork, SnapshotContext};
use super::contract::{ChainedOperator, Operator, Output};
use super::failure::{fail, in_operator};
use super::flat_map::Pending;
use super::held::Held;
use super::keyed::Keyed;
use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::id::OperatorUid;
use crate::base::key_group::KeyGroups;
use crate::base::progress::Flow;
use crate::codec::Key;
use crate::state::{CurrentKey, StateSet};

/// The states of the current key, as a [`ProcessFunction`] gets them.
pub type StatesOf<'a, F> =
    <<F as ProcessFunction>::States as StateSet>::Handles<'a, <F as ProcessFunction>::Key, ()>;

/// The tables behind the states of all keys of one subtask.
pub type TablesOf<F> = <<F as ProcessFunction>::States as StateSet>::Tables<<F as ProcessFunction>::Key, ()>;

/// Records handed on at the end of the input, made one by one as the output takes them.
pub type AtEnd<T> = Box<dyn Iterator<Item = T> + Send>;

/// A function of each record and of the state of the record's key.
///
/// The prototype given to the builder is cloned once per subtask and attempt. What must survive a restart belongs into the
/// declared states: fields of the function itself are lost.
///
/// ```
/// use stoplog::prelude::*;
///
/// /// Hands on each key once.
/// #[derive(Clone)]
/// struct Distinct;
///
/// impl ProcessFunction for Distinct {
///     type Key = String;
///     type In = ();
///     type Out = String;
///     type States = ValueStateDescriptor<bool>;
///
///     fn states(&self) -> Self::States {
///         ValueStateDescriptor::new("seen")
///     }
///
///     fn process(
///         &mut self,
///         (): (),
///         mut seen: StatesOf<'_, Self>,
///         cx: &ProcessContext<'_, String>,
///         output: &mut impl Output<String>,
///     ) -> Result<(), BoxError> {
///         if seen.value().is_none() {
///             seen.update(true);
///             let _ = output.collect(cx.key().clone());
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait ProcessFunction: Clone + Send + 'static {
    /// The key of the stream.
    type Key: Key;
    /// What comes with the key.
    type In: 'static;
    /// What is handed on.
    type Out: Send + 'static;
    /// The declared states: a descriptor, or a tuple of up to four, or `()`.
    type States: StateSet;

    /// Declares the states. Called before the job runs and must always answer the same.
    fn states(&self) -> Self::States;

    /// Called for each record, on the pinned core of the subtask: must not block. Any number of records may be handed to
    /// `output`, whatever it answers.
    ///
    /// # Errors
    /// An error fails the job, as a panic does.
    fn process(
        &mut self,
        value: Self::In,
        states: StatesOf<'_, Self>,
        cx: &ProcessContext<'_, Self::Key>,
        output: &mut impl Output<Self::Out>,
    ) -> Result<(), BoxError>;

    /// Called once when no record will follow: what is to be handed on then. Never called a second time for the same state:
    /// a job that is restored from a later point remembers that this is done.
    fn at_end(&mut self, _tables: &mut TablesOf<Self>) -> Option<AtEnd<Self::Out>> {
        None
    }

    /// Called once when the job is finished, with the state of all keys of the subtask.
    ///
    /// # Errors
    /// An error fails the job.
    fn close(&mut self, _tables: &mut TablesOf<Self>, _cx: &mut CloseContext) -> Result<(), BoxError> {
        Ok(())
    }
}

/// What a function may ask about the record at hand.
pub struct ProcessContext<'a, K> {
    current: &'a CurrentKey<'a, K, ()>,
}

impl<K> fmt::Debug for ProcessContext<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessContext").finish_non_exhaustive()
    }
}

impl<K: Key> ProcessContext<'_, K> {
    /// The key of the record.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        self.current.key()
    }
}

/// A process function with its tables and the operator behind it.
pub struct ProcessOperator<F: ProcessFunction, C> {
    uid: OperatorUid,
    function: F,
    states: F::States,
    key_groups: KeyGroups,
    /// `None` in a prototype.
    tables: Option<TablesOf<F>>,
    held: Held<F::Out>,
    ending: Ending<F::Out>,
    next: C,
}

/// What is due at the end of the input.
enum Ending<T> {
    /// The end has not come, or nothing was due.
    No,
    /// Being handed on.
    Emitting(Pending<AtEnd<T>>),
    /// Handed on: a restored job must not do so again.
    Done,
}

impl<F: ProcessFunction, C> fmt::Debug for ProcessOperator<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessOperator").field("uid", &self.uid).finish_non_exhaustive()
    }
}

impl<F: ProcessFunction, C> ProcessOperator<F, C> {
    /// The operator of a function.
    pub fn new(uid: OperatorUid, function: F, next: C) -> Self {
        let states = function.states();
        Self {
            uid,
            function,
            states,
            key_groups: KeyGroups::new(1, 1),
            tables: None,
            held: Held::default(),
            ending: Ending::No,
            next,
        }
    }
}

impl<F: ProcessFunction, C: Clone> Clone for ProcessOperator<F, C> {
    fn clone(&self) -> Self {
        Self::new(self.uid.clone(), self.function.clone(), self.next.clone())
    }
}

impl<F, C> Operator<Keyed<F::Key, F::In>> for ProcessOperator<F, C>
where
    F: ProcessFunction,
    C: Operator<F::Out>,
{
    #[inline]
    fn prepare(&mut self, run: &[Keyed<F::Key, F::In>]) {
        if let Some(tables) = &self.tables {
            self.states.prepare(tables, run.iter().map(Keyed::hash));
        }
    }

    #[inline]
    fn process(&mut self, record: Keyed<F::Key, F::In>) -> Flow {
        let hash = record.hash();
        let tables = self.tables.as_mut().expect("an operator is open before it processes");
        let current = CurrentKey::new(&record.key, &(), hash, &self.key_groups);
        let states = self.states.bind(tables, &current);
        let cx = ProcessContext { current: &current };
        let mut output = self.held.output(&mut self.next);
        let function = &mut self.function;
        let result = in_operator(&self.uid, || function.process(record.value, states, &cx, &mut output));
        let flow = output.flow;
        if let Err(error) = result {
            fail(&self.uid, ErrorKind::UserFunction, &error);
        }
        flow
    }
}

impl<F, C> ChainedOperator for ProcessOperator<F, C>
where
    F: ProcessFunction,
    C: Operator<F::Out>,
{
    type Next = C;

    #[inline]
    fn next(&mut self) -> &mut C {
        &mut self.next
    }

    fn open_self(&mut self, cx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.key_groups = cx.key_groups;
        let range = cx.key_group_range();
        let mut tables = self.states.create(cx.key_groups, range);
        if let Some(restored) = cx.restored_operator(&self.uid) {
            if let Some(keyed) = &restored.keyed {
                let restored =
                    in_operator(&self.uid, || keyed.restore_into(&self.states, &mut tables, range));
                restored.map_err(|error| {
                    let recovery = if error.is_transient() { Recovery::Restart } else { Recovery::GiveUp };
                    Error::caused_by(ErrorKind::Snapshot, recovery, &error.into()).in_operator(&self.uid)
                })?;
            }
            if restored.ended {
                self.ending = Ending::Done;
            }
        }
        self.tables = Some(tables);
        Ok(())
    }

    #[inline]
    fn resume_self(&mut self) -> Flow {
        let flow = self.held.resume(&mut self.next);
        if flow.is_blocked() {
            return flow;
        }
        match &mut self.ending {
            Ending::Emitting(pending) => pending.resume(&self.uid, &mut self.next),
            Ending::No | Ending::Done => Flow::Continue,
        }
    }

    fn end_self(&mut self) -> Flow {
        if let Ending::No = self.ending {
            let tables = self.tables.as_mut().expect("an operator is open before its input ends");
            let function = &mut self.function;
            let Some(records) = in_operator(&self.uid, || function.at_end(tables)) else {
                return Flow::Continue;
            };
            let mut pending = Pending::default();
            let flow = pending.start(records, &self.uid, &mut self.next);
            self.ending = Ending::Emitting(pending);
            if flow.is_blocked() {
                return flow;
            }
        }
        // Called again only once `resume` has handed everything on.
        self.ending = Ending::Done;
        Flow::Continue
    }

    fn snapshot_self(&mut self, cx: &mut SnapshotContext) {
        let tables = self.tables.as_mut().expect("an operator is open before it is snapshot");
        let keyed = self.states.fork_all(tables).into_iter().map(|(_, frozen)| frozen).collect();
        cx.forks.push(OperatorFork {
            uid: self.uid.clone(),
            keyed,
            list: Default::default(),
            later: None,
            ended: matches!(self.ending, Ending::Done),
        });
    }

    fn close_self(&mut self, cx: &mut CloseContext) -> Result<(), Error> {
        let tables = self.tables.as_mut().expect("an operator is open before it is closed");
        let function = &mut self.function;
        in_operator(&self.uid, || function.close(tables, cx)).map_err(|error| {
            Error::caused_by(ErrorKind::UserFunction, Recovery::Restart, &error).in_operator(&self.uid)
        })
    }
}

/// A process function made of a closure, whose result is handed on item by item.
pub struct ClosureFunction<K, V, D, I, F> {
    states: D,
    function: F,
    types: PhantomData<fn(K, V) -> I>,
}

impl<K, V, D, I, F> ClosureFunction<K, V, D, I, F> {
    /// The function that has these states and calls this closure.
    pub fn new(states: D, function: F) -> Self {
        Self { states, function, types: PhantomData }
    }
}

impl<K, V, D, I, F> fmt::Debug for ClosureFunction<K, V, D, I, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClosureFunction").finish_non_exhaustive()
    }
}

impl<K, V, D: Clone, I, F: Clone> Clone for ClosureFunction<K, V, D, I, F> {
    fn clone(&self) -> Self {
        Self::new(self.states.clone(), self.function.clone())
    }
}

impl<K, V, D, I, F> ProcessFunction for ClosureFunction<K, V, D, I, F>
where
    K: Key,
    V: 'static,
    D: StateSet,
    I: IntoIterator<Item: Send + 'static> + 'static,
    F: for<'a> FnMut(V, D::Handles<'a, K, ()>, &ProcessContext<'_, K>) -> I + Clone + Send + 'static,
{
    type Key = K;
    type In = V;
    type Out = I::Item;
    type States = D;

    fn states(&self) -> D {
        self.states.clone()
    }

    #[inline]
    fn process(
        &mut self,
        value: V,
        states: D::Handles<'_, K, ()>,
        cx: &ProcessContext<'_, K>,
        output: &mut impl Output<I::Item>,
    ) -> Result<(), BoxError> {
        for record in (self.function)(value, states, cx) {
            // The output keeps what it cannot hand on.
            let _ = output.collect(record);
        }
        Ok(())
    }
}
