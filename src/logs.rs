//! Log lines to standard error, for people or for machines. Standard output is reserved for results.

use std::io::IsTerminal as _;

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::LogFormat;

/// Starts logging. `level` is a level, or a `tracing` filter: `info`, or `info,holdfast=debug`. `for_a_person`: not the operator.
pub fn start(format: LogFormat, level: &str, for_a_person: bool) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(our_filter(level, for_a_person)).with_context(|| {
        format!("--log-level {level:?} is not understood; write for example info, or info,holdfast=debug")
    });
    // An invalid filter is logged, too.
    let (filter, outcome) = filter.map_or_else(|e| (EnvFilter::new("info"), Err(e)), |filter| (filter, Ok(())));
    // No colours for a file or a log collector, or for a user who disables colours (no-color.org).
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(coloured);
    match format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(true).with_span_list(false).init(),
        LogFormat::Text => lines.init(),
    }
    outcome
}

/// Returns the filter for a level. A level below `info` applies only to Holdfast's own crates: HTTP/2 logs each frame at
/// `debug`, and a save takes a fifth longer. object_store's lines about retries name no host, and the agent logs retries
/// itself. hickory warns of each invalid line of resolv.conf at each look-up, and kube of `insecure-skip-tls-verify` at each
/// connection, which the person's own kubeconfig asks for.
fn our_filter(level: &str, for_a_person: bool) -> String {
    let tls = if for_a_person { ",kube_client::client::tls=error" } else { "" };
    let silent = format!("object_store::client::retry=warn,hickory_resolver=error{tls}");
    match level.parse::<LevelFilter>() {
        Ok(level) if level > LevelFilter::INFO => format!("info,holdfast={level},{silent}"),
        Ok(LevelFilter::INFO) => format!("info,{silent}"),
        Ok(_) | Err(_) => level.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_told_of_us_alone() {
        let silent = "object_store::client::retry=warn,hickory_resolver=error";
        let our_filter = |level| our_filter(level, false);
        assert!(super::our_filter("info", true).ends_with(",kube_client::client::tls=error"));
        assert_eq!(our_filter("debug"), format!("info,holdfast=debug,{silent}"));
        assert_eq!(our_filter("TRACE"), format!("info,holdfast=trace,{silent}"));
        assert_eq!(our_filter("info"), format!("info,{silent}"));
        assert!(EnvFilter::try_new(our_filter("info")).is_ok());
        for same in ["warn", "off", "h2=debug", "info,kube=debug", "nonsense"] {
            assert_eq!(our_filter(same), same);
        }
    }
}
