//! What several verbs say about the same things.

use crate::contract::{Origin, hex_id};
use crate::error::Error;
use crate::scan::{Alarm, ScanError};

/// The flags do not go together; the command line says so before.
pub(crate) fn neither() -> Error {
    Error::config("name either a FILE, or --store and --key")
}

/// What a scan's refusal means for the run.
pub(crate) fn unsound(at: &str, error: &ScanError) -> Error {
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

/// What is the matter, and with which member.
pub(crate) fn describe_alarm(alarm: &Alarm) -> String {
    let kind = match alarm.kind {
        1 => "NOSPACE".to_owned(),
        2 => "CORRUPT".to_owned(),
        other => format!("alarm {other}"),
    };
    format!("{kind} of member {}", hex_id(alarm.member))
}
