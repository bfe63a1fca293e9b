//! A small world to try plans in: objects with UIDs, resource versions, finalizers and owners; Pods that take a while;
//! volumes with data; the gate's rules; etcd's membership rules. Real plans act on it, nothing else does.
//!
//! It does not imitate raft. What it knows of etcd is who is listed, who serves, and what a server refuses.

mod searches;
mod stores;

use std::collections::{BTreeMap, BTreeSet};

use holdfast::api::backup_store::Credentials;
use holdfast::api::cluster::Tls;
use holdfast::api::name::LocalRef;
use holdfast::api::restore::{Bootstrap, Restore};
use holdfast::api::snapshot::{Artifact, Phase};
use holdfast::api::store::{Location, PvcLocation, S3Location, StoredSnapshot};
use holdfast::api::{
    EtcdBackupStore, EtcdBackupStoreSpec, EtcdCluster, EtcdClusterSpec, EtcdMember, EtcdSnapshot, EtcdSnapshotSpec,
    EtcdSnapshotStatus, key,
};
use holdfast::plan::build::job::searches;
use holdfast::plan::cluster::{Answer, Listed, Membership};
use holdfast::plan::{Act, Ensure, Plan, Seen, Settings, Target, Wake, cluster, member, pods, safety, store};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    PersistentVolumeClaim, Pod, PodCondition, PodStatus, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use snapshot_agent::contract::{ExitClass, FailedReport, Finding, NEW_STORE, Outcome, Probed, Report, Trial};

/// One tick is a tenth of a second.
pub const TICK: i64 = 100;
/// Ticks until a Pod's containers start: scheduling, volume, image.
const SCHEDULE: u64 = 8;
/// Ticks a restore step takes.
const RESTORE: u64 = 10;
/// Ticks from etcd's start to its first answer.
const BOOT: u64 = 6;
/// Ticks until kubelet starts a failed container again.
const BACK_OFF: u64 = 100;
/// Ticks until a Pod or claim that is deleted is gone.
const GOING: u64 = 3;
/// Ticks a voter has to be connected before etcd counts on it for a change.
const CONNECTED: u64 = 50;

/// What is on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    group: u64,
    member_id: u64,
    member_uid: String,
    claim_uid: String,
    restore_uid: Option<String>,
    start: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Volume {
    pub claim: PersistentVolumeClaim,
    pub data: Option<Data>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Scheduling,
    Restoring,
    /// A container has failed: which, with which code.
    Failed(&'static str, i32),
    Booting,
    Serving,
}

#[derive(Clone, Debug)]
struct Process {
    stage: Stage,
    since: u64,
    restored: bool,
    behind: u64,
}

/// One etcd cluster, as its log knows it.
#[derive(Clone, Debug, Default)]
pub struct Group {
    pub members: Vec<Listed>,
    pub leader: Option<u64>,
}

/// Who reconciles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Cluster,
    Member(String),
    Store(String),
}

/// What goes wrong with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It was refused as stale.
    Conflict,
    /// It was done, and the answer was lost.
    LostAnswer,
    /// It was done later than everything else of this tick.
    Late,
}

pub struct World {
    pub now: u64,
    counter: u64,
    pub cluster: Option<EtcdCluster>,
    pub members: BTreeMap<String, EtcdMember>,
    pub pods: BTreeMap<String, Pod>,
    processes: BTreeMap<String, Process>,
    pub volumes: BTreeMap<String, Volume>,
    pub services: BTreeMap<String, Service>,
    pub budget: Option<PodDisruptionBudget>,
    pub snapshots: BTreeMap<String, EtcdSnapshot>,
    /// Snapshots that cannot be read back.
    pub broken: BTreeSet<String>,
    pub stores: BTreeMap<String, EtcdBackupStore>,
    /// Versions of Secrets.
    pub secrets: BTreeMap<String, u64>,
    /// How probes end; `None`: well.
    pub store_trouble: Option<ExitClass>,
    /// Marks of stores, by their URL.
    pub marks: BTreeMap<String, String>,
    /// Jobs of probes, since when, and how they have ended.
    probes: BTreeMap<String, (Job, u64, Option<Pod>)>,
    /// Jobs that look for the newest snapshot.
    searches: BTreeMap<String, searches::Asked>,
    /// Answers that stores have given.
    pub answers: u64,
    /// Volumes of an earlier cluster of the same name.
    pub foreign: Vec<cluster::ForeignVolume>,
    pub groups: BTreeMap<u64, Group>,
    pub silent_until: u64,
    going: BTreeMap<(&'static str, String), u64>,
    pub due: BTreeMap<Who, u64>,
    pub writes: u64,
    pub log: Vec<String>,
    said: BTreeMap<String, String>,
    pub faults: Vec<Fault>,
    late: Vec<Act>,
    pub calls_to_membership: u64,
    db_bytes: i64,
}

fn backups() -> Location {
    Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None })
}

fn settings() -> Settings {
    Settings { agent_image: "holdfast:test".to_owned(), etcd_repository: "etcd".to_owned() }
}

impl World {
    pub fn new(replicas: i32, version: &str) -> Self {
        let spec = EtcdClusterSpec {
            replicas,
            version: version.to_owned(),
            tls: Some(Tls { insecure: Some(true) }),
            ..EtcdClusterSpec::default()
        };
        let mut world = Self {
            now: 0,
            counter: 0,
            cluster: None,
            members: BTreeMap::new(),
            pods: BTreeMap::new(),
            processes: BTreeMap::new(),
            volumes: BTreeMap::new(),
            services: BTreeMap::new(),
            budget: None,
            snapshots: BTreeMap::new(),
            broken: BTreeSet::new(),
            stores: BTreeMap::new(),
            secrets: BTreeMap::new(),
            store_trouble: None,
            marks: BTreeMap::new(),
            probes: BTreeMap::new(),
            searches: BTreeMap::new(),
            answers: 0,
            foreign: vec![],
            groups: BTreeMap::new(),
            silent_until: 0,
            going: BTreeMap::new(),
            due: BTreeMap::new(),
            writes: 0,
            log: vec![],
            said: BTreeMap::new(),
            faults: vec![],
            late: vec![],
            calls_to_membership: 0,
            db_bytes: 1 << 20,
        };
        let mut cluster = EtcdCluster::new("a", spec);
        world.born(&mut cluster.metadata);
        world.cluster = Some(cluster);
        world.changed();
        world
    }

