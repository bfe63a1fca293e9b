//! The queues of the seven kinds, and which objects a changed object concerns. Decides nothing about contents.

use std::sync::{Arc, PoisonError, RwLock};

use futures::channel::mpsc;
use holdfast_api::restore::Restore;
use holdfast_api::snapshot::Phase;
use holdfast_api::{
    EtcdBackupStore, EtcdCluster, EtcdMember, EtcdRestore, EtcdSnapshot, EtcdSnapshotSchedule, EtcdUser, key, name,
};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};

use holdfast_kube::caches::Cache;
use holdfast_kube::kinds::Cached;
use holdfast_kube::kinds::Caches;

/// The sending ends of the queues of the seven kinds; absent in a standby, which must not fill them.
#[derive(Clone, Debug, Default)]
pub(super) struct Wakers(Arc<RwLock<Option<Senders>>>);

#[derive(Debug)]
struct Senders {
    clusters: mpsc::UnboundedSender<ObjectRef<EtcdCluster>>,
    members: mpsc::UnboundedSender<ObjectRef<EtcdMember>>,
    snapshots: mpsc::UnboundedSender<ObjectRef<EtcdSnapshot>>,
    backup_stores: mpsc::UnboundedSender<ObjectRef<EtcdBackupStore>>,
    schedules: mpsc::UnboundedSender<ObjectRef<EtcdSnapshotSchedule>>,
    users: mpsc::UnboundedSender<ObjectRef<EtcdUser>>,
    restores: mpsc::UnboundedSender<ObjectRef<EtcdRestore>>,
}

/// The receiving ends of the queues.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) clusters: mpsc::UnboundedReceiver<ObjectRef<EtcdCluster>>,
    pub(super) members: mpsc::UnboundedReceiver<ObjectRef<EtcdMember>>,
    pub(super) snapshots: mpsc::UnboundedReceiver<ObjectRef<EtcdSnapshot>>,
    pub(super) backup_stores: mpsc::UnboundedReceiver<ObjectRef<EtcdBackupStore>>,
    pub(super) schedules: mpsc::UnboundedReceiver<ObjectRef<EtcdSnapshotSchedule>>,
    pub(super) users: mpsc::UnboundedReceiver<ObjectRef<EtcdUser>>,
    pub(super) restores: mpsc::UnboundedReceiver<ObjectRef<EtcdRestore>>,
}

/// The objects that a changed object concerns: each gets a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Concerned {
    pub(super) clusters: Vec<ObjectRef<EtcdCluster>>,
    pub(super) members: Vec<ObjectRef<EtcdMember>>,
    pub(super) snapshots: Vec<ObjectRef<EtcdSnapshot>>,
    pub(super) backup_stores: Vec<ObjectRef<EtcdBackupStore>>,
    pub(super) schedules: Vec<ObjectRef<EtcdSnapshotSchedule>>,
    pub(super) users: Vec<ObjectRef<EtcdUser>>,
    pub(super) restores: Vec<ObjectRef<EtcdRestore>>,
}

impl Wakers {
    /// Opens empty queues, which [`wake`](Self::wake) fills from now on: this process leads.
    pub(super) fn lead(&self) -> Queues {
        let (clusters, clusters_out) = mpsc::unbounded();
        let (members, members_out) = mpsc::unbounded();
        let (snapshots, snapshots_out) = mpsc::unbounded();
        let (backup_stores, backup_stores_out) = mpsc::unbounded();
        let (schedules, schedules_out) = mpsc::unbounded();
        let (users, users_out) = mpsc::unbounded();
        let (restores, restores_out) = mpsc::unbounded();
        let senders = Senders { clusters, members, snapshots, backup_stores, schedules, users, restores };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(senders);
        Queues {
            clusters: clusters_out,
            members: members_out,
            snapshots: snapshots_out,
            backup_stores: backup_stores_out,
            schedules: schedules_out,
            users: users_out,
            restores: restores_out,
        }
    }

