//! How a command for people ends: the exit code, and one line about an error.
//!
//! Decides the codes. `snapshot create` and `upgrade plan` have codes of their own, which `CronJob`s read.

use std::io::{self, Write};

/// The command did its work.
pub const DONE: u8 = 0;
/// The command failed; a repetition may succeed.
pub const FAILED: u8 = 1;
/// The flags, or the names in them, are wrong; a repetition changes nothing. clap uses the same code.
pub const WRONG_USE: u8 = 2;
/// The time of `--wait` is over; the work goes on.
pub const TIMED_OUT: u8 = 3;

/// An error of the person's command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongUse(String);

/// Returns an error that ends with [`WRONG_USE`].
pub fn wrong_use(why: impl Into<String>) -> anyhow::Error {
    WrongUse(why.into()).into()
}

/// Returns the exit code, and prints an error as kubectl prints one.
pub fn code(outcome: anyhow::Result<u8>) -> u8 {
    outcome.unwrap_or_else(|error| {
        // Without standard error no reader is left.
        let _ = writeln!(io::stderr(), "error: {error:#}");
        if error.is::<WrongUse>() { WRONG_USE } else { FAILED }
    })
}

/// Prints text; a reader that closes the pipe (`| head`) is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn a_wrong_name_and_a_failure_have_codes_of_their_own() {
        assert_eq!(code(Ok(TIMED_OUT)), TIMED_OUT);
        assert_eq!(code(Err(anyhow!("no route"))), FAILED);
        let wrong: anyhow::Result<u8> = Err(wrong_use("there is no EtcdCluster a"));
        assert_eq!(code(wrong.context("status")), WRONG_USE);
    }
}
