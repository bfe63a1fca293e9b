//! A slow network in one direction: a limit of bytes per tenth of a second for each connection.
//!
//! It decides neither the bytes nor the rate that is too slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::front::Front;

/// Direction of the limited bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the server.
    Down,
    /// From the client.
    Up,
}

/// A proxy before a server.
pub(crate) struct Slow {
    front: Front,
    passed: Arc<AtomicU64>,
    hurries: Arc<AtomicBool>,
}

impl Slow {
    pub(crate) async fn before(server: &str, way: Way, bytes: usize) -> Self {
        let server = server.trim_start_matches("http://").to_owned();
        let (passed, hurries) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, hurry) = (Arc::clone(&passed), Arc::clone(&hurries));
        let pass = move |client: TcpStream, _| {
            let (server, count, hurry) = (server.clone(), Arc::clone(&count), Arc::clone(&hurry));
            async move {
                let server = TcpStream::connect(server).await?;
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                let (slow, fast) = match way {
                    Way::Down => ((from_server, to_client), (from_client, to_server)),
                    Way::Up => ((from_client, to_server), (from_server, to_client)),
                };
                tokio::spawn(drip(slow, bytes, count, hurry));
                let (mut from, mut to) = fast;
                tokio::io::copy(&mut from, &mut to).await.map(drop)
            }
        };
        Self { front: Front::of(pass).await, passed, hurries }
    }

    pub(crate) fn url(&self) -> String {
        self.front.url()
    }

    /// Number of bytes that passed in the slow direction.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Removes the limit.
    pub(crate) fn hurry(&self) {
        self.hurries.store(true, Ordering::Relaxed);
    }
}

async fn drip(
    (mut from, mut to): (OwnedReadHalf, OwnedWriteHalf),
    bytes: usize,
    passed: Arc<AtomicU64>,
    hurries: Arc<AtomicBool>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; bytes];
    loop {
        let got = from.read(&mut buffer).await?;
        if got == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..got]).await?;
        passed.fetch_add(got as u64, Ordering::Relaxed);
        if got == bytes && !hurries.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
