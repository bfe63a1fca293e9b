//! The agent's error: class, origin and message.
//!
//! It decides which class an operating system error belongs to. Exit code and reason follow from the table in
//! `contract/failure.rs`. What a store's or etcd's answer means is decided
//! beside the calls, in `store/error_class.rs` and `etcd/connect.rs`. Messages never hold a secret: they are shown in a custom
//! resource's status.

use std::fmt::Display;
use std::io;

use crate::contract::{ExitClass, Failure, GateReport, Origin};

/// Why a run ended without doing what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    class: ExitClass,
    origin: Option<Origin>,
    message: String,
    gate: Option<GateReport>,
}

/// What every step of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of this class.
    pub fn new(class: ExitClass, message: impl Into<String>) -> Self {
        Self { class, origin: None, message: message.into(), gate: None }
    }

    /// The request itself is wrong.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Config, message)
    }

    /// Credentials are missing, wrong or not allowed to do this.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Denied, message)
    }

    /// Something that is named is not there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ExitClass::NotFound, message)
    }

    /// Bytes are not what they have to be.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Corrupt, message)
    }

    /// The same request may succeed later.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Transient, message)
    }

    /// No space.
    pub fn full(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Full, message)
    }

    /// Out of time.
    pub fn deadline(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Deadline, message)
    }

    /// The volume or the store is not ours; nothing was touched.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Refused, message)
    }

    /// The store is not the expected one; nothing was written or removed there (I25).
    pub fn exchanged(message: impl Into<String>) -> Self {
        Self::refused(message).with_origin(Origin::Store)
    }

    /// The request fits several lineages; none was chosen (I9).
    pub fn unclear(message: impl Into<String>) -> Self {
        Self::refused(message).with_origin(Origin::Request)
    }

    /// The data asks for credentials that there are none of.
    pub fn auth_required(message: impl Into<String>) -> Self {
        Self::new(ExitClass::AuthRequired, message)
    }

    /// A gate's refusal, with its verdict for the report.
    pub(crate) fn gate(report: GateReport) -> Self {
        Self {
            class: ExitClass::Refused,
            origin: Some(Origin::Volume),
            message: report.message.clone(),
            gate: Some(report),
        }
    }

    /// The same error, with this origin.
    #[must_use]
    pub const fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    const fn or_of(self, origin: Origin) -> Self {
        if matches!(self.origin, Some(Origin::Dns)) { self } else { self.with_origin(origin) }
    }

    /// Where the error comes from; `None`: where errors of its class usually do.
    pub const fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// The row of the table of failures: exit code, retry, reason.
    pub fn failure(&self) -> &'static Failure {
        Failure::of(self.class, self.origin)
    }

    /// The class.
    pub const fn class(&self) -> ExitClass {
        self.class
    }

    /// What happened and what to do about it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The gate's report, when this is a gate's refusal.
    pub const fn gate_report(&self) -> Option<&GateReport> {
        self.gate.as_ref()
    }

    /// The same error, saying what was being done.
    #[must_use]
    pub fn context(mut self, doing: impl Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }
}

/// Turns an operating system error into ours, saying what was being done; for `map_err`. Its origin is a volume: stores
/// set their own.
pub(crate) fn io_error(doing: impl Display) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::new(io_class(error.kind()), format!("{doing}: {error}")).with_origin(Origin::Volume)
}

/// Sets the store as the origin, unless a DNS server is; for `map_err`.
pub(crate) const fn of_store(error: Error) -> Error {
    error.or_of(Origin::Store)
}

/// Sets etcd as the origin, unless a DNS server is; for `map_err`.
pub(crate) const fn of_etcd(error: Error) -> Error {
    error.or_of(Origin::Etcd)
}

/// Sets the request as the origin; for `map_err`. A file that the request names and the agent cannot read is a wrong
/// request, no missing snapshot.
pub(crate) fn of_request(mut error: Error) -> Error {
    if matches!(error.class, ExitClass::Denied | ExitClass::NotFound) {
        error.class = ExitClass::Config;
    }
    error.with_origin(Origin::Request)
}

/// What an operating system error means for the run.
fn io_class(kind: io::ErrorKind) -> ExitClass {
    match kind {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ExitClass::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ExitClass::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => ExitClass::Full,
        io::ErrorKind::InvalidInput => ExitClass::Config,
        // A disk's I/O error, a stale NFS handle, an interrupted call: another try, maybe on another node, may work.
        _ => ExitClass::Transient,
    }
}

/// Whether what kept a file from being read may be gone at the next look; rights, and a file where a folder should be, are
/// not.
pub(crate) fn may_pass(kind: io::ErrorKind) -> bool {
    !matches!(kind, io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory | io::ErrorKind::PermissionDenied)
}

/// An error of this kind underneath, if there is one.
pub fn beneath<'a, E: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // An operating system's error hides what was put into it from `source`.
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    None
}

/// A task of ours that was cancelled or died; there is no more to say about it.
pub(crate) fn task_error(error: &tokio::task::JoinError) -> Error {
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
