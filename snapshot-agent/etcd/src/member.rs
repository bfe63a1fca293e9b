//! Facts about one member of an etcd, and clients connected to it.

use etcd_client::Client;

/// The facts of a member that a manifest records, for streams that do not come from [`run`].
#[derive(Clone, Debug)]
pub struct Member {
    /// The member's own status.
    pub facts: Candidate,
    /// Name.
    pub name: String,
    /// Whether the agent read the member although no quorum answered.
    pub without_quorum: bool,
}

/// A member's own status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The client URL of the request.
    pub endpoint: String,
    /// etcd cluster ID.
    pub cluster_id: u64,
    /// Member ID.
    pub member_id: u64,
    /// ID of the leader that the member follows; 0: none.
    pub leader: u64,
    /// Applied index of the log.
    pub applied: u64,
    /// Raft term.
    pub term: u64,
    /// Whether the member is a learner.
    pub learner: bool,
    /// Whether a CORRUPT alarm names the member.
    pub corrupt: bool,
    /// Size of the database file.
    pub db_bytes: u64,
    /// Bytes of the file in use; the rest are free pages.
    pub used_bytes: u64,
    /// etcd version.
    pub version: String,
    /// Storage version; empty before 3.6.
    pub storage_version: String,
}

/// A connected member for HashKV requests.
pub struct Voter {
    /// The connection.
    pub client: Client,
    /// The endpoint of the connection.
    pub endpoint: String,
    /// Only answers with this ID count: behind a Service or a balancer the endpoint may lead to another member now.
    pub member_id: u64,
    /// Name of the member.
    pub name: String,
    /// Whether the member leads.
    pub leader: bool,
}