    pub fn time(&self) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + SignedDuration::from_millis(i64::try_from(self.now).unwrap() * TICK)
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn born(&mut self, meta: &mut ObjectMeta) {
        let n = self.next();
        meta.namespace = Some("ns".to_owned());
        meta.uid = Some(format!("uid-{n}"));
        meta.resource_version = Some(n.to_string());
        meta.generation = Some(1);
        meta.creation_timestamp = Some(Time(self.time()));
        self.writes += 1;
    }

    fn touch(&mut self, meta: &mut ObjectMeta) {
        meta.resource_version = Some(self.next().to_string());
        self.changed();
    }

    /// Every change of an object wakes everybody: what a watch does, without saying which one.
    fn changed(&mut self) {
        let names = self.members.keys().cloned().map(Who::Member);
        let stores = self.stores.keys().cloned().map(Who::Store);
        for who in std::iter::once(Who::Cluster).chain(names).chain(stores) {
            self.due.insert(who, self.now);
        }
    }

    pub fn say(&mut self, line: impl AsRef<str>) {
        let line = format!("{:>6.1}s  {}", (self.now as f64) / 10.0, line.as_ref());
        self.log.push(line);
    }

    // ---- what a person does ----

    pub fn edit(&mut self, change: impl FnOnce(&mut EtcdClusterSpec)) {
        let mut cluster = self.cluster.take().unwrap();
        change(&mut cluster.spec);
        cluster.metadata.generation = cluster.metadata.generation.map(|g| g + 1);
        self.touch(&mut cluster.metadata);
        self.cluster = Some(cluster);
    }

    pub fn restore_from(&mut self, key: Option<&str>) {
        let source = key.map(|key| StoredSnapshot::at(backups(), key.to_owned()));
        let restore = source.map(|source| Restore { source: Some(source), ..Restore::default() });
        self.edit(|s| s.bootstrap = restore.map(|restore| Bootstrap { restore: Some(restore) }));
    }

    pub fn restore_of_snapshot(&mut self, name: &str) {
        let restore = Restore { snapshot_ref: Some(LocalRef { name: name.to_owned() }), ..Restore::default() };
        self.edit(|s| s.bootstrap = Some(Bootstrap { restore: Some(restore) }));
    }

    pub fn snapshot(&mut self, name: &str, phase: Phase, key: &str) {
        let mut one = EtcdSnapshot::new(
            name,
            EtcdSnapshotSpec {
                cluster_ref: Some(LocalRef { name: "old".to_owned() }),
                external: None,
                spool: None,
                destination: backups().into(),
                compression: snapshot_agent::contract::Compression::Zstd,
                verify: snapshot_agent::contract::Verify::default(),
                encryption: None,
                minimum_throughput: None,
                deadline_seconds: None,
                agent: None,
            },
        );
        let artifact = Artifact { key: key.to_owned(), sha256: "5ha".to_owned(), ..Artifact::default() };
        one.status = Some(EtcdSnapshotStatus {
            phase,
            artifact: (phase == Phase::Complete).then_some(artifact),
            ..EtcdSnapshotStatus::default()
        });
        self.born(&mut one.metadata);
        self.snapshots.insert(name.to_owned(), one);
        self.changed();
    }

    pub fn lose_status(&mut self) {
        let mut cluster = self.cluster.take().unwrap();
        cluster.status = None;
        self.touch(&mut cluster.metadata);
        self.cluster = Some(cluster);
    }

    pub fn foreign_service(&mut self, name: &str) {
        let mut service = Service::default();
        service.metadata.name = Some(name.to_owned());
        self.born(&mut service.metadata);
        self.services.insert(name.to_owned(), service);
        self.changed();
    }

    pub fn volumes_of_an_earlier_cluster(&mut self, states: &[(&str, bool)]) {
        self.foreign = states
            .iter()
            .map(|(claim, going)| cluster::ForeignVolume { claim: (*claim).to_owned(), going: *going })
            .collect();
        self.changed();
    }

    pub fn remove_service(&mut self, name: &str) {
        self.services.remove(name);
        self.changed();
    }

    pub fn delete_pod(&mut self, name: &str) {
        if let Some(mut pod) = self.pods.remove(name) {
            self.go("pod", name, &mut pod.metadata);
            self.pods.insert(name.to_owned(), pod);
        }
    }

    pub fn delete_member(&mut self, name: &str) {
        if let Some(mut object) = self.members.remove(name) {
            self.go("member", name, &mut object.metadata);
            self.members.insert(name.to_owned(), object);
        }
    }

    /// Foreground deletion: the cluster goes after what blocks it.
    pub fn delete_cluster(&mut self) {
        self.cluster = None;
        self.going.clear();
        let names: Vec<String> = self.members.keys().cloned().collect();
        for name in names {
            self.delete_member(&name);
        }
        self.changed();
    }

    /// A node that kills the Pod: it has ended and stays.
    pub fn evict_pod(&mut self, name: &str) {
        self.processes.remove(name);
        if let Some(mut pod) = self.pods.remove(name) {
            pod.status = Some(PodStatus { phase: Some("Failed".to_owned()), ..PodStatus::default() });
            self.touch(&mut pod.metadata);
            self.pods.insert(name.to_owned(), pod);
        }
    }

