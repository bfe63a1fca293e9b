//! Logs to standard error: JSON for machines, or text for people.

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    #[default]
    Json,
    /// For people.
    Text,
}

/// Starts logging. `level` is a filter as `tracing` knows it: `info`, or `info,holdfast=debug`.
pub fn init(format: Format, level: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(level).map_err(|e| {
        anyhow::anyhow!(
            "the log level {level:?} is not understood ({e}); write for example info or info,holdfast=debug"
        )
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        Format::Json => lines.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init(),
        Format::Text => lines.try_init(),
    };
    started.map_err(|e| anyhow::anyhow!("logging could not be started: {e}"))
}
