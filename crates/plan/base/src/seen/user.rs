//! Facts of one pass over an `EtcdUser`: plain values, filled by `operator::observe::user`.

use holdfast_api::formed::Formed;
use holdfast_api::{EtcdCluster, EtcdUser};

use crate::certificate::Kept;
use crate::seen::cluster::Member;
use crate::user_claim::Given;
use crate::{Seen, user_claim};

/// All values that a decision about a user depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The `EtcdUser`.
    pub user: EtcdUser,
    /// The cluster in the spec; `None`: no cluster of this name exists.
    pub cluster: Option<EtcdCluster>,
    /// The member that leads, by the cluster's status, with its Pod.
    pub leader: Option<Member>,
    /// Whether the operator has the address of this member, and a login.
    pub reachable: bool,
    /// Whether etcd has a user or a role of this name. The operator asks only while the user is not Holdfast's: the question is an
    /// entry in etcd's raft log.
    pub taken: Option<Seen<bool>>,
    /// Another, older `EtcdUser` of the same cluster and name.
    pub rival: Option<String>,
    /// Version of the Secret with the password; `Known(None)`: no such Secret. `None`: the user has a certificate.
    pub password: Option<Seen<Option<String>>>,
    /// The Secret under the name of the user's certificate, of any owner.
    pub secret: Option<Kept>,
    /// The CA of the cluster's clients, where Holdfast issues their certificates.
    pub ca: Option<Kept>,
    /// The operator's certificate, beside which the CAs of the servers stand.
    pub servers: Option<Kept>,
}

impl Observed {
    /// Returns the etcd cluster with which the cluster formed, by its hexadecimal ID.
    pub fn formed(&self) -> Option<&str> {
        Some(self.latch()?.cluster_id.as_str())
    }

    fn latch(&self) -> Option<&Formed> {
        self.cluster.as_ref()?.status.as_ref()?.latches.formed.as_ref()
    }

    /// Returns the claim in that etcd cluster, as [`user_claim::read`] does.
    pub fn claim(&self) -> Option<Option<Given>> {
        user_claim::read(&self.user, self.latch()?)
    }
}
