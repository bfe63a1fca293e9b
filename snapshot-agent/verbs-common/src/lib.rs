//! Texts and errors that several verbs share; `progress_server.rs` answers about a run, `registry.rs` names the keys of a Kubernetes.

pub mod progress_server;
pub mod registry;

use std::time::Instant;

use holdfast_bbolt::scan::{Alarm, ScanError};
use holdfast_contract::error::Error;
use holdfast_contract::{Level, Origin, Verification, hex_id};
use holdfast_io::table::{align_columns, printable};
use indicatif::HumanBytes;

/// Returns the error for wrong combinations of FILE, --store and --key. The command line refuses them earlier.
pub fn neither() -> Error {
    Error::config("name either a FILE, or --store and --key")
}

/// Converts the error of a scan into the error of the run.
pub fn unsound(at: &str, error: &ScanError) -> Error {
    match error {
        ScanError::Io(_) => Error::transient(format!("{at}: {error}")).with_origin(Origin::Volume),
        ScanError::OverBudget { .. } => Error::config(format!(
            "{at}: {error}. The agent found no damage, but has too little memory to prove the snapshot. Raise \
             resources.limits.memory of its Pod (for a restore, spec.bootstrap.restore.agent.resources)"
        )),
        ScanError::NoMeta { .. } | ScanError::Cut { .. } | ScanError::Page { .. } | ScanError::Bucket { .. } => {
            Error::corrupt(format!("{at}: {error}"))
        }
    }
}

/// Describes an alarm and its member.
pub fn describe_alarm(alarm: &Alarm) -> String {
    let kind = match alarm.kind {
        1 => "NOSPACE".to_owned(),
        2 => "CORRUPT".to_owned(),
        other => format!("alarm {other}"),
    };
    format!("{kind} of member {}", hex_id(alarm.member))
}

/// Describes the level of proof, and the reasons for which the proof goes no further.
pub fn proven(found: &Verification) -> String {
    let level = match found.level {
        Level::HashKV => format!("HashKV, equal to that of {}", found.agreed_by.join(" and ")),
        Level::Structure => "the structure of the database".to_owned(),
        Level::Trailer => "the bytes that etcd sent".to_owned(),
    };
    let read_back = if found.read_back { "; the stored bytes were read back" } else { "" };
    let reasons = [&found.reason, &found.agreed_by_reason, &found.read_back_reason].into_iter().flatten();
    reasons.chain(&found.differences).fold(format!("{level}{read_back}"), |text, more| format!("{text}; {more}"))
}

/// Describes a revision and the number of keys at that revision.
pub fn revision(revision: Option<i64>, keys: Option<u64>) -> String {
    let revision = revision.map_or_else(|| "not known".to_owned(), |revision| revision.to_string());
    keys.map_or(revision.clone(), |keys| format!("{revision}, {keys} keys"))
}

/// Formats a size with a unit and in bytes.
pub fn bytes(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", HumanBytes(bytes))
}

/// Formats a duration to the hundredth of a second.
pub fn seconds(millis: u64) -> String {
    format!("{}.{:02} s", millis / 1000, millis % 1000 / 10)
}

/// Returns the whole seconds since this moment, rounded up.
pub fn seconds_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// Aligns names and values in columns. Removes control characters, so that a value cannot move the cursor.
pub fn lines(rows: &[(&str, String)]) -> String {
    let rows: Vec<_> = rows.iter().map(|(what, value)| [(*what).to_owned(), printable(value.as_bytes())]).collect();
    align_columns(&rows)
}
