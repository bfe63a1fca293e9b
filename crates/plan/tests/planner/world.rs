//! A small world that runs the real plans: objects with UIDs, resource versions, finalizers and owners; Pods that take a while;
//! volumes with data; the gate's rules; etcd's membership rules. Only the plans act on it.
//!
//! It does not imitate raft. Of etcd it has the member list, the serving members, and the refusals of a server.

mod admission;
mod certificates;
mod drills;
mod etcd;
mod kubelet;
mod passes;
mod person;
mod rehearsals;
mod returns;
mod schedules;
mod searches;
mod stores;
pub mod volumes;
mod writes;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_api::backup_store::Credentials;
use holdfast_api::final_snapshot::{FinalSnapshot, OnFailure};
use holdfast_api::name::LocalRef;
use holdfast_api::restore::{Bootstrap, Restore, RestorePoint};
use holdfast_api::snapshot::{Artifact, Phase, SnapshotTemplate};
use holdfast_api::store::{Location, PvcLocation, S3Location, StoredSnapshot};
use holdfast_api::tls::Tls;
use holdfast_api::{
    EtcdBackupStore, EtcdBackupStoreSpec, EtcdCluster, EtcdClusterSpec, EtcdMember, EtcdSnapshot, EtcdSnapshotSchedule,
    EtcdSnapshotSpec, EtcdSnapshotStatus, key,
};
use holdfast_contract::{ExitClass, FailedReport, Finding, NEW_STORE, Outcome, Probed, Report, Trial};
use holdfast_plan::certificate::{Certificates, Plane};
use holdfast_plan::cluster::{Answer, KeyHash, Listed, Membership};
use holdfast_plan::objects::job::Kind;
use holdfast_plan::{
    Act, Ensure, Plan, Proxies, Seen, Settings, Target, Wake, cluster, ending, member, meta, pods, safety, schedule,
    snapshot, store, template,
};
use holdfast_plan::{Alarm, AlarmKind};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    PersistentVolumeClaim, Pod, PodCondition, PodStatus, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

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
/// Ticks until a deleted Pod or claim is gone.
const GOING: u64 = 3;
/// Ticks a voter has to be connected before etcd counts on it for a change.
const CONNECTED: u64 = 50;

/// Data on a volume.
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
    /// The container of this name failed with this exit code.
    Failed(&'static str, i32),
    Booting,
    Serving,
    /// The data is restored, and the Pod has no etcd.
    Prepared,
}

#[derive(Clone, Debug)]
struct Process {
    stage: Stage,
    since: u64,
    restored: bool,
    behind: u64,
    /// Failed starts of etcd in this Pod.
    crashes: i32,
}

/// One etcd cluster, as its log records it.
#[derive(Clone, Debug, Default)]
pub struct Group {
    pub members: Vec<Listed>,
    pub leader: Option<u64>,
}

/// The object of a pass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Cluster,
    Member(String),
    Store(String),
    Schedule,
    Record(String),
}

