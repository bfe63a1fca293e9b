//! Servers in front of a server, or in its place: a handler for each connection, and a proxy that breaks connections.
//!
//! `s3_proxy.rs` changes single requests of S3; `narrow.rs` limits the rate of a network.

use std::io::Result;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A port of loopback whose connections the test handles, for as long as the test keeps it.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Front {
    /// Starts a listener; `each` gets a connection, and the number of connections before it.
    pub(crate) async fn of<F>(each: impl Fn(TcpStream, u64) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let before = count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(each(client, before));
            }
        });
        Self { address, connections, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Number of connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A proxy's fault of each connection.
#[derive(Clone, Copy)]
pub(crate) enum Mischief {
    /// Cuts the connection after this many bytes of the server.
    Cut(u64),
    /// Stops after this many bytes of the server, and keeps the connection open.
    Freeze(u64),
    /// Alters a byte in each long run of the server's bytes.
    Spoil,
    /// Passes on this many of the server's bytes a second, and cuts the connection after this many in all.
    Slow(u64, u64),
}

impl Mischief {
    /// Starts a proxy with this fault in front of a server.
    pub(crate) async fn before(self, server: &str) -> Front {
        let server = server.trim_start_matches("http://").to_owned();
        Front::of(move |client, _| {
            let server = server.clone();
            async move { pass(client, TcpStream::connect(server).await?, self).await }
        })
        .await
    }
}

/// Counts connections, so that each alters another bit: two equal readings would be a verdict.
static SPOILT: AtomicU8 = AtomicU8::new(0);

async fn pass(client: TcpStream, server: TcpStream, mischief: Mischief) -> Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let limit = match mischief {
        Mischief::Cut(limit) | Mischief::Freeze(limit) | Mischief::Slow(_, limit) => limit,
        Mischief::Spoil => u64::MAX,
    };
    let spoil = 1_u8 << (SPOILT.fetch_add(1, Ordering::Relaxed) % 8);
    let (mut passed, mut buffer) = (0_u64, vec![0; 16 << 10]);
    while passed < limit {
        let got = from_server.read(&mut buffer).await?;
        if got == 0 {
            return Ok(());
        }
        passed += got as u64;
        if matches!(mischief, Mischief::Spoil) && got == buffer.len() {
            buffer[got / 2] ^= spoil;
        }
        to_client.write_all(&buffer[..got]).await?;
        if let Mischief::Slow(rate, _) = mischief {
            tokio::time::sleep(Duration::from_micros(got as u64 * 1_000_000 / rate)).await;
        }
    }
    if let Mischief::Freeze(_) = mischief {
        std::future::pending::<()>().await;
    }
    up.abort();
    Ok(())
}