    /// Closes the queues: this process leads no more.
    pub(super) fn stand_by(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns a callback that queues this cluster.
    pub(super) fn news_of(&self, cluster: &EtcdCluster) -> Arc<dyn Fn() + Send + Sync> {
        let (wakers, cluster) = (self.clone(), reference(cluster));
        Arc::new(move || wakers.wake(|| Concerned { clusters: vec![cluster.clone()], ..Concerned::default() }))
    }

    /// Queues the objects concerned. A standby does not compute them. A closed queue belongs to a process that ends.
    pub(super) fn wake(&self, concerned: impl FnOnce() -> Concerned) {
        let senders = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(senders) = senders.as_ref() else { return };
        let concerned = concerned();
        for one in concerned.clusters {
            let _ = senders.clusters.unbounded_send(one);
        }
        for one in concerned.members {
            let _ = senders.members.unbounded_send(one);
        }
        for one in concerned.snapshots {
            let _ = senders.snapshots.unbounded_send(one);
        }
        for one in concerned.backup_stores {
            let _ = senders.backup_stores.unbounded_send(one);
        }
        for one in concerned.schedules {
            let _ = senders.schedules.unbounded_send(one);
        }
        for one in concerned.users {
            let _ = senders.users.unbounded_send(one);
        }
        for one in concerned.restores {
            let _ = senders.restores.unbounded_send(one);
        }
    }
}

/// A reference of namespace and name, without the UID and version that kube would copy: the queues hold many references.
fn reference<K>(object: &K) -> ObjectRef<K>
where
    K: Resource<DynamicType = ()>,
{
    ObjectRef::new(&object.name_any()).within(&object.namespace().unwrap_or_default())
}

fn references<K: Cached>(objects: &[Arc<K>]) -> Vec<ObjectRef<K>> {
    objects.iter().map(|object| reference(&**object)).collect()
}

/// The label that the Job controller puts on its Pods.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// The caches of the seven kinds.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    pub(super) clusters: Cache<EtcdCluster>,
    pub(super) members: Cache<EtcdMember>,
    pub(super) snapshots: Cache<EtcdSnapshot>,
    pub(super) backup_stores: Cache<EtcdBackupStore>,
    pub(super) schedules: Cache<EtcdSnapshotSchedule>,
    pub(super) users: Cache<EtcdUser>,
    pub(super) restores: Cache<EtcdRestore>,
}

impl From<&Caches> for Roots {
    fn from(caches: &Caches) -> Self {
        Self {
            clusters: caches.clusters.clone(),
            members: caches.members.clone(),
            snapshots: caches.snapshots.clone(),
            backup_stores: caches.backup_stores.clone(),
            schedules: caches.schedules.clone(),
            users: caches.users.clone(),
            restores: caches.restores.clone(),
        }
    }
}

impl Roots {
    /// All objects of the seven kinds.
    pub(super) fn all(&self) -> Concerned {
        Concerned {
            clusters: references(&self.clusters.state()),
            members: references(&self.members.state()),
            snapshots: references(&self.snapshots.state()),
            backup_stores: references(&self.backup_stores.state()),
            schedules: references(&self.schedules.state()),
            users: references(&self.users.state()),
            restores: references(&self.restores.state()),
        }
    }

    /// The schedule, and the cluster whose status shows its backups.
    pub(super) fn of_schedule(schedule: &EtcdSnapshotSchedule) -> Concerned {
        let namespace = schedule.namespace().unwrap_or_default();
        let cluster = schedule.spec.cluster_ref.as_ref().map(|named| ObjectRef::new(&named.name).within(&namespace));
        let schedules = vec![reference(schedule)];
        Concerned { clusters: cluster.into_iter().collect(), schedules, ..Concerned::default() }
    }

    /// The cluster, its members, the snapshots of its data, and the schedules and users that name it.
    pub(super) fn of_cluster(&self, cluster: &EtcdCluster) -> Concerned {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        Concerned {
            clusters: vec![reference(cluster)],
            members: references(&self.members.of_cluster(&namespace, &name)),
            snapshots: references(&self.snapshots.of_cluster(&namespace, &name)),
            backup_stores: vec![],
            schedules: references(&self.schedules.of_cluster(&namespace, &name)),
            users: references(&self.users.of_cluster(&namespace, &name)),
            restores: references(&self.restores.of_cluster(&namespace, &name)),
        }
    }

    /// The user alone.
    pub(super) fn of_user(user: &EtcdUser) -> Concerned {
        Concerned { users: vec![reference(user)], ..Concerned::default() }
    }