/// Mishap of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The API server refused the write as stale.
    Conflict,
    /// The write was carried out, and the answer was lost.
    LostAnswer,
    /// The write was carried out after all else of this tick.
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
    pub restore: Option<holdfast_api::EtcdRestore>,
    /// UIDs of all `EtcdRestore`s.
    returns_made: BTreeSet<String>,
    /// Snapshots that cannot be read back.
    pub broken: BTreeSet<String>,
    pub stores: BTreeMap<String, EtcdBackupStore>,
    /// Versions of Secrets.
    pub secrets: BTreeMap<String, u64>,
    /// The failure of probes; `None`: they succeed.
    pub store_trouble: Option<ExitClass>,
    /// IDs of stores, by their URL.
    pub marks: BTreeMap<String, String>,
    /// Jobs of probes, with their start and the Pod in which they ended.
    probes: BTreeMap<String, (Job, u64, Option<Pod>)>,
    /// Jobs that look for the newest snapshot.
    searches: BTreeMap<String, searches::Asked>,
    /// Jobs that rehearse an upgrade, with their start.
    rehearsals: BTreeMap<String, (Job, Vec<Pod>, u64)>,
    /// Whether the members' databases differ from etcd's member list.
    pub differ: bool,
    /// Whether the API server refuses other resources of a running Pod.
    pub refuses_resize: bool,
    /// Requests of CPU with which admission refuses a Pod.
    pub forbidden_cpu: Option<String>,
    /// Since when admission has refused the Pod of a member.
    refused_since: BTreeMap<String, u64>,
    /// Whether rehearsals fail.
    pub unfit: bool,
    /// Number of answers that stores gave.
    pub answers: u64,
    /// Volumes of an earlier cluster of the same name.
    pub foreign: Vec<cluster::ForeignVolume>,
    pub groups: BTreeMap<u64, Group>,
    pub silent_until: u64,
    /// Whether the latch `formed` was ever written, even if the status was lost since.
    pub has_formed: bool,
    /// Members whose etcd runs and does not answer.
    pub frozen: BTreeSet<String>,
    /// Whether new Pods stay unscheduled.
    pub held: bool,
    /// Whether a starting etcd received so large a snapshot that it serves only after the next entry.
    pub long_snapshots: bool,
    last_entry: u64,
    /// Entries that the operator committed to fill the log.
    filled: u64,
    /// Whether authentication is on.
    pub auth: bool,
    /// Members whose log is corrupt.
    pub corrupt: BTreeSet<String>,
    /// Members whose data differ from the others'.
    pub diverged: BTreeSet<String>,
    /// Alarms that etcd has raised.
    pub alarms: Vec<Alarm>,
    going: BTreeMap<(&'static str, String), u64>,
    pub due: BTreeMap<Who, u64>,
    pub writes: u64,
    pub log: Vec<String>,
    said: BTreeMap<String, String>,
    pub faults: Vec<Fault>,
    /// A fault, and the number of acts before the act that meets it.
    pub interrupts: Option<(u64, Fault)>,
    late: Vec<Act>,
    pub calls_to_membership: u64,
    db_bytes: i64,
    /// Bytes of members' files, and bytes in use, where they differ from `db_bytes`.
    pub files: BTreeMap<String, (i64, i64)>,
    /// Secrets of certificates; `None` in plaintext.
    pub certificates: Option<Certificates>,
    /// Members with renewed certificates, and the time of the renewal.
    refreshed: BTreeMap<String, u64>,
    /// CAs that etcd in each member's Pod has loaded.
    loaded: BTreeMap<String, BTreeSet<(Plane, String)>>,
    /// The CA of cert-manager's issuer.
    issuer: String,
    pub schedule: Option<EtcdSnapshotSchedule>,
    pub cron: Option<CronJob>,
    pub drill_cron: Option<CronJob>,
    /// Why drills end without a proof; Corrupt: the newest snapshot is broken.
    pub drill_trouble: Option<ExitClass>,
    last_due: Option<Timestamp>,
    /// Jobs of the `CronJob`, and Jobs that ask the store about runs.
    tasks: BTreeMap<String, schedules::Task>,
    /// Snapshots that runs have stored.
    pub stored: Vec<schedules::Stored>,
    /// Whether the operator is down.
    pub away: bool,
    /// Keys in the database.
    pub keys: u64,
    /// Announced removals in the store, with the time of the announcement.
    announced: BTreeMap<String, Timestamp>,
    /// Snapshots that the store has locked.
    locked: BTreeSet<String>,
    /// Snapshots that other clusters of the namespace restore.
    restoring_elsewhere: BTreeSet<String>,
    /// The failure of Jobs that remove snapshots; other Jobs are not affected.
    pub prune_trouble: Option<ExitClass>,
    /// The answer to a claim that asks for a larger volume.
    pub growth: volumes::Growth,
    /// Claims that ask for a larger volume, and the time until the volume driver answers.
    growing: BTreeMap<String, u64>,
}

fn backups() -> Location {
    Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None })
}

fn settings() -> Settings {
    Settings {
        agent_image: "holdfast:test".to_owned(),
        etcd_repository: "etcd".to_owned(),
        proxies: Proxies::default(),
        cluster_domain: None,
        allowed_names: vec![],
        pod_run_as: holdfast_api::pod_security::RunAs::default(),
    }
}

