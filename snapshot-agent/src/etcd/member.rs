//! What is known of one member of an etcd: plain values, and clients that are connected to it.

use etcd_client::Client;

/// The facts of a member that a manifest records, for streams that do not come from [`run`].
#[derive(Clone, Debug)]
pub struct Member {
    /// What it said of itself.
    pub facts: Candidate,
    /// Its name.
    pub name: String,
    /// Whether it was read although no quorum answered.
    pub without_quorum: bool,
}

/// What a member says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The client URL it was asked at.
    pub endpoint: String,
    /// etcd cluster ID.
    pub cluster_id: u64,
    /// Member ID.
    pub member_id: u64,
    /// Whom it takes for the leader; 0: nobody.
    pub leader: u64,
    /// How far it has applied the log.
    pub applied: u64,
    /// Raft term.
    pub term: u64,
    /// Whether it does not vote yet.
    pub learner: bool,
    /// Whether a CORRUPT alarm names it.
    pub corrupt: bool,
    /// Size of its database file.
    pub db_bytes: u64,
    /// etcd version.
    pub version: String,
    /// Storage version; empty before 3.6.
    pub storage_version: String,
}

/// A member that can be asked.
pub(crate) struct Voter {
    pub(crate) client: Client,
    pub(crate) endpoint: String,
    /// Whose answers count: behind a Service or a balancer the endpoint may lead to another member now.
    pub(crate) member_id: u64,
    pub(crate) name: String,
    pub(crate) leader: bool,
}
