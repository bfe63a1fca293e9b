//! Who is woken by what: the queues of the three kinds, and whom an object concerns. Decides nothing about what is seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::channel::mpsc;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};

use super::stores::Stores;
use crate::api::{EtcdCluster, EtcdMember, EtcdSnapshot, key, name};

/// The queues of the three kinds.
#[derive(Clone, Debug)]
pub(super) struct Wakers {
    leading: Arc<AtomicBool>,
    clusters: mpsc::UnboundedSender<ObjectRef<EtcdCluster>>,
    members: mpsc::UnboundedSender<ObjectRef<EtcdMember>>,
    snapshots: mpsc::UnboundedSender<ObjectRef<EtcdSnapshot>>,
}

/// The other ends of the queues.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) clusters: mpsc::UnboundedReceiver<ObjectRef<EtcdCluster>>,
    pub(super) members: mpsc::UnboundedReceiver<ObjectRef<EtcdMember>>,
    pub(super) snapshots: mpsc::UnboundedReceiver<ObjectRef<EtcdSnapshot>>,
}

/// Whom an object concerns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Concerned {
    pub(super) clusters: Vec<ObjectRef<EtcdCluster>>,
    pub(super) members: Vec<ObjectRef<EtcdMember>>,
    pub(super) snapshots: Vec<ObjectRef<EtcdSnapshot>>,
}

impl Wakers {
    /// New queues.
    pub(super) fn new() -> (Self, Queues) {
        let (clusters, clusters_out) = mpsc::unbounded();
        let (members, members_out) = mpsc::unbounded();
        let (snapshots, snapshots_out) = mpsc::unbounded();
        let wakers = Self { leading: Arc::default(), clusters, members, snapshots };
        (wakers, Queues { clusters: clusters_out, members: members_out, snapshots: snapshots_out })
    }

    /// From now on somebody reads the queues: a standby must not fill them.
    pub(super) fn lead(&self) {
        self.leading.store(true, Ordering::SeqCst);
    }

    /// Wakes whom it concerns. A closed queue is a process that ends.
    pub(super) fn wake(&self, concerned: Concerned) {
        if !self.leading.load(Ordering::SeqCst) {
            return;
        }
        for one in concerned.clusters {
            let _ = self.clusters.unbounded_send(one);
        }
        for one in concerned.members {
            let _ = self.members.unbounded_send(one);
        }
        for one in concerned.snapshots {
            let _ = self.snapshots.unbounded_send(one);
        }
    }
}

/// Everything that can be woken.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    pub(super) clusters: Store<EtcdCluster>,
    pub(super) members: Store<EtcdMember>,
    pub(super) snapshots: Store<EtcdSnapshot>,
}

impl Roots {
    /// The stores of what can be woken.
    pub(super) fn of(stores: &Stores) -> Self {
        Self { clusters: stores.clusters.clone(), members: stores.members.clone(), snapshots: stores.snapshots.clone() }
    }

    /// All of them.
    pub(super) fn all(&self) -> Concerned {
        Concerned {
            clusters: self.clusters.state().iter().map(|c| ObjectRef::from_obj(&**c)).collect(),
            members: self.members.state().iter().map(|m| ObjectRef::from_obj(&**m)).collect(),
            snapshots: self.snapshots.state().iter().map(|s| ObjectRef::from_obj(&**s)).collect(),
        }
    }

    /// A cluster, its members, and the snapshots that are made of it.
    pub(super) fn of_cluster(&self, cluster: &EtcdCluster) -> Concerned {
        let (namespace, name) = (cluster.namespace(), cluster.name_any());
        let members = self
            .members
            .state_filter(|m| m.namespace() == namespace && m.spec.cluster_ref.name == name)
            .iter()
            .map(|m| ObjectRef::from_obj(&**m))
            .collect();
        let snapshots = self
            .snapshots
            .state_filter(|s| s.namespace() == namespace && s.spec.cluster_ref.name == name)
            .iter()
            .map(|s| ObjectRef::from_obj(&**s))
            .collect();
        Concerned { clusters: vec![ObjectRef::from_obj(cluster)], members, snapshots }
    }

    /// A member and its cluster.
    pub(super) fn of_member(member: &EtcdMember) -> Concerned {
        let cluster = ObjectRef::new(&member.spec.cluster_ref.name).within(&member.namespace().unwrap_or_default());
        Concerned { clusters: vec![cluster], members: vec![ObjectRef::from_obj(member)], snapshots: vec![] }
    }

    /// A snapshot, and the clusters that wait for it to restore from.
    pub(super) fn of_snapshot(&self, snapshot: &EtcdSnapshot) -> Concerned {
        let (namespace, name) = (snapshot.namespace(), snapshot.name_any());
        let names_it = |c: &EtcdCluster| {
            c.namespace() == namespace
                && c.spec
                    .bootstrap
                    .as_ref()
                    .and_then(|b| b.restore.as_ref())
                    .and_then(|r| r.snapshot_ref.as_ref())
                    .is_some_and(|r| r.name == name)
        };
        let clusters = self.clusters.state_filter(names_it).iter().map(|c| ObjectRef::from_obj(&**c)).collect();
        Concerned { clusters, members: vec![], snapshots: vec![ObjectRef::from_obj(snapshot)] }
    }

    /// Whom a child's labels and owners name.
    pub(super) fn of_child<K: ResourceExt>(&self, child: &K) -> Concerned {
        let namespace = child.namespace().unwrap_or_default();
        let label = |key: &str| child.labels().get(key).cloned();
        let owner = |kind: &str| {
            child
                .owner_references()
                .iter()
                .find(|o| o.kind == kind && o.api_version.starts_with(crate::api::GROUP))
                .map(|o| o.name.clone())
        };
        let mut concerned = Concerned::default();
        if let Some(name) = owner("EtcdCluster").or_else(|| label(key::CLUSTER)) {
            concerned.clusters.push(ObjectRef::new(&name).within(&namespace));
        }
        if let Some(name) = owner("EtcdMember").or_else(|| label(key::MEMBER)) {
            concerned.members.push(ObjectRef::new(&name).within(&namespace));
        }
        if let Some(name) = owner("EtcdSnapshot") {
            concerned.snapshots.push(ObjectRef::new(&name).within(&namespace));
        } else if let Some(value) = label(key::SNAPSHOT) {
            // Long names stand shortened in the label.
            let named = |s: &EtcdSnapshot| {
                s.namespace().as_deref() == Some(&namespace) && name::label_value(&s.name_any()) == value
            };
            concerned.snapshots.extend(self.snapshots.state_filter(named).iter().map(|s| ObjectRef::from_obj(&**s)));
        }
        concerned
    }
}