    pub fn crash(&mut self, name: &str) {
        if let Some(process) = self.processes.get_mut(name) {
            if matches!(process.stage, Stage::Serving | Stage::Booting) {
                process.stage = Stage::Failed("etcd", 2);
                process.since = self.now;
            }
        }
        self.show_pods();
    }

    fn go(&mut self, kind: &'static str, name: &str, meta: &mut ObjectMeta) {
        if meta.deletion_timestamp.is_none() {
            meta.deletion_timestamp = Some(Time(self.time()));
            self.going.insert((kind, name.to_owned()), self.now + GOING);
            self.touch(meta);
        }
    }

    // ---- time ----

    /// One tenth of a second of the world, without the operator.
    pub fn tick(&mut self) {
        self.now += 1;
        for act in std::mem::take(&mut self.late) {
            let _ = self.perform(&act);
        }
        self.sweep();
        let names: Vec<String> = self.pods.keys().cloned().collect();
        for name in names {
            self.advance(&name);
        }
        let ids: Vec<u64> = self.groups.keys().copied().collect();
        for id in ids {
            self.elect(id);
        }
        self.end_probes();
        self.end_searches();
        self.show_pods();
    }

    fn sweep(&mut self) {
        let gone: Vec<_> = self.going.iter().filter(|(_, at)| **at <= self.now).map(|(k, _)| k.clone()).collect();
        for (kind, name) in gone {
            let held = match kind {
                "pod" => {
                    self.processes.remove(&name);
                    self.pods.remove(&name);
                    false
                }
                // Kubernetes keeps a claim while a Pod uses it.
                "claim" => {
                    let used = self.pods.contains_key(name.trim_start_matches("data-"));
                    if !used {
                        self.volumes.remove(&name);
                    }
                    used
                }
                _ => {
                    let held = self
                        .members
                        .get(&name)
                        .is_some_and(|m| m.metadata.finalizers.as_ref().is_some_and(|f| !f.is_empty()));
                    if !held {
                        self.members.remove(&name);
                        self.due.remove(&Who::Member(name.clone()));
                    }
                    held
                }
            };
            if !held {
                self.going.remove(&(kind, name));
                self.changed();
            }
        }
    }

    fn advance(&mut self, name: &str) {
        let pod = self.pods[name].clone();
        if pods::ended(&pod) || pods::deleting(&pod.metadata) {
            self.processes.remove(name);
            return;
        }
        let fresh = Process { stage: Stage::Scheduling, since: self.now, restored: false, behind: 5000 };
        let mut process = self.processes.remove(name).unwrap_or(fresh);
        let age = self.now - process.since;
        let restores = pods::arguments(&pod, "restore").is_some();
        let next = match process.stage {
            Stage::Scheduling if age >= SCHEDULE && self.volumes.contains_key(&format!("data-{name}")) => {
                Some(if restores { Stage::Restoring } else { self.start(name, &pod) })
            }
            Stage::Restoring if age >= RESTORE => Some(match self.rebuild(name, &pod) {
                Ok(()) => {
                    process.restored = true;
                    self.start(name, &pod)
                }
                Err(code) => Stage::Failed("restore", code),
            }),
            Stage::Failed("restore", _) if age >= BACK_OFF => Some(Stage::Restoring),
            Stage::Failed(_, _) if age >= BACK_OFF => Some(self.start(name, &pod)),
            Stage::Booting if age >= BOOT => self.boot(name).then_some(Stage::Serving),
            Stage::Scheduling | Stage::Restoring | Stage::Failed(..) | Stage::Booting | Stage::Serving => None,
        };
        if let Some(next) = next {
            process.stage = next;
            process.since = self.now;
        }
        if process.stage == Stage::Serving {
            process.behind = process.behind.saturating_sub(2500);
        }
        self.processes.insert(name.to_owned(), process);
    }

    fn flag(pod: &Pod, container: &str, name: &str) -> Option<String> {
        let prefix = format!("--{name}=");
        let all = pods::arguments(pod, container).unwrap_or_default().iter();
        all.filter_map(|a| a.strip_prefix(&prefix)).next_back().map(str::to_owned)
    }

    fn permitted(pod: &Pod, claim: &str) -> bool {
        let said = pod.metadata.annotations.as_ref().and_then(|a| a.get(key::MAY_START_EMPTY));
        said.is_some_and(|s| s == claim)
    }

    /// The restore step: `Err` is its exit code.
    fn rebuild(&mut self, name: &str, pod: &Pod) -> Result<(), i32> {
        let flag = |n: &str| Self::flag(pod, "restore", n);
        let uid = flag("restore-uid");
        let volume = self.volumes.get(&format!("data-{name}")).cloned().unwrap_or_default();
        if let Some(data) = &volume.data {
            return if data.restore_uid == uid { Ok(()) } else { Err(71) };
        }
        if !Self::permitted(pod, pods::uid(&volume.claim.metadata)) {
            return Err(71);
        }
        self.restores_what_is_latched(flag("key").as_ref());
        if self.broken.contains(&flag("key").unwrap_or_default()) {
            return Err(66);
        }
        let (group, member_id) = self.found(name, &flag("initial-cluster").unwrap_or_default());
        let data = Data {
            group,
            member_id,
            member_uid: flag("member-uid").unwrap_or_default(),
            claim_uid: flag("claim-uid").unwrap_or_default(),
            restore_uid: uid,
            start: 0,
        };
        self.volumes.get_mut(&format!("data-{name}")).unwrap().data = Some(data);
        Ok(())
    }

