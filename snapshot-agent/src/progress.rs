//! How far a run has come: a bar at a terminal, a log line every few seconds elsewhere, and the proof that something
//! still moves.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::{Error, Result};

/// Often enough to see that it lives, rare enough for a log.
const EVERY: Duration = Duration::from_secs(5);

/// How often the bar and the stall are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// A counter of bytes that clones share.
#[derive(Clone, Debug)]
pub struct Progress {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    doing: &'static str,
    bytes: AtomicU64,
    /// Signs of life that are no bytes of the whole.
    moves: AtomicU64,
    total: u64,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins to count towards about `total` bytes.
    pub fn new(doing: &'static str, total: u64) -> Self {
        Self::with(doing, total, std::io::stderr().is_terminal().then(|| bar(doing, total)))
    }

    /// Counts, and says nothing.
    pub fn silent() -> Self {
        Self::with("", 0, None)
    }

    fn with(doing: &'static str, total: u64, bar: Option<ProgressBar>) -> Self {
        let (bytes, moves) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { shared: Arc::new(Shared { doing, bytes, moves, total, since: Instant::now(), bar }) }
    }

    /// So many bytes more.
    pub fn add(&self, bytes: usize) {
        self.shared.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Something moves that is not counted: what was read already is on its way to the store.
    pub(crate) fn moved(&self) {
        self.shared.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// About how many it will be.
    pub fn total(&self) -> u64 {
        self.shared.total
    }

    /// Runs this work while telling how far it is; ends it when nothing has moved for `stall`.
    pub async fn watch<T>(&self, stall: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
        let result = tokio::select! {
            result = work => result,
            stalled = self.stalled(stall) => Err(stalled),
        };
        if let Some(bar) = &self.shared.bar {
            bar.set_position(self.bytes());
            bar.finish_and_clear();
        }
        result
    }

    async fn stalled(&self, limit: Duration) -> Error {
        let mut tick = tokio::time::interval(LOOK);
        let (mut moved, mut told, mut seen) = (Instant::now(), Instant::now(), (0, 0));
        loop {
            tick.tick().await;
            let bytes = self.bytes();
            let now = (bytes, self.shared.moves.load(Ordering::Relaxed));
            if now != seen {
                (moved, seen) = (Instant::now(), now);
            }
            if moved.elapsed() >= limit {
                return Error::deadline(format!(
                    "{}: nothing has moved for {} s after {bytes} bytes",
                    self.shared.doing,
                    limit.as_secs()
                ));
            }
            if let Some(bar) = &self.shared.bar {
                bar.set_position(bytes);
            } else if told.elapsed() >= EVERY {
                told = Instant::now();
                self.tell(bytes);
            }
        }
    }

    fn tell(&self, bytes: u64) {
        let Shared { doing, total, since, .. } = &*self.shared;
        let seconds = since.elapsed().as_secs().max(1);
        let rate = bytes / seconds;
        let left = total.saturating_sub(bytes).checked_div(rate);
        tracing::info!(
            bytes,
            total,
            mib_per_s = rate >> 20,
            seconds_left = left,
            "{doing}: {} of about {} MiB",
            bytes >> 20,
            total >> 20
        );
    }
}

fn bar(doing: &'static str, total: u64) -> ProgressBar {
    let template = "{msg} {bytes}/{total_bytes} [{bar:30}] {binary_bytes_per_sec} {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(doing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ExitClass;

    #[tokio::test]
    async fn a_stall_ends_the_work() {
        let progress = Progress::silent();
        let error = progress.watch(Duration::ZERO, std::future::pending::<Result<()>>()).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Deadline);
    }

    #[tokio::test]
    async fn work_that_moves_is_left_alone() {
        let progress = Progress::silent();
        let work = async {
            for _ in 0..6 {
                progress.add(1);
                tokio::time::sleep(LOOK).await;
            }
            Ok(progress.bytes())
        };
        assert_eq!(progress.watch(LOOK * 3, work).await, Ok(6));
    }
}
