//! Writing behind the subtask.

use std::fmt;

use super::orders::{BlockingWork, Orders, SLOTS};
use crate::base::error::{BoxError, Error, ErrorKind, Recovery};
use crate::base::progress::Flow;
use crate::operator::OpenContext;

/// A writer that waits.
pub(crate) trait BlockingWrite: Send + 'static {
    /// Writes all of the chunk.
    ///
    /// # Errors
    /// If writing failed; the writer is not called again.
    fn write(&mut self, chunk: &[u8]) -> Result<(), BoxError>;
}

/// Chunks that may wait to be written before the subtask is blocked. A barrier hands over what there is without asking.
const CHUNKS_MAX: usize = 8;
const _: () = assert!(CHUNKS_MAX < SLOTS);

/// The subtask's end of a writer.
pub(crate) struct WriteBehind {
    /// Each answer is the chunk's memory, for the next one.
    chunks: Orders<Vec<u8>, Vec<u8>>,
    spare: Vec<Vec<u8>>,
    ending: bool,
}

impl fmt::Debug for WriteBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBehind").field("chunks", &self.chunks).finish_non_exhaustive()
    }
}

impl WriteBehind {
    /// Starts the writer.
    pub(crate) fn spawn(
        cx: &mut OpenContext<'_>,
        name: &str,
        writer: impl BlockingWrite,
    ) -> Result<Self, BoxError> {
        let chunks = Orders::spawn(cx, name, Writing(writer))?;
        Ok(Self { chunks, spare: Vec::new(), ending: false })
    }

    /// True if no chunk should be handed over that can wait.
    pub(crate) fn is_full(&self) -> bool {
        self.chunks.unanswered() >= CHUNKS_MAX
    }

    /// Hands the bytes over and leaves an empty buffer behind. Takes them even if it is full.
    pub(crate) fn write(&mut self, bytes: &mut Vec<u8>) {
        let empty = self.spare.pop().unwrap_or_default();
        self.chunks.give(std::mem::replace(bytes, empty));
    }

    /// Learns what was written. Blocked while it is full and, once the end was announced, until everything is written.
    ///
    /// # Errors
    /// If the writer failed.
    pub(crate) fn poll(&mut self) -> Result<Flow, BoxError> {
        let spare = &mut self.spare;
        self.chunks.take_answers(|buffer| spare.push(buffer))?;
        let waits = if self.ending { self.chunks.unanswered() > 0 } else { self.is_full() };
        Ok(if waits { Flow::Blocked } else { Flow::Continue })
    }

    /// Nothing more will be handed over. Continue once everything is written.
    ///
    /// # Errors
    /// If the writer failed.
    pub(crate) fn end(&mut self) -> Result<Flow, BoxError> {
        self.ending = true;
        self.poll()
    }
}

struct Writing<W>(W);

/// When an execution fails, a checkpoint may have completed that counts on what was handed over: it is written nevertheless. If it
/// cannot be, a restart would go on behind it. So the job fails for good instead of losing it silently.
impl<W: BlockingWrite> BlockingWork for Writing<W> {
    type Order = Vec<u8>;
    type Answer = Vec<u8>;
    const CARRIES_OUT_THE_REST: bool = true;

    fn open(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    fn carry_out(&mut self, mut chunk: Vec<u8>) -> Result<Vec<u8>, BoxError> {
        match self.0.write(&chunk) {
            Ok(()) => {
                chunk.clear();
                Ok(chunk)
            }
            Err(error) => Err(Error::caused_by(ErrorKind::Connector, Recovery::GiveUp, &error).into()),
        }
    }
}
