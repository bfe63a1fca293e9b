//! `--wait`: looks again until the work is done, and prints each change.
//!
//! Decides the interval, the deadline, and how many looks may fail. The verb decides when the work is done.

use std::time::Duration;

use clap::Args;

use super::end::{DONE, FAILED, TIMED_OUT};
use super::progress::Live;

/// Interval of looks.
const LOOK: Duration = Duration::from_secs(1);

/// Looks in a row that may fail: the API server restarts within this time.
const PATIENCE: u32 = 30;

/// Flags about the wait.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Wait until the work is done, and print each change. Exit code 3 after the time limit; the work goes on.
    #[arg(long)]
    pub wait: bool,
    /// Time limit of --wait in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, requires = "wait")]
    pub timeout_seconds: u64,
}

/// Result of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The work is done.
    Done,
    /// The work goes on, with its progress.
    Waits(String),
    /// The work has failed, and does not go on.
    Failed(String),
}

impl Wait {
    /// Waits, if the person asks for it. Returns the exit code.
    pub async fn until(&self, check: impl AsyncFnMut() -> anyhow::Result<Look>) -> anyhow::Result<u8> {
        self.until_with(Live::without_figures, check).await
    }

    /// Waits for work whose progress is shown.
    pub async fn until_with(
        &self,
        live: impl FnOnce() -> Live,
        check: impl AsyncFnMut() -> anyhow::Result<Look>,
    ) -> anyhow::Result<u8> {
        if !self.wait {
            return Ok(DONE);
        }
        let mut live = live();
        let ended = until(Duration::from_secs(self.timeout_seconds), LOOK, &mut live, check).await;
        live.end();
        ended
    }
}

async fn until(
    limit: Duration,
    interval: Duration,
    live: &mut Live,
    mut check: impl AsyncFnMut() -> anyhow::Result<Look>,
) -> anyhow::Result<u8> {
    let (mut shown, mut failed) = (String::new(), 0);
    loop {
        let words = match check().await {
            Ok(Look::Done) => return Ok(DONE),
            Ok(Look::Failed(why)) => {
                live.say(&why);
                return Ok(FAILED);
            }
            Ok(Look::Waits(words)) => {
                failed = 0;
                words
            }
            Err(error) if failed >= PATIENCE => return Err(error),
            Err(error) => {
                failed += 1;
                format!("{error:#}")
            }
        };
        if words != shown {
            live.say(&words);
            shown = words;
        }
        live.tick();
        if live.elapsed() >= limit {
            live.say("the time of --wait is over; the work goes on");
            return Ok(TIMED_OUT);
        }
        tokio::time::sleep(interval).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ended(mut looks: Vec<anyhow::Result<Look>>, limit: Duration) -> Result<u8, String> {
        looks.reverse();
        let check = async || looks.pop().unwrap_or_else(|| Ok(Look::Waits("on".to_owned())));
        until(limit, Duration::ZERO, &mut Live::without_figures(), check).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_work_or_with_the_time() {
        let waits = || Ok(Look::Waits("w".to_owned()));
        let minute = Duration::from_mins(1);
        assert_eq!(ended(vec![waits(), Ok(Look::Done)], minute).await, Ok(DONE));
        assert_eq!(ended(vec![waits(), Ok(Look::Failed("f".to_owned()))], minute).await, Ok(FAILED));
        assert_eq!(ended(vec![waits()], Duration::ZERO).await, Ok(TIMED_OUT));
        let away = || Err(anyhow::anyhow!("away"));
        let short = (0..PATIENCE).map(|_| away()).chain([Ok(Look::Done)]).collect();
        assert_eq!(ended(short, minute).await, Ok(DONE));
        assert_eq!(ended((0..=PATIENCE).map(|_| away()).collect(), minute).await, Err("away".to_owned()));
    }
}
