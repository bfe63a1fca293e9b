//! The current step of a run, for a reader outside the run.
//!
//! Decides which step is the current one and its rate. `Progress` counts the bytes. Work inside [`Board::observe`] shows its
//! steps on the board without a parameter in each function, as it shows its bar at the terminal.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_contract::{ProgressReport, STARTING};
use jiff::Timestamp;

use super::Progress;
use crate::clock;

/// Period of the rate: long enough for a store that takes parts of 8 MiB, short enough to show a stall.
const PERIOD: Duration = Duration::from_secs(10);

/// Number of measurements, for readers that ask often.
const MEASUREMENTS: usize = 64;

tokio::task_local! {
    static BOARD: Board;
}

/// The current step; clones share it.
#[derive(Clone, Debug)]
pub struct Board(Arc<Mutex<Step>>);

#[derive(Debug)]
struct Step {
    progress: Option<Progress>,
    started_at: Timestamp,
    /// Bytes at earlier times, oldest first.
    measured: VecDeque<(Instant, u64)>,
}

impl Step {
    fn new(progress: Option<Progress>) -> Self {
        let bytes = progress.as_ref().map_or(0, Progress::bytes);
        Self { progress, started_at: clock::now(), measured: VecDeque::from([(Instant::now(), bytes)]) }
    }

    /// Returns the rate at this time, and keeps the measurement for the next one.
    fn measure(&mut self, now: Instant, bytes: u64) -> u64 {
        // The newest measurement that is a period old, or the first one.
        while self.measured.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= PERIOD) {
            self.measured.pop_front();
        }
        let (at, before) = self.measured.front().copied().unwrap_or((now, bytes));
        let last = self.measured.back().map_or(now, |(at, _)| *at);
        if self.measured.len() < MEASUREMENTS && now.duration_since(last) >= PERIOD / 20 {
            self.measured.push_back((now, bytes));
        }
        let millis = u128::from(bytes.saturating_sub(before)) * 1000 / now.duration_since(at).as_millis().max(1);
        u64::try_from(millis).unwrap_or(u64::MAX)
    }
}

impl Default for Board {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Step::new(None))))
    }
}

impl Board {
    /// Runs work whose steps appear on this board.
    pub async fn observe<T>(&self, work: impl Future<Output = T>) -> T {
        BOARD.scope(self.clone(), work).await
    }

    /// Makes this step the current one of the surrounding [`Board::observe`], if there is one.
    pub(super) fn show(progress: &Progress) {
        // Without a board the run has no reader.
        let _ = BOARD.try_with(|board| {
            *board.0.lock().unwrap_or_else(PoisonError::into_inner) = Step::new(Some(progress.clone()));
        });
    }

    /// Returns the progress of the current step.
    pub fn report(&self) -> ProgressReport {
        let mut step = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes_done = step.progress.as_ref().map_or(0, Progress::bytes);
        let rate_per_second = step.measure(Instant::now(), bytes_done);
        ProgressReport {
            phase: step.progress.as_ref().map_or(STARTING, Progress::doing).to_owned(),
            bytes_done,
            bytes_total: step.progress.as_ref().map(Progress::total).filter(|total| *total > 0),
            started_at: step.started_at,
            rate_per_second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_current_step_is_on_the_board_of_its_run_alone() {
        let (board, other) = (Board::default(), Board::default());
        assert_eq!((board.report().phase.as_str(), board.report().bytes_total), (STARTING, None));
        board
            .observe(async {
                let first = Progress::new("saving", 1000);
                first.add(300);
                let report = board.report();
                assert_eq!((report.phase.as_str(), report.bytes_done, report.bytes_total), ("saving", 300, Some(1000)));
                let second = Progress::new("reading back", 0);
                second.add(7);
                first.add(500);
                let report = board.report();
                assert_eq!((report.phase.as_str(), report.bytes_done, report.bytes_total), ("reading back", 7, None));
            })
            .await;
        Progress::new("elsewhere", 1).add(1);
        assert_eq!((board.report().phase.as_str(), other.report().phase.as_str()), ("reading back", STARTING));
    }

    #[test]
    fn the_rate_is_that_of_the_last_ten_seconds() {
        let mut step = Step::new(None);
        let begun = step.measured[0].0;
        let mut rates = vec![];
        for second in 1..=40_u64 {
            // A store that takes 100 bytes a second for 20 seconds, and then none.
            rates.push(step.measure(begun + Duration::from_secs(second), 100 * second.min(20)));
        }
        assert_eq!((rates[0], rates[19], rates[24], rates[39]), (100, 100, 50, 0));
        let mut often = Step::new(None);
        let begun = often.measured[0].0;
        for tenth in 1..=1000_u64 {
            often.measure(begun + Duration::from_millis(tenth * 100), tenth * 10);
        }
        assert!(often.measured.len() <= MEASUREMENTS);
        assert_eq!(often.measure(begun + Duration::from_secs(100), 10_000), 100);
    }
}
