//! The connection to a client of the gate, and the sign that the client has closed it.
//!
//! While the gate prepares an answer, hyper does not read the connection, so that a client may close its sending half
//! and still get its answer. So hyper does not notice either that the client has gone.

use std::{
    convert::Infallible,
    future::pending,
    io,
    net::Shutdown,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

/// A TCP connection to a client. Its clones are the same connection.
#[derive(Clone, Debug)]
pub struct ClientStream(Arc<TcpStream>);

impl ClientStream {
    pub fn new(client: TcpStream) -> Self {
        Self(Arc::new(client))
    }

    /// Reads bytes without removing them from the connection.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.peek(bytes).await
    }

    /// Cancels `closed` when the client has closed the connection or its sending half, or does not answer the probes of
    /// TCP. Then waits for ever.
    pub async fn watch_end(self, closed: CancellationToken) -> Infallible {
        // Of the two interests that include the end of reading, this one ignores bytes that wait to be read. An error
        // says as well that the connection has ended.
        let _ended = self.0.ready(Interest::PRIORITY).await;
        closed.cancel();
        pending().await
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|bytes| buffer.advance(bytes))),
            }
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}