    /// The restore, and the cluster that returns by it.
    pub(super) fn of_restore(restore: &EtcdRestore) -> Concerned {
        let cluster = ObjectRef::new(&restore.spec.cluster_ref.name).within(&restore.namespace().unwrap_or_default());
        Concerned { clusters: vec![cluster], restores: vec![reference(restore)], ..Concerned::default() }
    }

    /// The member and its cluster.
    pub(super) fn of_member(member: &EtcdMember) -> Concerned {
        let cluster = ObjectRef::new(&member.spec.cluster_ref.name).within(&member.namespace().unwrap_or_default());
        Concerned { clusters: vec![cluster], members: vec![reference(member)], ..Concerned::default() }
    }

    /// The snapshot, the clusters that restore from it, the cluster whose status shows its completion, and the schedule whose run
    /// it records.
    pub(super) fn of_snapshot(&self, snapshot: &EtcdSnapshot) -> Concerned {
        let (namespace, name) = (snapshot.namespace().unwrap_or_default(), snapshot.name_any());
        let names_it = |c: &EtcdCluster| {
            let restore = c.spec.bootstrap.as_ref().and_then(|b| b.restore.as_ref());
            restore.and_then(|r| r.snapshot_ref.as_ref()).is_some_and(|r| r.name == name)
        };
        let returns = self.restores.within(&namespace, |restore| {
            let named = restore.spec.from.as_ref().and_then(|from| from.snapshot_ref.as_ref());
            named.is_some_and(|named| named.name == name)
        });
        let returns = returns.iter().map(|restore| &restore.spec.cluster_ref.name);
        let returns: Vec<_> = returns.map(|named| ObjectRef::new(named).within(&namespace)).collect();
        let complete = snapshot.status.as_ref().is_some_and(|s| s.phase == Phase::Complete);
        let source = snapshot.spec.cluster_ref.as_ref().filter(|_| complete).map(|r| r.name.clone());
        let saved = |c: &EtcdCluster| c.metadata.name.is_some() && c.metadata.name == source;
        let clusters = references(&self.clusters.within(&namespace, |c| names_it(c) || saved(c)));
        let clusters = clusters.into_iter().chain(returns).collect();
        let schedules = self.schedules_labelled(snapshot);
        Concerned { clusters, snapshots: vec![reference(snapshot)], schedules, ..Concerned::default() }
    }

    /// The schedule that an object's label names. The label holds long names shortened.
    fn schedules_labelled<K: ResourceExt>(&self, object: &K) -> Vec<ObjectRef<EtcdSnapshotSchedule>> {
        let Some(label) = object.labels().get(key::SCHEDULE) else { return vec![] };
        let namespace = object.namespace().unwrap_or_default();
        references(&self.schedules.within(&namespace, |s| name::label_value(&s.name_any()) == *label))
    }

    /// The store, and the snapshots, clusters and schedules that may wait for it.
    pub(super) fn of_backup_store(&self, store: &EtcdBackupStore) -> Concerned {
        let (namespace, name) = (store.namespace().unwrap_or_default(), store.name_any());
        let restores = |c: &EtcdCluster| {
            let restore = c.spec.bootstrap.as_ref().and_then(|b| b.restore.as_ref());
            restore.and_then(Restore::store) == Some(&name)
        };
        let saves = |s: &EtcdSnapshot| {
            let named = s.spec.template.destination.store_ref.as_ref().is_some_and(|r| r.name == name);
            named && !s.status.as_ref().is_some_and(|s| s.phase.is_final())
        };
        let runs = |s: &EtcdSnapshotSchedule| {
            s.spec.snapshot_template.destination.store_ref.as_ref().is_some_and(|r| r.name == name)
        };
        Concerned {
            clusters: references(&self.clusters.within(&namespace, restores)),
            members: vec![],
            snapshots: references(&self.snapshots.within(&namespace, saves)),
            backup_stores: vec![reference(store)],
            schedules: references(&self.schedules.within(&namespace, runs)),
            users: vec![],
            restores: vec![],
        }
    }

