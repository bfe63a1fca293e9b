//! What ends a run from outside: its deadline, and the signals with which Kubernetes and people say stop.
//!
//! It only ends the work that was given to it; what has to be taken back is the caller's to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::error::{Error, Result, io_error};

/// Watches the clock and the signals.
pub(crate) struct Interrupt {
    /// When, and how long that was from the beginning. `None`: only by a signal.
    deadline: Option<(Instant, u64)>,
    sigterm: Signal,
    sigint: Signal,
    /// `None`: who started this process wants it to outlive the terminal (nohup(1)).
    sighup: Option<Signal>,
    came: bool,
}

/// Whether a person has ended a run of this process by Ctrl-C.
static BY_HAND: AtomicBool = AtomicBool::new(false);

/// Whether a person has ended a run of this process by Ctrl-C.
pub(crate) fn by_hand() -> bool {
    BY_HAND.load(Ordering::Relaxed)
}

/// Whether this process was started with this signal ignored (proc_pid_status(5)).
fn is_ignored(signal: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let bit = u32::try_from(signal.as_raw_value()).unwrap_or_default().saturating_sub(1);
    ignored.checked_shr(bit).is_some_and(|mask| mask & 1 == 1)
}

impl Interrupt {
    /// Begins to watch; from now on SIGTERM, SIGINT and SIGHUP no longer end the process by themselves.
    pub(crate) fn after(seconds: u64) -> Result<Self> {
        Self::at(Some((Instant::now() + Duration::from_secs(seconds), seconds)))
    }

    /// The same for work that may take as long as it takes.
    pub(crate) fn by_signal() -> Result<Self> {
        Self::at(None)
    }

    fn at(deadline: Option<(Instant, u64)>) -> Result<Self> {
        let listen = |kind| signal(kind).map_err(io_error("listening for signals"));
        Ok(Self {
            deadline,
            sigterm: listen(SignalKind::terminate())?,
            sigint: listen(SignalKind::interrupt())?,
            // Once listened to, it is ignored no more.
            sighup: if is_ignored(SignalKind::hangup()) { None } else { Some(listen(SignalKind::hangup())?) },
            came: false,
        })
    }

    /// Runs this work, unless something comes between. The work is dropped then.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let deadline = self.deadline;
        let over = async {
            match deadline {
                Some((at, seconds)) => {
                    tokio::time::sleep_until(at).await;
                    seconds
                }
                None => std::future::pending().await,
            }
        };
        let hangup = async {
            match &mut self.sighup {
                Some(sighup) => drop(sighup.recv().await),
                None => std::future::pending().await,
            }
        };
        let came = tokio::select! {
            result = work => return result,
            seconds = over => Error::deadline(format!("the deadline of {seconds} s passed")),
            _ = self.sigterm.recv() => Error::transient("stopped by SIGTERM"),
            _ = self.sigint.recv() => {
                BY_HAND.store(true, Ordering::Relaxed);
                Error::transient("stopped by SIGINT")
            }
            () = hangup => Error::transient("stopped by SIGHUP"),
        };
        self.came = true;
        Err(came)
    }

    /// Whether something has come between: then nothing new is begun.
    pub(crate) const fn came(&self) -> bool {
        self.came
    }
}