    /// A new etcd cluster of one. Never after the operator said that the cluster has formed (I2).
    fn found(&mut self, name: &str, initial_cluster: &str) -> (u64, u64) {
        let status = self.cluster.as_ref().and_then(|c| c.status.clone()).unwrap_or_default();
        assert!(status.latches.formed.is_none(), "a second cluster was founded after the first had formed");
        let url = initial_cluster.strip_prefix(&format!("{name}=")).expect("the seed names itself").to_owned();
        let (group, id) = (0xc000 + self.next(), 0x1000 + self.next());
        let listed = Listed { id, name: name.to_owned(), peer_urls: vec![url], learner: false };
        self.groups.insert(group, Group { members: vec![listed], leader: None });
        (group, id)
    }

    /// The gate, and etcd's own start.
    fn start(&mut self, name: &str, pod: &Pod) -> Stage {
        let flag = |n: &str| Self::flag(pod, "etcd", n);
        let refused = Stage::Failed("etcd", 71);
        let volume = self.volumes.get(&format!("data-{name}")).cloned().unwrap_or_default();
        let claim = pods::uid(&volume.claim.metadata).to_owned();
        if flag("claim-uid").as_deref() != Some(&claim) {
            return refused;
        }
        let number = flag("start").and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        if let Some(data) = &volume.data {
            if data.start < pods::knows_started(pod) {
                return refused;
            }
            self.volumes.get_mut(&format!("data-{name}")).unwrap().data.as_mut().unwrap().start =
                data.start.max(number);
            let same = flag("member-uid").as_deref() == Some(&data.member_uid)
                && data.claim_uid == claim
                && flag("restore-uid").is_none_or(|uid| data.restore_uid.as_ref() == Some(&uid));
            return if same { Stage::Booting } else { refused };
        }
        if flag("restore-uid").is_some() || !Self::permitted(pod, &claim) {
            return refused;
        }
        let initial_cluster = flag("initial-cluster").unwrap_or_default();
        let seed = pods::arguments(pod, "etcd").unwrap_or_default().iter().any(|a| a == "--seed");
        let (group, member_id) = if seed {
            self.found(name, &initial_cluster)
        } else {
            let mut told: Vec<&str> =
                initial_cluster.split(',').filter_map(|e| e.split_once('=')).map(|e| e.1).collect();
            told.sort_unstable();
            // etcd: "member count is unequal", or nobody to join.
            let joins = self.groups.iter().find_map(|(id, group)| {
                let mut urls: Vec<&str> = group.members.iter().flat_map(|l| &l.peer_urls).map(String::as_str).collect();
                urls.sort_unstable();
                let own =
                    group.members.iter().find(|l| l.peer_urls.iter().any(|u| u.contains(&format!("//{name}."))))?;
                (urls == told && group.leader.is_some()).then_some((*id, own.id))
            });
            let Some((group, id)) = joins else { return Stage::Failed("etcd", 1) };
            let listed = self.groups.get_mut(&group).unwrap().members.iter_mut().find(|l| l.id == id).unwrap();
            assert!(listed.learner, "the voter {name} started on an empty volume");
            (group, id)
        };
        self.volumes.get_mut(&format!("data-{name}")).unwrap().data = Some(Data {
            group,
            member_id,
            member_uid: flag("member-uid").unwrap_or_default(),
            claim_uid: claim,
            restore_uid: None,
            start: number,
        });
        Stage::Booting
    }

    fn boot(&mut self, name: &str) -> bool {
        let Some(data) = self.volumes.get(&format!("data-{name}")).and_then(|v| v.data.clone()) else { return false };
        let Some(group) = self.groups.get_mut(&data.group) else { return false };
        let Some(listed) = group.members.iter_mut().find(|l| l.id == data.member_id) else { return false };
        listed.name = name.to_owned();
        true
    }

    fn serving(&self, name: &str) -> Option<(&Data, &Process)> {
        let process = self.processes.get(name).filter(|p| p.stage == Stage::Serving)?;
        Some((self.volumes.get(&format!("data-{name}"))?.data.as_ref()?, process))
    }

    /// Serving voters of a group, by name.
    fn up(&self, group: u64) -> Vec<(String, u64)> {
        let Some(known) = self.groups.get(&group) else { return vec![] };
        let voters = known.members.iter().filter(|l| !l.learner);
        voters
            .filter(|l| self.serving(&l.name).is_some_and(|(d, _)| d.group == group))
            .map(|l| (l.name.clone(), l.id))
            .collect()
    }

    fn elect(&mut self, id: u64) {
        let up = self.up(id);
        let group = self.groups.get_mut(&id).unwrap();
        let voters = group.members.iter().filter(|l| !l.learner).count();
        if up.len() < voters / 2 + 1 {
            group.leader = None;
        } else if !up.iter().any(|(_, id)| Some(*id) == group.leader) {
            group.leader = up.first().map(|(_, id)| *id);
        }
    }

    /// Writes the Pods' status, as kubelet does: only when it differs.
    fn show_pods(&mut self) {
        let names: Vec<String> = self.processes.keys().cloned().collect();
        for name in names {
            let status = self.pod_status(&name);
            let Some(mut pod) = self.pods.remove(&name) else { continue };
            if pod.status.as_ref() != Some(&status) && !pods::ended(&pod) {
                pod.status = Some(status);
                self.touch(&mut pod.metadata);
            }
            self.pods.insert(name, pod);
        }
    }

