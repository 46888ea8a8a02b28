//! Lines from a TCP connection.

use std::fmt;
use std::io::{ErrorKind, Read as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use super::blocking::{BlockingRead, Read, ReadAhead};
use super::lines::{LineCutter, text_of};
use crate::base::clock::Nanos;
use crate::base::error::BoxError;
use crate::operator::{OpenContext, Output, Source, SourceStatus};

const BLOCK_BYTES: usize = 64 * 1024;
const BLOCKS_AHEAD: usize = 8;
/// How long one read waits for data: a job that ends waits that long for its reader.
const READ_TIMEOUT: Duration = Duration::from_millis(50);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads lines from TCP connections, one for each address; the end of all of them is the end of the input.
///
/// A connection cannot be put back: what was on its way when the job failed is lost, and a restart connects anew. Each connection
/// is read by one subtask.
#[derive(Debug, Clone)]
pub struct SocketSource {
    addresses: Vec<String>,
    connections: Vec<Connection>,
    warned: bool,
    /// In whose name lines are logged.
    span: tracing::Span,
}

/// One connection of the open source.
struct Connection {
    address: String,
    blocks: Option<ReadAhead<Vec<u8>>>,
    cutter: LineCutter,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Clone for Connection {
    /// The same connection, not open.
    fn clone(&self) -> Self {
        Self { address: self.address.clone(), blocks: None, cutter: LineCutter::default() }
    }
}

impl SocketSource {
    /// A source that connects to this address, `host:port`.
    pub fn new(address: impl Into<String>) -> Self {
        Self::all([address])
    }

    /// A source that connects to all of these addresses.
    pub fn all<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Self {
        Self {
            addresses: addresses.into_iter().map(Into::into).collect(),
            connections: Vec::new(),
            warned: false,
            span: tracing::Span::none(),
        }
    }

    fn text_of(&mut self, connection: usize, (text, was_replaced): (String, bool)) -> String {
        if was_replaced && !self.warned {
            self.warned = true;
            tracing::warn!(
                target: "stoplog::connectors::socket",
                parent: &self.span,
                "{} sends a line that is not UTF-8; such bytes are replaced by U+FFFD",
                self.connections[connection].address
            );
        }
        text
    }
}

impl Source for SocketSource {
    type Out = String;
    /// The address.
    type Split = String;

    fn create_splits(&mut self, _parallelism: u32) -> Result<Vec<String>, BoxError> {
        Ok(self.addresses.clone())
    }

    fn open(&mut self, splits: Vec<String>, cx: &mut OpenContext<'_>) -> Result<(), BoxError> {
        self.span = tracing::Span::current();
        for address in splits {
            let reader = SocketReader { address: address.clone(), stream: None };
            let blocks = ReadAhead::spawn(cx, "receive", BLOCKS_AHEAD, reader)?;
            self.connections.push(Connection {
                address,
                blocks: Some(blocks),
                cutter: LineCutter::default(),
            });
        }
        Ok(())
    }

    fn poll(&mut self, output: &mut impl Output<String>, max: usize) -> Result<SourceStatus, BoxError> {
        let mut left = max;
        let mut status = SourceStatus::Ended;
        for index in 0..self.connections.len() {
            loop {
                let connection = &mut self.connections[index];
                let mut line = connection.cutter.next(text_of);
                if line.is_none() {
                    let Some(blocks) = &mut connection.blocks else { break };
                    match blocks.take()? {
                        Read::Item(block) => {
                            connection.cutter.feed(block);
                            continue;
                        }
                        Read::Later => {
                            status = SourceStatus::Idle(Nanos::MAX);
                            break;
                        }
                        Read::End => {
                            connection.blocks = None;
                            line = connection.cutter.last(text_of);
                        }
                    }
                }
                let Some(line) = line else { break };
                let line = self.text_of(index, line);
                left = left.saturating_sub(1);
                if output.collect(line).is_blocked() || left == 0 {
                    // The connections take turns at being first.
                    self.connections.rotate_left(index + 1);
                    return Ok(SourceStatus::Ready);
                }
            }
        }
        Ok(status)
    }

    fn snapshot(&self) -> Vec<String> {
        self.connections.iter().map(|connection| connection.address.clone()).collect()
    }

    fn is_replayable(&self) -> bool {
        false
    }
}

struct SocketReader {
    address: String,
    stream: Option<TcpStream>,
}

impl SocketReader {
    fn connect(&self) -> Result<TcpStream, BoxError> {
        let failed = |error| format!("cannot connect to {}: {error}", self.address);
        let mut outcome = Err(format!("cannot connect to {}: the name has no address", self.address));
        for address in self.address.to_socket_addrs().map_err(failed)? {
            outcome = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(failed);
            if outcome.is_ok() {
                break;
            }
        }
        let stream = outcome?;
        stream.set_read_timeout(Some(READ_TIMEOUT)).map_err(failed)?;
        Ok(stream)
    }
}

impl BlockingRead for SocketReader {
    type Item = Vec<u8>;

    fn read(&mut self) -> Result<Read<Vec<u8>>, BoxError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = self.connect()?;
                self.stream.insert(stream)
            }
        };
        let mut bytes = vec![0; BLOCK_BYTES];
        match stream.read(&mut bytes) {
            Ok(0) => Ok(Read::End),
            Ok(count) => {
                bytes.truncate(count);
                // A slow sender must not make small blocks hold much memory.
                bytes.shrink_to_fit();
                Ok(Read::Item(bytes))
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(Read::Later),
                _ => Err(format!("cannot read from {}: {error}", self.address).into()),
            },
        }
    }
}
