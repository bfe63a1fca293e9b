//! The numbers of a running log, as OpenMetrics text.
//!
//! This file decides names and units. `archive.rs` and `deliver.rs` count.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use jiff::Timestamp;

/// Counters of one run.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The last recorded revision.
    pub(super) recorded: AtomicI64,
    /// The last stored revision.
    pub(super) stored: AtomicI64,
    /// Time, in seconds since 1970, up to which the stored log is complete.
    pub(super) stored_until: AtomicI64,
    /// Stored bytes of segments.
    pub(super) bytes: AtomicU64,
    /// Stored segments.
    pub(super) segments: AtomicU64,
    /// Gaps.
    pub(super) gaps: AtomicU64,
    /// Stored bytes that wait.
    pub(super) spool_bytes: AtomicU64,
}

impl Numbers {
    /// Renders the numbers.
    pub(super) fn render(&self, now: Timestamp) -> String {
        let lag = now.as_second().saturating_sub(self.stored_until.load(Relaxed)).max(0);
        let mut out = String::new();
        for (name, kind, help, value) in [
            ("revision", "gauge", "The last stored revision.", self.stored.load(Relaxed)),
            ("recorded_revision", "gauge", "The last recorded revision.", self.recorded.load(Relaxed)),
            ("lag_seconds", "gauge", "Age of the end of the stored log.", lag),
            ("bytes_total", "counter", "Stored bytes of segments.", self.bytes.load(Relaxed).cast_signed()),
            ("segments_total", "counter", "Stored segments.", self.segments.load(Relaxed).cast_signed()),
            ("gaps_total", "counter", "Gaps: etcd had compacted revisions.", self.gaps.load(Relaxed).cast_signed()),
            ("spool_bytes", "gauge", "Bytes that wait for the store.", self.spool_bytes.load(Relaxed).cast_signed()),
        ] {
            let family = name.strip_suffix("_total").unwrap_or(name);
            let _ = writeln!(out, "# HELP holdfast_log_{family} {help}\n# TYPE holdfast_log_{family} {kind}");
            let _ = writeln!(out, "holdfast_log_{name} {value}");
        }
        out + "# EOF\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_the_age_of_the_stored_end() {
        let numbers = Numbers::default();
        numbers.stored_until.store(100, Relaxed);
        numbers.stored.store(7, Relaxed);
        let text = numbers.render(Timestamp::from_second(130).unwrap());
        for line in ["holdfast_log_lag_seconds 30", "holdfast_log_revision 7", "# TYPE holdfast_log_bytes counter"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
