//! What ends a run from outside: its deadline, and the signals with which Kubernetes and people say stop.
//!
//! It only ends the work that was given to it; what has to be taken back is the caller's to do.

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
    came: bool,
}

impl Interrupt {
    /// Begins to watch; from now on SIGTERM and SIGINT no longer end the process by themselves.
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
        let came = tokio::select! {
            result = work => return result,
            seconds = over => Error::deadline(format!("the deadline of {seconds} s passed")),
            _ = self.sigterm.recv() => Error::transient("stopped by SIGTERM"),
            _ = self.sigint.recv() => Error::transient("stopped by SIGINT"),
        };
        self.came = true;
        Err(came)
    }

    /// Whether something has come between: then nothing new is begun.
    pub(crate) const fn came(&self) -> bool {
        self.came
    }
}