impl World {
    pub fn new(replicas: i32, version: &str) -> Self {
        let spec = EtcdClusterSpec {
            replicas,
            version: version.to_owned(),
            tls: Some(Tls { insecure: Some(true), ..Tls::default() }),
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
            restore: None,
            returns_made: BTreeSet::new(),
            broken: BTreeSet::new(),
            stores: BTreeMap::new(),
            secrets: BTreeMap::new(),
            store_trouble: None,
            marks: BTreeMap::new(),
            probes: BTreeMap::new(),
            searches: BTreeMap::new(),
            rehearsals: BTreeMap::new(),
            differ: false,
            refuses_resize: false,
            forbidden_cpu: None,
            refused_since: BTreeMap::new(),
            unfit: false,
            answers: 0,
            foreign: vec![],
            groups: BTreeMap::new(),
            silent_until: 0,
            has_formed: false,
            frozen: BTreeSet::new(),
            held: false,
            long_snapshots: false,
            last_entry: 0,
            filled: 0,
            auth: false,
            corrupt: BTreeSet::new(),
            diverged: BTreeSet::new(),
            alarms: vec![],
            going: BTreeMap::new(),
            due: BTreeMap::new(),
            writes: 0,
            log: vec![],
            said: BTreeMap::new(),
            faults: vec![],
            interrupts: None,
            late: vec![],
            calls_to_membership: 0,
            db_bytes: 1 << 20,
            files: BTreeMap::new(),
            certificates: None,
            refreshed: BTreeMap::new(),
            loaded: BTreeMap::new(),
            issuer: "ca-1".to_owned(),
            schedule: None,
            cron: None,
            drill_cron: None,
            drill_trouble: None,
            last_due: None,
            tasks: BTreeMap::new(),
            stored: vec![],
            away: false,
            keys: 5000,
            announced: BTreeMap::new(),
            locked: BTreeSet::new(),
            restoring_elsewhere: BTreeSet::new(),
            prune_trouble: None,
            growth: volumes::Growth::Online,
            growing: BTreeMap::new(),
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

    /// Makes every object due, as a watch event does, without telling the objects apart.
    fn changed(&mut self) {
        let names = self.members.keys().cloned().map(Who::Member);
        let stores = self.stores.keys().cloned().map(Who::Store);
        let schedule = self.schedule.iter().map(|_| Who::Schedule);
        let unfinished =
            |s: &EtcdSnapshot| s.spec.run.is_some() && !s.status.as_ref().is_some_and(|s| s.phase.is_final());
        let records = self.snapshots.iter().filter(|(_, s)| unfinished(s)).map(|(name, _)| Who::Record(name.clone()));
        for who in std::iter::once(Who::Cluster).chain(names).chain(stores).chain(schedule).chain(records) {
            self.due.insert(who, self.now);
        }
    }

    pub fn say(&mut self, line: impl AsRef<str>) {
        let line = format!("{:>6.1}s  {}", (self.now as f64) / 10.0, line.as_ref());
        self.log.push(line);
    }

    /// Whether members keep their data in the memory of their Pods.
    pub fn in_memory(&self) -> bool {
        self.members.values().any(|m| m.spec.storage.in_memory())
    }

    /// Empties the memory of a Pod that ended.
    fn empty_memory(&mut self, pod: &str) {
        if self.in_memory() {
            self.volumes.remove(&format!("data-{pod}"));
        }
    }

    fn go(&mut self, kind: &'static str, name: &str, meta: &mut ObjectMeta) {
        if meta.deletion_timestamp.is_none() {
            meta.deletion_timestamp = Some(Time(self.time()));
            self.going.insert((kind, name.to_owned()), self.now + GOING);
            self.touch(meta);
        }
    }

    /// Advances the world by a tenth of a second, without the operator.
    pub fn tick(&mut self) {
        self.now += 1;
        for act in std::mem::take(&mut self.late) {
            let _ = self.perform(&act);
        }
        self.sweep();
        self.grow_volumes();
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
        self.end_rehearsals();
        self.tick_jobs();
        self.show_pods();
    }

    fn sweep(&mut self) {
        let gone: Vec<_> = self.going.iter().filter(|(_, at)| **at <= self.now).map(|(k, _)| k.clone()).collect();
        for (kind, name) in gone {
            let held = match kind {
                "pod" => {
                    self.processes.remove(&name);
                    self.pods.remove(&name);
                    self.empty_memory(&name);
                    false
                }
                // Kubernetes keeps a claim that a Pod uses.
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

    /// Whether the cluster has all its voters, all of them ready and admitted, and its status shows that.
    pub fn complete(&self) -> bool {
        let Some(status) = self.cluster.as_ref().and_then(|c| c.status.as_ref()) else { return false };
        let replicas = self.cluster.as_ref().map_or(0, |c| c.spec.replicas);
        let ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        if replicas == 0 {
            return ready && self.pods.is_empty();
        }
        let present = |m: &&EtcdMember| m.spec.leaving.is_none() && m.spec.aside.is_none();
        if !self.members.values().filter(present).all(|m| self.is_updated(m)) {
            return false;
        }
        let admitted = self.pods.values().filter(|p| meta::label(&p.metadata, key::ROLE) == Some("voter")).count();
        ready && status.voters == replicas && i32::try_from(admitted) == Ok(replicas)
    }

    /// Whether a member serves with the template of the spec, latched.
    fn is_updated(&self, member: &EtcdMember) -> bool {
        let wanted = self.cluster.as_ref().map(template::wanted);
        let pod = self.pods.get(meta::name(&member.metadata));
        let current = pod.is_some_and(|pod| pods::ready(pod) && template::is_current(pod, member));
        wanted.as_ref() == Some(&member.spec.process) && current && member.spec.served.is_none()
    }

    /// Runs until `done`, at most `ticks` ticks; `false` where `done` did not hold.
    pub fn run_until(&mut self, ticks: u64, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..ticks {
            // Several passes fit into a tick: a pass takes milliseconds.
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
