//! Progress of a run: a bar at a terminal, otherwise a log line every few seconds; and the detection of a stall. `board.rs` shows
//! the current step to a reader outside the run.

mod board;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_contract::error::{Error, Result};
use indicatif::{ProgressBar, ProgressStyle};

pub use board::Board;

/// Often enough to show progress, rare enough for a log.
const EVERY: Duration = Duration::from_secs(5);

/// Interval of the bar and of the stall check.
const INTERVAL: Duration = Duration::from_millis(250);

/// Period over which a required rate is measured.
const PACE: Duration = Duration::from_mins(1);

/// A counter of bytes, shared by clones.
#[derive(Clone, Debug)]
pub struct Progress {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    doing: &'static str,
    bytes: AtomicU64,
    /// Steps of progress that are not counted in bytes.
    moves: AtomicU64,
    /// All bytes have arrived: later work is not counted.
    ended: AtomicBool,
    total: u64,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Counts towards about `total` bytes.
    pub fn new(doing: &'static str, total: u64) -> Self {
        let progress = Self::with(doing, total, std::io::stderr().is_terminal().then(|| bar(doing, total)));
        Board::show(&progress);
        progress
    }

    /// Counts without output.
    pub fn silent() -> Self {
        Self::with("", 0, None)
    }

    fn with(doing: &'static str, total: u64, bar: Option<ProgressBar>) -> Self {
        let (bytes, moves) = (AtomicU64::new(0), AtomicU64::new(0));
        let ended = AtomicBool::new(false);
        Self { shared: Arc::new(Shared { doing, bytes, moves, ended, total, since: Instant::now(), bar }) }
    }

    /// Adds bytes.
    pub fn add(&self, bytes: usize) {
        self.shared.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Records uncounted progress: bytes that were read already go to the store.
    pub fn moved(&self) {
        self.shared.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for work. Work with time limits of its own counts as progress.
    pub async fn outlast<T>(&self, has_limits: bool, work: impl Future<Output = T>) -> T {
        let (mut work, mut tick) = (std::pin::pin!(work), tokio::time::interval(INTERVAL));
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = tick.tick(), if has_limits => self.moved(),
            }
        }
    }

    /// Waits for another process, whose progress is the length of a file. The file may exceed the total, or be created again;
    /// neither is shown. Other reads and writes of the process count as progress too: a database larger than the memory is read
    /// again from the disk, while no file grows.
    pub async fn follow<T>(&self, file: &Path, process: Option<u32>, work: impl Future<Output = T>) -> T {
        let (mut work, mut tick) = (std::pin::pin!(work), tokio::time::interval(INTERVAL));
        let mut before = 0;
        loop {
            let measured = async {
                tick.tick().await;
                let length = tokio::fs::metadata(file).await.map_or(0, |metadata| metadata.len());
                (length, transferred(process).await)
            };
            tokio::select! {
                done = &mut work => return done,
                (length, transfers) = measured => {
                    self.shared.bytes.fetch_max(length.min(self.total()), Ordering::Relaxed);
                    if transfers >= before + AT_WORK {
                        self.moved();
                        before = transfers;
                    }
                }
            }
        }
    }

    /// Ends the counting: all bytes have arrived.
    pub fn ended(&self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }

    /// Returns the name of the step.
    pub fn doing(&self) -> &'static str {
        self.shared.doing
    }

    /// Returns the number of bytes so far.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Returns the approximate total.
    pub fn total(&self) -> u64 {
        self.shared.total
    }

    /// Runs this work with progress output; ends it with an error after `stall` without progress.
    pub async fn watch<T>(&self, stall: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.watch_pace(stall, 0, work).await
    }

    /// Like [`Progress::watch`], and also ends the work when it is slower than `least` bytes a second for a minute, until
    /// [`Progress::ended`].
    pub async fn watch_pace<T>(&self, stall: Duration, least: u64, work: impl Future<Output = Result<T>>) -> Result<T> {
        let result = tokio::select! {
            result = work => result,
            stalled = self.stalled(stall, least) => Err(stalled),
        };
        if let Some(bar) = &self.shared.bar {
            bar.set_position(self.bytes());
            bar.finish_and_clear();
        }
        result
    }

    async fn stalled(&self, limit: Duration, least: u64) -> Error {
        let mut tick = tokio::time::interval(INTERVAL);
        let (mut moved, mut printed, mut seen) = (Instant::now(), Instant::now(), (0, 0));
        let mut pace = Pace { least, since: Instant::now(), before: 0 };
        loop {
            tick.tick().await;
            let bytes = self.bytes();
            let now = (bytes, self.shared.moves.load(Ordering::Relaxed));
            if now != seen {
                (moved, seen) = (Instant::now(), now);
            }
            if moved.elapsed() >= limit {
                return Error::deadline(format!(
                    "{}: no byte has moved for {} s after {bytes} bytes",
                    self.shared.doing,
                    limit.as_secs()
                ));
            }
            if let Some(rate) = pace.too_slow(Instant::now(), bytes)
                && !self.shared.ended.load(Ordering::Relaxed)
            {
                return too_slow(self.shared.doing, rate, least);
            }
            if let Some(bar) = &self.shared.bar {
                bar.set_position(bytes);
            } else if printed.elapsed() >= EVERY {
                printed = Instant::now();
                self.report(bytes);
            }
        }
    }

    fn report(&self, bytes: u64) {
        let Shared { doing, total, since, .. } = &*self.shared;
        let seconds = since.elapsed().as_secs().max(1);
        let rate = bytes / seconds;
        let remaining = total.saturating_sub(bytes).checked_div(rate);
        tracing::info!(
            bytes,
            total,
            kib_per_s = rate >> 10,
            seconds_left = remaining,
            "{doing}: {} of about {} MiB",
            bytes >> 20,
            total >> 20
        );
    }
}

