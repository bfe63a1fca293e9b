//! A handshake over a connection that carries no data, for `served.rs` and `probe.rs`.
//!
//! Decides nothing: each of them says when the handshake is over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Deadline of a handshake: Pods are one hop away.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);

/// State of a handshake after the records that arrived together.
pub(super) struct Read {
    /// Whether the handshake was over on this side before they arrived.
    pub(super) was_over: bool,
    /// Whether a record was refused, by either side, or the server has ended the connection.
    pub(super) failed: bool,
}

/// Shakes hands until `is_over` says so; `None` where the connection ends before.
pub(super) async fn shake<T>(
    at: SocketAddr,
    config: Arc<ClientConfig>,
    is_over: impl Fn(Read) -> Option<T>,
) -> std::io::Result<Option<T>> {
    let name = ServerName::IpAddress(at.ip().into());
    let mut connection = ClientConnection::new(config, name).map_err(std::io::Error::other)?;
    let mut socket = TcpStream::connect(at).await?;
    let mut buffer = vec![0; 16 << 10];
    loop {
        let mut out = vec![];
        while connection.wants_write() {
            connection.write_tls(&mut out)?;
        }
        socket.write_all(&out).await?;
        let was_over = !connection.is_handshaking();
        let read = socket.read(&mut buffer).await?;
        if read == 0 {
            return Ok(None);
        }
        let mut received = buffer.get(..read).unwrap_or_default();
        let mut failed = false;
        while !received.is_empty() && !failed {
            connection.read_tls(&mut received)?;
            failed = connection.process_new_packets().map_or(true, |state| state.peer_has_closed());
        }
        if let Some(over) = is_over(Read { was_over, failed }) {
            return Ok(Some(over));
        }
    }
}