    fn pod_status(&self, name: &str) -> PodStatus {
        let process = &self.processes[name];
        let at =
            Time(self.time() - SignedDuration::from_millis(i64::try_from(self.now - process.since).unwrap() * TICK));
        let ended = |code: i32, message: Option<String>| ContainerStateTerminated {
            exit_code: code,
            message,
            finished_at: Some(at.clone()),
            ..ContainerStateTerminated::default()
        };
        let container = |name: &str, state: ContainerState, last: Option<ContainerState>| ContainerStatus {
            name: name.to_owned(),
            state: Some(state),
            last_state: last,
            ..ContainerStatus::default()
        };
        let running = || ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(at.clone()) }),
            ..ContainerState::default()
        };
        let waiting = || ContainerState {
            waiting: Some(ContainerStateWaiting { reason: Some("CrashLoopBackOff".to_owned()), message: None }),
            ..ContainerState::default()
        };
        let terminated = |t| ContainerState { terminated: Some(t), ..ContainerState::default() };
        let restores = pods::arguments(&self.pods[name], "restore").is_some();
        let mut init = vec![];
        let mut main = vec![];
        match process.stage {
            Stage::Scheduling => {}
            Stage::Restoring => init.push(container("restore", running(), None)),
            Stage::Failed("restore", code) => {
                init.push(container(
                    "restore",
                    waiting(),
                    Some(terminated(ended(code, Some("no manifest.json".to_owned())))),
                ));
            }
            Stage::Failed(_, code) => main.push(container("etcd", waiting(), Some(terminated(ended(code, None))))),
            Stage::Booting | Stage::Serving => {
                if restores && process.restored {
                    let report = r#"{"kind":"restored","restoreUid":"u","uri":"file:///backup/k","dbBytes":7,"sha256":"5ha","takenAt":"2025-12-31T00:00:00Z","fromCluster":"ns/old","already":false,"millis":5}"#;
                    // The container ended once, whatever etcd did since.
                    let state = ContainerStateTerminated {
                        message: Some(report.to_owned()),
                        ..ContainerStateTerminated::default()
                    };
                    init.push(container("restore", terminated(state), None));
                }
                main.push(container("etcd", running(), None));
            }
        }
        let ready = self.serving(name).is_some_and(|(data, _)| {
            let group = &self.groups[&data.group];
            group.leader.is_some() && group.members.iter().any(|l| l.id == data.member_id && !l.learner)
        });
        let phase = if main.is_empty() { "Pending" } else { "Running" };
        PodStatus {
            phase: Some(phase.to_owned()),
            conditions: Some(vec![PodCondition {
                type_: "Ready".to_owned(),
                status: if ready { "True" } else { "False" }.to_owned(),
                ..PodCondition::default()
            }]),
            container_statuses: Some(main),
            init_container_statuses: Some(init),
            ..PodStatus::default()
        }
    }

    // ---- what the operator sees ----

    pub fn observe_cluster(&self) -> Option<cluster::Observed> {
        let object = self.cluster.clone()?;
        let members: Vec<cluster::Member> = self
            .members
            .values()
            .filter(|m| m.spec.cluster_ref.uid == pods::uid(&object.metadata))
            .map(|m| {
                let uid = pods::uid(&m.metadata);
                let name = pods::name(&m.metadata);
                cluster::Member {
                    object: m.clone(),
                    pod: self.pods.get(name).filter(|p| pods::controlled_by(&p.metadata, uid)).cloned(),
                    claim: self.volumes.get(&format!("data-{name}")).map(|v| v.claim.clone()),
                }
            })
            .collect();
        let mut answers = BTreeMap::new();
        for name in self.pods.keys().filter(|n| self.members.contains_key(*n)) {
            if let Some(answer) = self.answer(name) {
                answers.insert(name.clone(), answer);
            }
        }
        let restore = object.spec.bootstrap.as_ref().and_then(|b| b.restore.as_ref());
        let named = restore.and_then(|r| r.snapshot_ref.as_ref());
        let store = restore.and_then(Restore::store);
        Some(cluster::Observed {
            store: store.map(|name| Seen::Known(self.stores.get(name).cloned())),
            etcd: self.membership(),
            answers,
            snapshot: named.map(|n| Seen::Known(self.snapshots.get(&n.name).cloned())),
            peer_service: self.services.get("a").cloned(),
            client_service: self.services.get("a-client").cloned(),
            budget: self.budget.clone(),
            members,
            foreign: self.foreign.clone(),
            searches: self.seen_searches(),
            refusal: None,
            fresh_suffix: format!("m{:03}", self.counter),
            settings: settings(),
            cluster: object,
        })
    }

    fn answer(&self, name: &str) -> Option<Seen<Answer>> {
        if self.now < self.silent_until {
            return Some(Seen::Unknown("timed out".to_owned()));
        }
        if let Some((data, process)) = self.serving(name) {
            let group = &self.groups[&data.group];
            let listed = group.members.iter().find(|l| l.id == data.member_id)?;
            let index = 1_000_000 + self.now;
            return Some(Seen::Known(Answer {
                member_id: data.member_id,
                cluster_id: data.group,
                version: self.members.get(name).map(|m| m.spec.version.clone()).unwrap_or_default(),
                db_bytes: self.db_bytes,
                applied_index: if listed.learner { index - process.behind } else { index },
                learner: listed.learner,
                leader: group.leader.unwrap_or_default(),
            }));
        }
        let booting = self.processes.get(name).is_some_and(|p| p.stage == Stage::Booting);
        booting.then(|| Seen::Unknown("connection refused".to_owned()))
    }

    fn membership(&self) -> Seen<Membership> {
        if self.now < self.silent_until {
            return Seen::Unknown("timed out".to_owned());
        }
        let asked = self.pods.keys().filter_map(|n| self.serving(n)).map(|(d, _)| d.group);
        for id in asked {
            let group = &self.groups[&id];
            if group.leader.is_some() {
                let members = group.members.clone();
                return Seen::Known(Membership { cluster_id: id, leader: group.leader, members, alarms: vec![] });
            }
        }
        Seen::Unknown("no member answers".to_owned())
    }

    pub fn observe_member(&self, name: &str) -> Option<member::Observed> {
        let object = self.members.get(name)?.clone();
        let same = |c: &&EtcdCluster| pods::uid(&c.metadata) == object.spec.cluster_ref.uid;
        Some(member::Observed {
            cluster: Seen::Known(self.cluster.as_ref().filter(same).cloned()),
            pod: self.pods.get(name).cloned(),
            claim: self.volumes.get(&format!("data-{name}")).map(|v| v.claim.clone()),
            settings: settings(),
            member: object,
        })
    }

    // ---- one pass ----

    /// Everybody who is due looks, decides and acts once. Returns how many acts were tried.
    pub fn passes(&mut self) -> usize {
        let due: Vec<Who> = self.due.iter().filter(|(_, at)| **at <= self.now).map(|(w, _)| w.clone()).collect();
        due.into_iter().map(|who| self.pass(&who)).sum()
    }

    pub fn pass(&mut self, who: &Who) -> usize {
        self.due.remove(who);
        let now = self.time();
        match who {
            Who::Cluster => {
                let Some(seen) = self.observe_cluster() else { return 0 };
                let plan = cluster::plan(&seen, now);
                assert_eq!(plan, cluster::plan(&seen, now), "the same facts give the same plan");
                safety::cluster(&seen, &plan).unwrap_or_else(|v| panic!("{v}\n{plan:#?}"));
                let mut again = seen.clone();
                again.cluster.status = Some(plan.status.clone());
                assert_eq!(cluster::plan(&again, now).status, plan.status, "a written status is not written again");
                if seen.cluster.status.as_ref() != Some(&plan.status) {
                    let status = plan.status.clone();
                    self.write_cluster(|c| c.status = Some(status));
                    self.tell("cluster", &plan.status.conditions);
                }
                for ensure in &plan.ensures {
                    self.apply(ensure);
                }
                self.finish(who, plan)
            }
            Who::Member(name) => {
                let Some(seen) = self.observe_member(name) else { return 0 };
                let plan = member::plan(&seen, now);
                assert_eq!(plan, member::plan(&seen, now), "the same facts give the same plan");
                safety::member(&seen, &plan).unwrap_or_else(|v| panic!("{v}\n{plan:#?}"));
                if seen.member.status.as_ref() != Some(&plan.status) {
                    let status = plan.status.clone();
                    self.write_member(name, |m| m.status = Some(status));
                    self.tell(name, &plan.status.conditions);
                }
                self.finish(who, plan)
            }
            Who::Store(name) => {
                let Some(seen) = self.observe_store(name) else { return 0 };
                let plan = store::plan(&seen, now);
                assert_eq!(plan, store::plan(&seen, now), "the same facts give the same plan");
                safety::store(&seen, &plan).unwrap_or_else(|v| panic!("{v}\n{plan:#?}"));
                if seen.store.status.as_ref() != Some(&plan.status) {
                    let status = plan.status.clone();
                    let mut object = seen.store.clone();
                    object.status = Some(status);
                    self.writes += 1;
                    self.touch(&mut object.metadata);
                    self.stores.insert(name.clone(), object);
                    self.tell(&format!("store {name}"), &plan.status.conditions);
                }
                self.finish(who, plan)
            }
        }
    }

    fn finish<S>(&mut self, who: &Who, plan: Plan<S>) -> usize {
        let settled = plan.act.is_none() && plan.waiting.is_none();
        if settled {
            assert!(plan.ensures.is_empty() || plan.wake != Wake::OnChange || matches!(who, Who::Cluster));
        }
        let tried = usize::from(plan.act.is_some());
        let mut retry = false;
        if let Some(act) = plan.act {
            let fault = self.faults.pop();
            retry = match fault {
                Some(Fault::Conflict) => true,
                Some(Fault::LostAnswer) => {
                    let _ = self.perform(&act);
                    true
                }
                Some(Fault::Late) => {
                    self.late.push(act);
                    true
                }
                None => {
                    let line = format!("{}: {}", name_of(who), english(&act));
                    if self.perform(&act).is_ok() {
                        self.say(line);
                        false
                    } else {
                        true
                    }
                }
            };
        }
        let at = match plan.wake {
            _ if retry => Some(self.now + 1),
            Wake::Now => Some(self.now),
            Wake::AfterMillis(ms) => Some(self.now + (ms / TICK.unsigned_abs()).max(1)),
            Wake::OnChange => None,
        };
        if let Some(at) = at {
            let due = self.due.entry(who.clone()).or_insert(at);
            *due = (*due).min(at);
        }
        tried
    }

    /// Tells what changed in an object's conditions.
    fn tell(&mut self, whose: &str, conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition]) {
        for c in conditions {
            let id = format!("{whose} {}", c.type_);
            let state = format!("{}={}/{}", c.type_, c.status, c.reason);
            if self.said.get(&id) != Some(&state) {
                self.said.insert(id, state.clone());
                if whose == "cluster" || whose.starts_with("store ") {
                    self.say(format!("{whose} is {state}: {}", c.message));
                }
            }
        }
    }

    fn write_cluster(&mut self, change: impl FnOnce(&mut EtcdCluster)) {
        if let Some(mut cluster) = self.cluster.take() {
            change(&mut cluster);
            self.writes += 1;
            self.touch(&mut cluster.metadata);
            self.cluster = Some(cluster);
        }
    }

    fn write_member(&mut self, name: &str, change: impl FnOnce(&mut EtcdMember)) {
        if let Some(mut object) = self.members.remove(name) {
            change(&mut object);
            self.writes += 1;
            self.members.insert(name.to_owned(), object);
            let mut meta = self.members[name].metadata.clone();
            self.touch(&mut meta);
            self.members.get_mut(name).unwrap().metadata = meta;
        }
    }

    fn apply(&mut self, ensure: &Ensure) {
        match ensure.clone() {
            Ensure::Service(mut service) => {
                let name = pods::name(&service.metadata).to_owned();
                self.born(&mut service.metadata);
                self.services.insert(name, *service);
            }
            Ensure::Budget(mut budget) => {
                self.born(&mut budget.metadata);
                self.budget = Some(*budget);
            }
        }
        self.changed();
    }

    fn same(target: &Target, meta: &ObjectMeta) -> Result<(), ()> {
        (*target == Target::of(meta)).then_some(()).ok_or(())
    }

    /// Does one act, with the guards that the operator's writer has. `Err`: refused, nothing happened.
    pub fn perform(&mut self, act: &Act) -> Result<(), ()> {
        self.writes += 1;
        match act.clone() {
            Act::Latch(latches) => {
                // The operator's write carries the resourceVersion of the object it planned from; here nothing came between.
                self.cluster.as_ref().ok_or(())?;
                self.write_cluster(|c| c.status.get_or_insert_default().latches = *latches);
            }
            Act::CreateMember(mut object) => {
                let name = pods::name(&object.metadata).to_owned();
                if !self.members.contains_key(&name) {
                    self.born(&mut object.metadata);
                    self.members.insert(name, *object);
                    self.changed();
                }
            }
            Act::AddLearner { peer_url, cluster_id, .. } => self.add_learner(&peer_url, cluster_id)?,
            Act::SetInitialCluster { member, initial_cluster } => {
                Self::same(&member, &self.members.get(&member.name).ok_or(())?.metadata)?;
                self.write_member(&member.name, |m| m.spec.initial_cluster = Some(initial_cluster));
            }
            Act::LatchJoined { member, joined } => {
                Self::same(&member, &self.members.get(&member.name).ok_or(())?.metadata)?;
                self.write_member(&member.name, |m| m.spec.joined = Some(joined));
            }
            Act::LatchStart { member, count } => {
                Self::same(&member, &self.members.get(&member.name).ok_or(())?.metadata)?;
                self.write_member(&member.name, |m| m.spec.start_count = count);
            }
            Act::MarkStarted { pod, count } => self.patch_pod(&pod, |p| {
                p.metadata.annotations.get_or_insert_default().insert(key::STARTED.to_owned(), count.to_string());
            })?,
            Act::ForbidEmptyStart { pod } => self.patch_pod(&pod, |p| {
                p.metadata.annotations.get_or_insert_default().remove(key::MAY_START_EMPTY);
            })?,
            Act::Promote { member_id, cluster_id, .. } => self.promote(member_id, cluster_id)?,
            Act::Disarm { .. } => return Err(()),
            Act::AdmitClients { pod } => self.patch_pod(&pod, |p| {
                p.metadata.labels.get_or_insert_default().insert(key::ROLE.to_owned(), "voter".to_owned());
            })?,
            Act::CreateClaim(mut claim) => {
                let name = pods::name(&claim.metadata).to_owned();
                if !self.volumes.contains_key(&name) {
                    self.born(&mut claim.metadata);
                    self.volumes.insert(name, Volume { claim: *claim, data: None });
                    self.changed();
                }
            }
            Act::CreatePod(mut pod) => {
                let name = pods::name(&pod.metadata).to_owned();
                if !self.pods.contains_key(&name) {
                    self.born(&mut pod.metadata);
                    self.pods.insert(name, *pod);
                    self.changed();
                }
            }
            Act::DeletePod { pod, .. } => {
                Self::same(&pod, &self.pods.get(&pod.name).ok_or(())?.metadata)?;
                self.delete_pod(&pod.name);
            }
            Act::DeleteClaim { claim, .. } => {
                let mut volume = self.volumes.get(&claim.name).ok_or(())?.clone();
                Self::same(&claim, &volume.claim.metadata)?;
                self.no_client_counts_on(&volume);
                self.go("claim", &claim.name, &mut volume.claim.metadata);
                self.volumes.insert(claim.name, volume);
            }
            Act::DeleteMember { member, .. } => {
                Self::same(&member, &self.members.get(&member.name).ok_or(())?.metadata)?;
                self.delete_member(&member.name);
            }
            Act::ReleaseMember { member } => {
                Self::same(&member, &self.members.get(&member.name).ok_or(())?.metadata)?;
                self.write_member(&member.name, |m| m.metadata.finalizers = None);
            }
            Act::StartJob(mut job) => {
                let name = pods::name(&job.metadata).to_owned();
                let pod = job.spec.as_ref().and_then(|s| s.template.spec.as_ref());
                if pod.is_some_and(searches) {
                    if !self.searches.contains_key(&name) {
                        self.born(&mut job.metadata);
                        self.searches.insert(name, searches::Asked { job: *job, born: self.now, end: None });
                        self.changed();
                    }
                } else if !self.probes.contains_key(&name) {
                    self.born(&mut job.metadata);
                    self.probes.insert(name, (*job, self.now, None));
                    self.changed();
                }
            }
        }
        Ok(())
    }

    /// I4, judged by the world itself: no volume goes that holds a member of a formed cluster which still stands.
    fn no_client_counts_on(&self, volume: &Volume) {
        let formed = self.cluster.as_ref().and_then(|c| c.status.as_ref()?.latches.formed.clone());
        if let (Some(formed), Some(data)) = (formed, &volume.data) {
            assert_ne!(format!("{:x}", data.group), formed.cluster_id, "a live volume was deleted");
        }
    }

    fn patch_pod(&mut self, target: &Target, change: impl FnOnce(&mut Pod)) -> Result<(), ()> {
        let mut pod = self.pods.get(&target.name).ok_or(())?.clone();
        Self::same(target, &pod.metadata)?;
        change(&mut pod);
        self.touch(&mut pod.metadata);
        self.pods.insert(target.name.clone(), pod);
        Ok(())
    }

    fn add_learner(&mut self, peer_url: &str, cluster_id: u64) -> Result<(), ()> {
        self.calls_to_membership += 1;
        let up = self.up(cluster_id);
        let connected = up.iter().filter(|(n, _)| self.now - self.processes[n].since >= CONNECTED).count();
        let most = if self.cluster.as_ref().is_some_and(|c| c.spec.version.starts_with("3.5.")) { 1 } else { 9 };
        let id = 0x1000 + self.next();
        let group = self.groups.get_mut(&cluster_id).filter(|g| g.leader.is_some()).ok_or(())?;
        if group.members.iter().any(|l| l.peer_urls.iter().any(|u| u == peer_url)) {
            return Ok(());
        }
        let voters = group.members.iter().filter(|l| !l.learner).count();
        let learners = group.members.len() - voters;
        if learners >= most || (voters > 1 && connected < (voters + 1) / 2 + 1) {
            return Err(());
        }
        group.members.push(Listed { id, name: String::new(), peer_urls: vec![peer_url.to_owned()], learner: true });
        Ok(())
    }

    fn promote(&mut self, member_id: u64, cluster_id: u64) -> Result<(), ()> {
        self.calls_to_membership += 1;
        let group = self.groups.get(&cluster_id).filter(|g| g.leader.is_some()).ok_or(())?;
        let listed = group.members.iter().find(|l| l.id == member_id).ok_or(())?;
        let (_, process) = self.serving(&listed.name).ok_or(())?;
        if process.behind > 0 {
            return Err(());
        }
        let group = self.groups.get_mut(&cluster_id).ok_or(())?;
        if let Some(listed) = group.members.iter_mut().find(|l| l.id == member_id) {
            listed.learner = false;
        }
        Ok(())
    }

    // ---- judging ----

    /// Whether the cluster has all its voters, all of them ready and admitted, and says so.
    pub fn complete(&self) -> bool {
        let Some(status) = self.cluster.as_ref().and_then(|c| c.status.as_ref()) else { return false };
        let replicas = self.cluster.as_ref().map_or(0, |c| c.spec.replicas);
        let ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        let admitted = self.pods.values().filter(|p| pods::label(&p.metadata, key::ROLE) == Some("voter")).count();
        ready && status.voters == replicas && i32::try_from(admitted) == Ok(replicas)
    }

    /// Runs until `done`, at most `ticks` ticks; `false` when it did not come to that.
    pub fn run_until(&mut self, ticks: u64, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..ticks {
            // Several passes fit into a tick: a pass takes some milliseconds.
            for _ in 0..4 {
                if self.passes() == 0 {
                    break;
                }
            }
            if done(self) {
                return true;
            }
            self.tick();
        }
        false
    }
}

