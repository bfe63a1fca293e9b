//! Duration of each step: a line in the output, and a line in the list of slowest steps at the end of the run.

use std::fs::OpenOptions;
use std::future::Future;
use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result};

/// Runs one step of a story and notes its duration.
pub async fn step<T>(story: &str, what: &str, doing: impl Future<Output = Result<T>>) -> Result<T> {
    let begun = Instant::now();
    let result = doing.await.with_context(|| what.to_owned());
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!("e2e: {story}: {what}: {} ({seconds:.1} s)", if result.is_ok() { "done" } else { "FAILED" });
    if let Some(file) = std::env::var_os("HOLDFAST_STEPS") {
        let mut file = OpenOptions::new().create(true).append(true).open(file)?;
        writeln!(file, "{seconds:.1}\te2e {story}: {what}")?;
    }
    result
}
