//! The agent's error: class, origin and message.
//!
//! This file decides the class of an operating system error. The table in `failure.rs` gives exit code and reason.
//! `crates/store/src/error_class.rs` and `snapshot-agent/etcd/src/connect.rs` classify the answers of stores and of etcd. Messages
//! never hold a secret, because a custom resource's status shows them.

use std::fmt::Display;
use std::io;

use crate::{ExitClass, Failure, GateReport, Origin};

/// Reason for which a run has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    class: ExitClass,
    origin: Option<Origin>,
    message: String,
    gate: Option<GateReport>,
    archived: bool,
}

/// Result of every step of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns an error of this class.
    pub fn new(class: ExitClass, message: impl Into<String>) -> Self {
        Self { class, origin: None, message: message.into(), gate: None, archived: false }
    }

    /// The request itself is wrong.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Config, message)
    }

    /// Credentials are missing, wrong or not allowed to do this.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Denied, message)
    }

    /// A named object does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ExitClass::NotFound, message)
    }

    /// The bytes are wrong.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Corrupt, message)
    }

    /// The same request may succeed later.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Transient, message)
    }

    /// The disk or the store is full.
    pub fn full(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Full, message)
    }

    /// The time is over.
    pub fn deadline(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Deadline, message)
    }

    /// The volume or the store belongs to another owner; the agent changed nothing.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Refused, message)
    }

    /// The store has another ID than expected; the agent wrote and removed nothing there (I25).
    pub fn exchanged(message: impl Into<String>) -> Self {
        Self::refused(message).with_origin(Origin::Store)
    }

    /// The request fits several lineages; the agent chose none (I9).
    pub fn unclear(message: impl Into<String>) -> Self {
        Self::refused(message).with_origin(Origin::Request)
    }

    /// The data requires credentials that do not exist.
    pub fn auth_required(message: impl Into<String>) -> Self {
        Self::new(ExitClass::AuthRequired, message)
    }

    /// Returns a gate's refusal, with its verdict for the report.
    pub fn gate(report: GateReport) -> Self {
        Self {
            class: ExitClass::Refused,
            origin: Some(Origin::Volume),
            message: report.message.clone(),
            gate: Some(report),
            archived: false,
        }
    }

    /// Marks the error of an object that the store has moved to an archive: the object is complete, and unreadable until a person
    /// restores it in the store.
    #[must_use]
    pub const fn in_archive(mut self, archived: bool) -> Self {
        self.archived = archived;
        self
    }

    /// Whether the store has moved the object to an archive.
    pub const fn is_archived(&self) -> bool {
        self.archived
    }

    /// Sets this origin.
    #[must_use]
    pub const fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    const fn or_of(self, origin: Origin) -> Self {
        if matches!(self.origin, Some(Origin::Dns)) { self } else { self.with_origin(origin) }
    }

    /// Returns the origin; `None`: the usual origin of the class.
    pub const fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Returns the row of the table of failures: exit code, retry, reason.
    pub fn failure(&self) -> &'static Failure {
        Failure::for_class(self.class, self.origin)
    }

    /// Returns the class.
    pub const fn class(&self) -> ExitClass {
        self.class
    }

    /// Returns the problem and the remedy.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the gate's report, if this is a gate's refusal.
    pub const fn gate_report(&self) -> Option<&GateReport> {
        self.gate.as_ref()
    }

    /// Puts the failed operation before the message.
    #[must_use]
    pub fn context(mut self, doing: impl Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }
}

/// Converts an operating system error of an operation; for `map_err`. Its origin is a volume: stores set their own.
pub fn io_error(doing: impl Display) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::new(io_class(error.kind()), format!("{doing}: {error}")).with_origin(Origin::Volume)
}

/// Sets the store as the origin, unless the origin is a DNS server; for `map_err`.
pub const fn of_store(error: Error) -> Error {
    error.or_of(Origin::Store)
}

/// Sets etcd as the origin, unless the origin is a DNS server; for `map_err`.
pub const fn of_etcd(error: Error) -> Error {
    error.or_of(Origin::Etcd)
}

/// Sets the request as the origin; for `map_err`. A named file that the agent cannot read is a wrong request, not a missing
/// snapshot.
pub fn of_request(mut error: Error) -> Error {
    if matches!(error.class, ExitClass::Denied | ExitClass::NotFound) {
        error.class = ExitClass::Config;
    }
    error.with_origin(Origin::Request)
}

/// Classifies an operating system error.
fn io_class(kind: io::ErrorKind) -> ExitClass {
    match kind {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ExitClass::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ExitClass::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => ExitClass::Full,
        io::ErrorKind::InvalidInput => ExitClass::Config,
        // A disk's I/O error, a stale NFS handle, an interrupted call: another attempt, perhaps on another node, may succeed.
        _ => ExitClass::Transient,
    }
}

/// Whether a read error may be transient. Missing permissions, and a file instead of a folder, are not.
pub fn may_pass(kind: io::ErrorKind) -> bool {
    !matches!(kind, io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory | io::ErrorKind::PermissionDenied)
}

/// Returns an error of this type from the chain of sources, if any.
pub fn beneath<'a, E: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // `source` of an operating system error skips the error inside.
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    None
}

/// Returns the error of a cancelled or panicked task, which has no more information.
pub fn task_error(error: &impl Display) -> Error {
    Error::transient(format!("a worker ended early: {error}")).with_origin(Origin::Own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_full_and_a_read_only_one_is_denied() {
        let class = |code| io_error("writing")(io::Error::from_raw_os_error(code)).class();
        assert_eq!(class(28), ExitClass::Full, "ENOSPC");
        assert_eq!(class(122), ExitClass::Full, "EDQUOT");
        assert_eq!(class(30), ExitClass::Denied, "EROFS");
        assert_eq!(class(13), ExitClass::Denied, "EACCES");
        assert_eq!(class(5), ExitClass::Transient, "EIO");
    }

    #[test]
    fn context_reads_from_the_outside_in() {
        let error = Error::not_found("no such bucket").context("reading the manifest");
        assert_eq!(error.to_string(), "reading the manifest: no such bucket");
        assert_eq!(error.class(), ExitClass::NotFound);
    }
}