/// Fewer bytes are no progress: Go's runtime writes a few bytes to itself now and then.
const AT_WORK: u64 = 64 << 10;

/// Returns the bytes that a process has read and written, by calls and by mapped pages (proc(5): `/proc/pid/io`).
async fn transferred(process: Option<u32>) -> u64 {
    let Some(process) = process else { return 0 };
    let text = tokio::fs::read_to_string(format!("/proc/{process}/io")).await.unwrap_or_default();
    let counts = text.lines().filter_map(|line| line.split_once(": "));
    let bytes = counts.filter(|(name, _)| matches!(*name, "rchar" | "wchar" | "read_bytes" | "write_bytes"));
    bytes.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).fold(0, u64::saturating_add)
}

/// A required rate, checked each minute.
struct Pace {
    /// Bytes per second.
    least: u64,
    since: Instant,
    before: u64,
}

impl Pace {
    /// Returns the rate of the last minute if it was too low.
    fn too_slow(&mut self, now: Instant, bytes: u64) -> Option<u64> {
        if now.duration_since(self.since) < PACE {
            return None;
        }
        let rate = (bytes - self.before) / PACE.as_secs();
        (self.since, self.before) = (now, bytes);
        (rate < self.least).then_some(rate)
    }
}

/// Returns the error with the remedy.
fn too_slow(doing: &str, rate: u64, least: u64) -> Error {
    Error::deadline(format!(
        "{doing}: {} KiB a second for a minute, less than the {} KiB of --min-throughput-kib (spec.minimumThroughput). \
         While a save waits for the store, etcd cannot reuse the space of deleted data. Check the store and the \
         network to the store, buffer the snapshot on a volume (spec.spool, --spool-dir), or lower the minimum",
        rate >> 10,
        least >> 10
    ))
}

fn bar(doing: &'static str, total: u64) -> ProgressBar {
    let template = "{msg} {bytes}/{total_bytes} [{bar:30}] {binary_bytes_per_sec} {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(doing)
}

/// Without a byte from etcd, or space for one, for this long, the stream only pins etcd's read transaction.
pub const STALL: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use holdfast_contract::ExitClass;

    use super::*;

    #[tokio::test]
    async fn a_stall_ends_the_work() {
        let progress = Progress::silent();
        let error = progress.watch(Duration::ZERO, std::future::pending::<Result<()>>()).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Deadline);
    }

    #[test]
    fn a_trickle_is_told_after_a_minute_and_a_flood_never() {
        let begun = Instant::now();
        for (bytes_per_second, slow) in [(9 << 10, true), (10 << 10, false), (u64::MAX >> 20, false)] {
            let mut pace = Pace { least: 10 << 10, since: begun, before: 0 };
            let mut told = vec![];
            for second in 1..=180 {
                let now = begun + Duration::from_secs(second);
                told.extend(pace.too_slow(now, bytes_per_second * second).map(|rate| (second, rate)));
            }
            let expected = if slow { vec![(60, 9 << 10), (120, 9 << 10), (180, 9 << 10)] } else { vec![] };
            assert_eq!(told, expected, "{bytes_per_second}");
        }
        // A fast minute does not compensate for a slow one.
        let mut pace = Pace { least: 10 << 10, since: begun, before: 0 };
        assert_eq!(pace.too_slow(begun + PACE, 1 << 30), None);
        assert_eq!(pace.too_slow(begun + PACE * 2, (1 << 30) + 6000), Some(100));
    }

    #[tokio::test]
    async fn work_that_moves_is_left_alone() {
        let progress = Progress::silent();
        let work = async {
            for _ in 0..6 {
                progress.add(1);
                tokio::time::sleep(INTERVAL).await;
            }
            Ok(progress.bytes())
        };
        assert_eq!(progress.watch(INTERVAL * 3, work).await, Ok(6));
    }

    #[tokio::test]
    async fn a_file_is_followed_up_to_the_total_and_never_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let progress = Progress::with("copying", 1000, None);
        let work = async {
            tokio::time::sleep(INTERVAL * 2).await;
            let mut seen = vec![progress.bytes()];
            for length in [300, 200, 5000] {
                std::fs::File::create(&path).unwrap().set_len(length).unwrap();
                tokio::time::sleep(INTERVAL * 6).await;
                seen.push(progress.bytes());
            }
            seen
        };
        assert_eq!(progress.follow(&path, None, work).await, [0, 300, 300, 1000]);
    }

    #[tokio::test]
    async fn what_has_a_limit_of_its_own_may_take_longer_than_a_stall() {
        let progress = Progress::silent();
        let slow = || async {
            tokio::time::sleep(INTERVAL * 6).await;
            Ok(1)
        };
        assert_eq!(progress.watch(INTERVAL * 3, progress.outlast(true, slow())).await, Ok(1));
        let error = progress.watch(INTERVAL * 3, progress.outlast(false, slow())).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Deadline);
    }
}
