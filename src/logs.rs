//! Logs to standard error, for people or for machines. Standard output is for what was asked for.

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;

/// Starts logging. `level` is a filter as `tracing` knows it: `info`, or `info,holdfast=debug`.
pub fn start(format: LogFormat, level: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(level).with_context(|| {
        format!("--log-level {level:?} is not understood; write for example info, or info,holdfast=debug")
    });
    // A wrong filter has to be told, too.
    let (filter, outcome) = filter.map_or_else(|e| (EnvFilter::new("info"), Err(e)), |filter| (filter, Ok(())));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(true).with_span_list(false).init(),
        LogFormat::Text => lines.init(),
    }
    outcome
}