    /// The objects that a child's labels and owner references name.
    pub(super) fn of_child<K: ResourceExt>(&self, child: &K) -> Concerned {
        let namespace = child.namespace().unwrap_or_default();
        let label = |key: &str| child.labels().get(key).cloned();
        let owner = |kind: &str| {
            child
                .owner_references()
                .iter()
                .find(|o| o.kind == kind && o.api_version.starts_with(holdfast_api::GROUP))
                .map(|o| o.name.clone())
        };
        let mut concerned = Concerned::default();
        if let Some(name) = owner("EtcdCluster").or_else(|| label(key::CLUSTER)) {
            concerned.clusters.push(ObjectRef::new(&name).within(&namespace));
        }
        if let Some(name) = owner("EtcdMember").or_else(|| label(key::MEMBER)) {
            concerned.members.push(ObjectRef::new(&name).within(&namespace));
        }
        // The label holds long names shortened.
        if let Some(name) = owner("EtcdBackupStore") {
            concerned.backup_stores.push(ObjectRef::new(&name).within(&namespace));
        } else if let Some(value) = label(key::STORE) {
            let named = |s: &EtcdBackupStore| name::label_value(&s.name_any()) == value;
            concerned.backup_stores.extend(references(&self.backup_stores.within(&namespace, named)));
        }
        if let Some(name) = owner("EtcdSnapshotSchedule") {
            concerned.schedules.push(ObjectRef::new(&name).within(&namespace));
        } else {
            concerned.schedules = self.schedules_labelled(child);
            // A Pod of a run names its Job, and the record has the Job's name.
            if !concerned.schedules.is_empty() {
                let run = label(JOB_NAME).unwrap_or_else(|| child.name_any());
                concerned.snapshots.push(ObjectRef::new(&run).within(&namespace));
            }
        }
        if let Some(name) = owner("EtcdSnapshot") {
            concerned.snapshots.push(ObjectRef::new(&name).within(&namespace));
        } else if let Some(value) = label(key::SNAPSHOT) {
            let named = |s: &EtcdSnapshot| name::label_value(&s.name_any()) == value;
            concerned.snapshots.extend(references(&self.snapshots.within(&namespace, named)));
        }
        concerned
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::name::LocalRef;
    use holdfast_api::restore::Bootstrap;
    use holdfast_api::store::{Destination, StoredSnapshot};
    use holdfast_api::{EtcdClusterSpec, FIELD_MANAGER};

    use super::*;
    use holdfast_kube::caches::CacheWriter;
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use kube::api::ObjectMeta;
    use kube::runtime::watcher::Event;

    fn meta(name: &str) -> ObjectMeta {
        ObjectMeta { name: Some(name.to_owned()), namespace: Some("ns".to_owned()), ..ObjectMeta::default() }
    }

    fn filled<K: Cached>(objects: Vec<K>) -> Cache<K> {
        let mut writer = CacheWriter::<K>::default();
        for object in objects {
            writer.apply(&Event::Apply(object));
        }
        writer.cache()
    }

    fn member(name: &str, cluster: &str) -> EtcdMember {
        let mut member = EtcdMember { metadata: meta(name), ..EtcdMember::default() };
        cluster.clone_into(&mut member.spec.cluster_ref.name);
        member
    }

    fn snapshot(name: &str, cluster: &str) -> EtcdSnapshot {
        serde_json::from_value(serde_json::json!({
            "metadata": meta(name),
            "spec": {"clusterRef": {"name": cluster}, "destination": {"pvc": {"claimName": "backups"}}},
        }))
        .unwrap()
    }

    fn stored(name: &str, store: &str) -> EtcdSnapshot {
        let mut snapshot = snapshot(name, "elsewhere");
        snapshot.spec.template.destination =
            Destination { store_ref: Some(LocalRef { name: store.to_owned() }), ..Destination::default() };
        snapshot
    }

    fn store(name: &str) -> EtcdBackupStore {
        EtcdBackupStore { metadata: meta(name), ..EtcdBackupStore::default() }
    }

    fn cluster(name: &str, restores: Option<&str>) -> EtcdCluster {
        let restore = restores.map(|snapshot| Restore {
            snapshot_ref: Some(LocalRef { name: snapshot.to_owned() }),
            ..Restore::default()
        });
        let bootstrap = Some(Bootstrap { restore });
        let spec = EtcdClusterSpec { bootstrap, ..EtcdClusterSpec::default() };
        EtcdCluster { metadata: meta(name), spec, ..EtcdCluster::default() }
    }

    fn roots() -> Roots {
        Roots {
            clusters: filled(vec![cluster("a", None), cluster("b", Some("s-1"))]),
            members: filled(vec![member("a-1", "a"), member("b-1", "b")]),
            snapshots: filled(vec![snapshot("s-1", "a"), stored("s-2", "vault"), stored("s-3", "other")]),
            backup_stores: filled(vec![store("vault"), store("other")]),
            schedules: filled(vec![schedule("nightly", "a", "vault"), schedule("hourly", "b", "other")]),
            users: filled(vec![user("shop", "a"), user("till", "b")]),
            restores: filled(vec![]),
        }
    }

    fn user(name: &str, cluster: &str) -> EtcdUser {
        let mut user = EtcdUser { metadata: meta(name), ..EtcdUser::default() };
        user.spec.cluster_ref = LocalRef { name: cluster.to_owned() };
        user
    }

    #[test]
    fn a_change_of_a_cluster_concerns_its_users() {
        let concerned = roots().of_cluster(&cluster("a", None)).users;
        assert_eq!(concerned, [ObjectRef::from_obj(&user("shop", "a"))]);
        assert_eq!(Roots::of_user(&user("shop", "a")).users, concerned);
    }

    fn schedule(name: &str, cluster: &str, store: &str) -> EtcdSnapshotSchedule {
        let mut schedule = EtcdSnapshotSchedule { metadata: meta(name), ..EtcdSnapshotSchedule::default() };
        schedule.spec.cluster_ref = Some(LocalRef { name: cluster.to_owned() });
        schedule.spec.snapshot_template.destination.store_ref = Some(LocalRef { name: store.to_owned() });
        schedule
    }

    #[test]
    fn a_schedule_is_woken_by_its_cluster_its_store_and_its_runs() {
        let nightly = vec![ObjectRef::from_obj(&schedule("nightly", "a", "vault"))];
        let roots = roots();
        assert_eq!(roots.of_cluster(&cluster("a", None)).schedules, nightly);
        assert_eq!(roots.of_backup_store(&store("vault")).schedules, nightly);
        assert_eq!(Roots::of_schedule(&schedule("nightly", "a", "vault")).clusters[0].name, "a");
        let mut pod = Pod { metadata: meta("nightly-backup-1-x"), ..Pod::default() };
        let labels = [(key::SCHEDULE, "nightly"), (JOB_NAME, "nightly-backup-1")];
        pod.metadata.labels = Some(labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        let woken = roots.of_child(&pod);
        assert_eq!(
            (woken.schedules, names(&roots.of_child(&pod))[2].clone()),
            (nightly.clone(), vec!["nightly-backup-1".to_owned()])
        );
        let mut record = snapshot("nightly-backup-1", "a");
        record.metadata.labels = Some([(key::SCHEDULE.to_owned(), "nightly".to_owned())].into());
        assert_eq!(roots.of_snapshot(&record).schedules, nightly);
    }

    fn names(concerned: &Concerned) -> [Vec<String>; 3] {
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        [
            sorted(concerned.clusters.iter().map(|r| r.name.clone()).collect()),
            sorted(concerned.members.iter().map(|r| r.name.clone()).collect()),
            sorted(concerned.snapshots.iter().map(|r| r.name.clone()).collect()),
        ]
    }

    #[test]
    fn a_cluster_wakes_its_members_and_the_snapshots_made_of_it() {
        let woken = roots().of_cluster(&cluster("a", None));
        assert_eq!(names(&woken), [vec!["a"], vec!["a-1"], vec!["s-1"]]);
    }

    #[test]
    fn a_snapshot_wakes_the_cluster_that_waits_for_it() {
        let woken = roots().of_snapshot(&snapshot("s-1", "a"));
        assert_eq!(names(&woken), [vec!["b"], vec![], vec!["s-1"]]);
        assert_eq!(names(&roots().of_snapshot(&snapshot("s-2", "a")))[0], Vec::<String>::new());
    }

    /// Else `LAST BACKUP` would lag, or stay empty while the cluster waits for a change.
    #[test]
    fn a_complete_snapshot_wakes_its_cluster() {
        let mut snapshot = snapshot("s-2", "a");
        for (phase, woken) in [(Phase::Running, vec![]), (Phase::Complete, vec!["a"]), (Phase::Failed, vec![])] {
            snapshot.status = Some(holdfast_api::EtcdSnapshotStatus { phase, ..Default::default() });
            assert_eq!(names(&roots().of_snapshot(&snapshot))[0], woken, "{phase:?}");
        }
    }

    #[test]
    fn a_store_wakes_who_waits_for_it() {
        let mut roots = roots();
        let source = StoredSnapshot { store_ref: Some(LocalRef { name: "vault".to_owned() }), ..Default::default() };
        let mut waits = cluster("c", None);
        waits.spec.bootstrap =
            Some(Bootstrap { restore: Some(Restore { source: Some(source), ..Restore::default() }) });
        let mut over = stored("s-4", "vault");
        over.status = Some(holdfast_api::EtcdSnapshotStatus { phase: Phase::Complete, ..Default::default() });
        roots.clusters = filled(vec![cluster("a", None), waits]);
        roots.snapshots = filled(vec![stored("s-2", "vault"), stored("s-3", "other"), over]);
        let woken = roots.of_backup_store(&store("vault"));
        assert_eq!(names(&woken), [vec!["c"], vec![], vec!["s-2"]]);
        assert_eq!(woken.backup_stores, [ObjectRef::from_obj(&store("vault"))]);
    }

    #[test]
    fn a_probes_pod_wakes_its_store() {
        let mut pod = Pod { metadata: meta("probe-x"), ..Pod::default() };
        pod.metadata.labels = Some([(key::STORE.to_owned(), "vault".to_owned())].into());
        let woken = roots().of_child(&pod);
        assert_eq!(
            woken,
            Concerned { backup_stores: vec![ObjectRef::from_obj(&store("vault"))], ..Concerned::default() }
        );
    }

    #[test]
    fn a_members_pod_wakes_both_by_owner_and_labels() {
        let owner = OwnerReference {
            api_version: "holdfast.dev/v1alpha1".to_owned(),
            kind: "EtcdMember".to_owned(),
            name: "a-1".to_owned(),
            ..OwnerReference::default()
        };
        let mut pod = Pod { metadata: meta("a-1"), ..Pod::default() };
        pod.metadata.owner_references = Some(vec![owner]);
        pod.metadata.labels = Some([(key::CLUSTER.to_owned(), "a".to_owned())].into());
        assert_eq!(names(&roots().of_child(&pod)), [vec!["a"], vec!["a-1"], vec![]]);
    }

    #[test]
    fn an_agents_pod_wakes_its_snapshot_by_its_shortened_label() {
        let long = "s".repeat(80);
        let mut roots = roots();
        roots.snapshots = filled(vec![snapshot(&long, "a"), snapshot("s-1", "a")]);
        let mut pod = Pod { metadata: meta("job-x"), ..Pod::default() };
        pod.metadata.labels = Some([(key::SNAPSHOT.to_owned(), name::label_value(&long))].into());
        assert_eq!(names(&roots.of_child(&pod))[2], vec![long]);
    }

    #[test]
    fn strangers_objects_wake_nobody() {
        let mut pod = Pod { metadata: meta("x"), ..Pod::default() };
        pod.metadata.labels = Some([(key::MANAGED_BY.to_owned(), FIELD_MANAGER.to_owned())].into());
        assert_eq!(roots().of_child(&pod), Concerned::default());
    }

    #[test]
    fn a_standby_queues_nothing() {
        let wakers = Wakers::default();
        wakers.wake(|| roots().all());
        let mut queues = wakers.lead();
        assert!(queues.clusters.try_recv().is_err());
        wakers.wake(|| roots().all());
        assert!(queues.clusters.try_recv().is_ok());
        assert!(queues.members.try_recv().is_ok());
        assert!(queues.snapshots.try_recv().is_ok());
        while queues.clusters.try_recv().is_ok() {}
        wakers.news_of(&cluster("a", None))();
        assert_eq!(queues.clusters.try_recv().map(|one| one.name).ok().as_deref(), Some("a"));
        wakers.stand_by();
        wakers.wake(|| roots().all());
        assert!(wakers.lead().clusters.try_recv().is_err());
    }
}
