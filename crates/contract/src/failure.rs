//! The table of failures: maps the class and the origin of an error to exit code, retry and reason.
//!
//! The agent exits with the code, the operator writes the Job's `podFailurePolicy` from the retries, and finds the reason and
//! its runbook by the code. `docs/exit-codes.md` shows this table. The code that returns an error decides its class and origin.

use serde::{Deserialize, Serialize};

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExitClass {
    /// The request is wrong: a flag, a location, a Secret without its keys.
    Config,
    /// Credentials are missing, wrong, or lack a right.
    Denied,
    /// A bucket, object, file or manifest does not exist.
    NotFound,
    /// Bytes differ from what is recorded of them: trailer, hash, size, format.
    Corrupt,
    /// Network, an unhealthy member, a store's 5xx: the same request may succeed later.
    Transient,
    /// No space on the volume, or the store's quota is used up.
    Full,
    /// The deadline passed, or nothing moved for too long.
    Deadline,
    /// The volume, the store or the lineage is not the one of this request; the agent changed nothing (I2, I9, I25).
    Refused,
    /// The snapshot has authentication enabled, and the request has no credentials.
    AuthRequired,
    /// A member's database has another member list than etcd.
    MembersDiffer,
    /// kube-apiserver cannot decode an object of the restored data, whose bytes are proven.
    Undecodable,
}

impl ExitClass {
    /// All classes.
    pub const ALL: [Self; 11] = [
        Self::Config,
        Self::Denied,
        Self::NotFound,
        Self::Corrupt,
        Self::Transient,
        Self::Full,
        Self::Deadline,
        Self::Refused,
        Self::AuthRequired,
        Self::MembersDiffer,
        Self::Undecodable,
    ];

    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "Config",
            Self::Denied => "Denied",
            Self::NotFound => "NotFound",
            Self::Corrupt => "Corrupt",
            Self::Transient => "Transient",
            Self::Full => "Full",
            Self::Deadline => "Deadline",
            Self::Refused => "Refused",
            Self::AuthRequired => "AuthRequired",
            Self::MembersDiffer => "MembersDiffer",
            Self::Undecodable => "Undecodable",
        }
    }
}

/// Source of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// The request: flags, and the Secrets that they name.
    Request,
    /// The bucket or the volume of snapshots.
    Store,
    /// A disk of the container: the member's volume, the spool.
    Volume,
    /// A member of the cluster that is saved.
    Etcd,
    /// The agent itself, or a program that the agent starts.
    Own,
    /// A DNS server, which has no address for the name of etcd or of the store.
    Dns,
}

impl Origin {
    /// All origins.
    pub const ALL: [Self; 6] = [Self::Request, Self::Store, Self::Volume, Self::Etcd, Self::Own, Self::Dns];

    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "Request",
            Self::Store => "Store",
            Self::Volume => "Volume",
            Self::Etcd => "Etcd",
            Self::Own => "Own",
            Self::Dns => "Dns",
        }
    }
}

/// Time at which the same request can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Immediately: the Job starts another Pod.
    Again,
    /// Later, without a change: the Job fails, and the operator repeats the request where it may.
    Later,
    /// After a user has changed the cause.
    AfterChange,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The class.
    pub class: ExitClass,
    /// The origin; `None`: every origin that no row above names.
    pub origin: Option<Origin>,
    /// The exit code of the process.
    pub code: u8,
    /// The retry that helps.
    pub retry: Retry,
    /// The reason of the condition, and the name of the runbook.
    pub reason: &'static str,
    /// The cause, for docs/exit-codes.md.
    pub cause: &'static str,
}

use ExitClass::{
    AuthRequired, Config, Corrupt, Deadline, Denied, Full, MembersDiffer, NotFound, Refused, Transient, Undecodable,
};
use Origin::{Dns, Etcd, Own, Request, Store, Volume};
use Retry::{AfterChange, Again, Later};