fn name_of(who: &Who) -> &str {
    match who {
        Who::Cluster => "cluster",
        Who::Member(name) | Who::Store(name) => name,
    }
}

/// An act in plain English.
pub fn english(act: &Act) -> String {
    match act {
        Act::Latch(latches) => {
            let pending = latches.pending_member.as_deref().unwrap_or("none");
            let restoring =
                latches.restoring.as_ref().map(|r| format!(", restoring {}", r.source.key)).unwrap_or_default();
            let formed = latches.formed.as_ref().map(|f| format!(", formed as {}", f.cluster_id)).unwrap_or_default();
            format!("write down: next member {pending}{restoring}{formed}")
        }
        Act::CreateMember(m) => {
            let how = if m.spec.restore.is_some() { ", restored" } else { "" };
            format!("create member {} ({:?}{how})", pods::name(&m.metadata), m.spec.role)
        }
        Act::AddLearner { name, .. } => format!("tell etcd of the learner {name}"),
        Act::SetInitialCluster { member, initial_cluster } => {
            let names: Vec<&str> = initial_cluster.split(',').filter_map(|e| e.split_once('=')).map(|e| e.0).collect();
            format!("tell {} of everybody: {}", member.name, names.join(", "))
        }
        Act::LatchJoined { member, .. } => format!("write down: {} has joined", member.name),
        Act::LatchStart { member, count } => format!("write down: {} serves from its Pod number {count}", member.name),
        Act::MarkStarted { pod, count } => format!("tell {} that number {count} has served", pod.name),
        Act::ForbidEmptyStart { pod } => format!("{} may not start empty any more", pod.name),
        Act::Promote { name, .. } => format!("give {name} its vote"),
        Act::Disarm { member_id, .. } => format!("clear the NOSPACE alarm of {member_id:x}"),
        Act::AdmitClients { pod } => format!("let clients reach {}", pod.name),
        Act::CreateClaim(c) => format!("create claim {}", pods::name(&c.metadata)),
        Act::CreatePod(p) => {
            let restores = if pods::arguments(p, "restore").is_some() { ", with a restore step" } else { "" };
            let empty = if pods::may_start_empty(p) { ", may start empty" } else { "" };
            format!("create Pod {}{restores}{empty}", pods::name(&p.metadata))
        }
        Act::DeletePod { pod, why } => format!("delete Pod {}: {why}", pod.name),
        Act::DeleteClaim { claim, why } => format!("delete claim {}: {why}", claim.name),
        Act::DeleteMember { member, why } => format!("delete member {}: {why}", member.name),
        Act::ReleaseMember { member } => format!("let member {} go", member.name),
        Act::StartJob(j) => format!("start Job {}", pods::name(&j.metadata)),
    }
}
