//! Interrupts of a run: its deadline, SIGTERM, SIGINT and SIGHUP.
//!
//! An interrupt drops the given work; the caller cleans up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_contract::error::{Error, Result, io_error};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Watches the deadline and the signals.
pub struct Interrupt {
    /// The deadline, and its seconds from the start. `None`: no deadline.
    deadline: Option<(Instant, u64)>,
    sigterm: Signal,
    sigint: Signal,
    /// `None`: the process was started to outlive the terminal (nohup(1)).
    sighup: Option<Signal>,
    came: bool,
}

/// Whether a user has ended a run of this process with Ctrl-C.
static BY_HAND: AtomicBool = AtomicBool::new(false);

/// Whether a user has ended a run of this process with Ctrl-C.
pub fn by_hand() -> bool {
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
    /// Starts the watch with a deadline; from now on SIGTERM, SIGINT and SIGHUP do not end the process.
    pub fn after(seconds: u64) -> Result<Self> {
        Self::at(Some((Instant::now() + Duration::from_secs(seconds), seconds)))
    }

    /// Starts the watch without a deadline.
    pub fn by_signal() -> Result<Self> {
        Self::at(None)
    }

    fn at(deadline: Option<(Instant, u64)>) -> Result<Self> {
        let listen = |kind| signal(kind).map_err(io_error("listening for signals"));
        Ok(Self {
            deadline,
            sigterm: listen(SignalKind::terminate())?,
            sigint: listen(SignalKind::interrupt())?,
            // Listening would end the ignored state.
            sighup: if is_ignored(SignalKind::hangup()) { None } else { Some(listen(SignalKind::hangup())?) },
            came: false,
        })
    }

    /// Runs this work; on an interrupt the work is dropped.
    pub async fn unless<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
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

    /// Whether an interrupt has come: no new work may start then.
    pub const fn came(&self) -> bool {
        self.came
    }
}