/// The table. The first fitting row counts; the last row of each class fits every origin. Codes start at 64, to avoid those of
/// shells, runtimes and Rust (1, 2, 101, 125 to 137).
#[rustfmt::skip]
pub const FAILURES: [Failure; 20] = [
    table_row(Config, None, 64, AfterChange, "AgentMisconfigured",
        "the request is wrong: a flag, a location, a Secret without its keys, another store than the one to restore from"),
    table_row(Denied, Some(Etcd), 75, AfterChange, "EtcdAccessDenied",
        "etcd refuses the user, the password or the client certificate"),
    table_row(Denied, Some(Volume), 77, AfterChange, "VolumeUnusable",
        "the kernel refuses access to the volume: permissions, or a read-only file system"),
    table_row(Denied, None, 65, AfterChange, "StoreAccessDenied",
        "the store refuses the credentials, or the credentials lack a right"),
    table_row(NotFound, Some(Volume), 78, AfterChange, "VolumeUnusable",
        "a folder or file of the volume does not exist"),
    table_row(NotFound, None, 66, AfterChange, "ArtifactNotFound",
        "the bucket, the object, the file or the manifest does not exist"),
    table_row(Corrupt, None, 67, AfterChange, "ArtifactCorrupt",
        "bytes differ from what is recorded of them: trailer, hash, size, format"),
    table_row(Transient, Some(Etcd), 76, Again, "EtcdUnavailable",
        "no member answers, or the members have no leader"),
    table_row(Transient, Some(Volume), 79, Again, "VolumeUnusable",
        "the volume's disk returns I/O errors"),
    table_row(Transient, Some(Own), 80, Again, "AgentCrashed",
        "a thread of the agent, or etcdutl, ended early"),
    table_row(Transient, Some(Dns), 81, Again, "NameUnresolved",
        "a DNS server has no address for the name of etcd or of the store, or does not answer"),
    table_row(Transient, None, 68, Again, "StoreUnavailable",
        "the store does not answer: network, 5xx"),
    table_row(Full, None, 69, AfterChange, "NoSpace",
        "the volume is full, or the store's quota is used up"),
    table_row(Deadline, None, 70, Later, "AgentTimedOut",
        "the deadline passed, or nothing moved for too long"),
    table_row(Refused, Some(Store), 73, AfterChange, "StoreExchanged",
        "the store has another store ID than the expected one"),
    table_row(Refused, Some(Request), 74, AfterChange, "LineageUnclear",
        "several clusters of this name have snapshots, and the request does not name the lineage"),
    table_row(Refused, None, 71, AfterChange, "VolumeRefused",
        "the volume holds data of another member or restore, or its disk returns other bytes than were written"),
    table_row(AuthRequired, None, 72, AfterChange, "AuthRequiredNotConfigured",
        "the snapshot has authentication enabled, and the request has no credentials"),
    table_row(MembersDiffer, None, 82, AfterChange, "PreflightFailed",
        "a member's database has another member list than etcd"),
    table_row(Undecodable, None, 83, AfterChange, "DrillFailed",
        "kube-apiserver cannot decode an object of the drilled snapshot, whose bytes are sound"),
];

const fn table_row(
    class: ExitClass,
    origin: Option<Origin>,
    code: u8,
    retry: Retry,
    reason: &'static str,
    cause: &'static str,
) -> Failure {
    Failure { class, origin, code, retry, reason, cause }
}

impl Failure {
    /// Returns the row of a class and an origin.
    pub fn for_class(class: ExitClass, origin: Option<Origin>) -> &'static Self {
        let fits = |row: &&Self| row.class == class && (row.origin.is_none() || row.origin == origin);
        // Each class has a row for every origin, as a test checks.
        FAILURES.iter().find(fits).unwrap_or(&FAILURES[0])
    }

    /// Returns the table, in the order of the exit codes.
    pub fn by_code() -> [Self; FAILURES.len()] {
        let mut rows = FAILURES;
        rows.sort_unstable_by_key(|row| row.code);
        rows
    }

    /// Returns the row of an exit code; `None`: the code is not in the table.
    pub fn for_code(code: i32) -> Option<&'static Self> {
        FAILURES.iter().find(|row| i32::from(row.code) == code)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_code_names_one_row_and_a_row_one_code() {
        let codes: BTreeSet<u8> = FAILURES.iter().map(|row| row.code).collect();
        assert_eq!(codes.len(), FAILURES.len());
        assert!(codes.iter().all(|code| (64..=113).contains(code)));
        for row in &FAILURES {
            assert_eq!(Failure::for_code(row.code.into()), Some(row));
            assert_eq!(Failure::for_class(row.class, row.origin), row, "a row above hides this one");
        }
        assert_eq!(Failure::for_code(0), None);
        assert_eq!(Failure::for_code(137), None);
    }

    #[test]
    fn every_class_has_a_row_for_every_origin() {
        for class in ExitClass::ALL {
            for origin in Origin::ALL.map(Some).into_iter().chain([None]) {
                assert_eq!(Failure::for_class(class, origin).class, class);
            }
        }
    }
}
