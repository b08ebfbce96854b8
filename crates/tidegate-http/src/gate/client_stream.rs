//! The connection to a client of the gate, and the sign that the client has closed it.
//!
//! While the gate prepares an answer, hyper does not read the connection, so that a client may close its sending half
//! and still get its answer. Therefore, hyper does not notice when the client closes the connection.

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
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use tokio_util::sync::CancellationToken;

/// A TCP connection to a client.
#[derive(Debug)]
pub struct ClientStream {
    /// A half of its own: Tokio saves the read that would find the buffer of the kernel empty.
    reading: OwnedReadHalf,
    socket: Arc<OwnedWriteHalf>,
}

/// The part of a connection that shows when the client closes it.
#[derive(Debug)]
pub struct ConnectionWatch(Arc<OwnedWriteHalf>);

impl ClientStream {
    /// Returns the connection, and the part of it that shows its end.
    pub fn new(client: TcpStream) -> (Self, ConnectionWatch) {
        let (reading, writing) = client.into_split();
        let socket = Arc::new(writing);
        let end = ConnectionWatch(Arc::clone(&socket));
        (Self { reading, socket }, end)
    }

    /// Reads bytes without removing them from the connection.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket().peek(bytes).await
    }

    fn socket(&self) -> &TcpStream {
        (*self.socket).as_ref()
    }
}

impl ConnectionWatch {
    /// Cancels `closed` when the client has closed the connection or its sending half, or does not answer the probes of
    /// TCP. Then waits for ever.
    pub async fn watch(self, closed: CancellationToken) -> Infallible {
        // `READABLE` and `PRIORITY` both report the end of reading. `PRIORITY` ignores unread bytes. An error also means
        // that the connection has ended.
        let _ended = self.0.ready(Interest::PRIORITY).await;
        closed.cancel();
        pending().await
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reading).poll_read(cx, buffer)
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
            ready!(self.socket().poll_write_ready(cx))?;
            match self.socket().try_write_vectored(slices) {
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
        Poll::Ready(SockRef::from(self.socket()).shutdown(Shutdown::Write))
    }
}
