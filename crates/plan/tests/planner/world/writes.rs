//! Writes of the operator in the small world, with the guards of its writer, and their plain English.

use holdfast_api::CLUSTER_FINALIZER;
use holdfast_api::member::{Departure, Resize};

use holdfast_fixtures::flags_in;
use holdfast_plan::patch::Patched;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

impl World {
    pub(super) fn write_cluster(&mut self, change: impl FnOnce(&mut EtcdCluster)) {
        if let Some(mut cluster) = self.cluster.take() {
            change(&mut cluster);
            self.writes += 1;
            self.touch(&mut cluster.metadata);
            self.cluster = Some(cluster);
        }
    }

    pub(super) fn write_member(&mut self, name: &str, change: impl FnOnce(&mut EtcdMember)) {
        if let Some(mut object) = self.members.remove(name) {
            change(&mut object);
            self.writes += 1;
            self.members.insert(name.to_owned(), object);
            let mut meta = self.members[name].metadata.clone();
            self.touch(&mut meta);
            self.members.get_mut(name).unwrap().metadata = meta;
        }
    }

    pub(super) fn apply(&mut self, ensure: &Ensure) {
        match ensure.clone() {
            Ensure::Service(mut service) => {
                let name = meta::name(&service.metadata).to_owned();
                self.born(&mut service.metadata);
                self.services.insert(name, *service);
            }
            Ensure::Budget(mut budget) => {
                self.born(&mut budget.metadata);
                self.budget = Some(*budget);
            }
            Ensure::Secret(issue) => {
                let _ = self.issue(&issue);
            }
            Ensure::CaBundle { metadata, cas } => self.bundle(&metadata, &cas),
            Ensure::Reissue(request) => self.issue_again(&request.name),
            Ensure::Certificate { metadata, spec } => self.ask_cert_manager(&metadata, &spec),
            Ensure::DropBudget(_) => self.budget = None,
            Ensure::Deployment(_) => panic!("no schedule has a log here"),
            Ensure::CronJob(cron) if meta::name(&cron.metadata).contains("-drill-") => self.apply_drill_cron_job(*cron),
            Ensure::CronJob(cron) => self.apply_cron_job(*cron),
        }
        self.changed();
    }

    pub(super) fn same(target: &Target, meta: &ObjectMeta) -> Result<(), ()> {
        (*target == Target::from(meta)).then_some(()).ok_or(())
    }

    /// Carries an act out, with the guards of the operator's writer. `Err`: refused, and nothing happened.
    pub fn perform(&mut self, act: &Act) -> Result<(), ()> {
        self.writes += 1;
        if let Some((on, change)) = act.to_patch() {
            return self.patch(on, &change);
        }
        match act.clone() {
            Act::Latch(latches) => {
                // The operator's write carries the resourceVersion of the object it planned from; here no write came in between.
                self.cluster.as_ref().ok_or(())?;
                self.has_formed |= latches.formed.is_some();
                self.write_cluster(|c| c.status.get_or_insert_default().latches = *latches);
            }
            Act::HoldCluster { cluster } => {
                self.patch_cluster(&cluster, |c| {
                    c.metadata.finalizers = Some(vec![CLUSTER_FINALIZER.to_owned()]);
                })?;
            }
            Act::ReleaseCluster { cluster } => {
                self.patch_cluster(&cluster, |c| c.metadata.finalizers = None)?;
                self.collect_members();
            }
            Act::CreateMember(mut object) => {
                let name = meta::name(&object.metadata).to_owned();
                if !self.members.contains_key(&name) {
                    self.born(&mut object.metadata);
                    self.members.insert(name, *object);
                    self.changed();
                }
            }
            Act::AddLearner { peer_url, cluster_id, .. } => self.add_learner(&peer_url, cluster_id)?,
            Act::SetPeerUrl { member_id, peer_url, cluster_id, .. } => {
                self.move_peer(member_id, peer_url, cluster_id)?
            }
            Act::Promote { member_id, cluster_id, .. } => self.promote(member_id, cluster_id)?,
            Act::Disarm { alarm, .. } => self.alarms.retain(|raised| *raised != alarm),
            Act::CommitEntry { .. } => self.last_entry = self.now,
            Act::SetAuth { enabled, .. } => self.auth = enabled,
            Act::FillLog { entries, .. } => self.filled += u64::from(entries),
            Act::Issue(issue) => self.issue(&issue)?,
            Act::Defragment { pod, name, .. } => {
                self.patch_pod(&pod, |p| {
                    p.metadata.labels.get_or_insert_default().insert(key::ROLE.to_owned(), "voter".to_owned());
                })?;
                if let Some((bytes, used)) = self.files.get_mut(&name) {
                    *bytes = *used;
                }
            }
            Act::MoveLeader { from, to, cluster_id, .. } => self.move_leader(from, to, cluster_id)?,
            Act::RemoveMember { member_id, learner, cluster_id, .. } => {
                self.remove_member(member_id, learner, cluster_id)?;
            }
            Act::CreateClaim(mut claim) => {
                let name = meta::name(&claim.metadata).to_owned();
                if !self.volumes.contains_key(&name) {
                    self.born(&mut claim.metadata);
                    Self::bind(&mut claim);
                    self.volumes.insert(name, Volume { claim: *claim, data: None });
                    self.changed();
                }
            }
            Act::CreatePod(mut pod) => {
                self.admit_pod(&pod)?;
                let name = meta::name(&pod.metadata).to_owned();
                if !self.pods.contains_key(&name) {
                    self.born(&mut pod.metadata);
                    if let Some(member) = self.members.get(&name).filter(|m| m.spec.storage.in_memory()) {
                        // The file system in the Pod's memory; no claim of it is visible.
                        let mut memory = Volume::default();
                        memory.claim.metadata.uid = member.metadata.uid.clone();
                        self.volumes.insert(format!("data-{name}"), memory);
                    }
                    self.load_cas(&name, &pod);
                    self.check_reach(&pod);
                    self.pods.insert(name, *pod);
                    self.changed();
                }
            }
            Act::DeletePod { pod, .. } => {
                Self::same(&pod, &self.pods.get(&pod.name).ok_or(())?.metadata)?;
                self.delete_pod(&pod.name);
            }
            Act::GrowClaim { claim, size, at } => self.grow_claim(&claim, size, at)?,
            Act::EvictPod { pod, .. } => {
                Self::same(&pod, &self.pods.get(&pod.name).ok_or(())?.metadata)?;
                self.delete_pod(&pod.name);
            }
            Act::ResizePod { pod, resources } => {
                let answer = if self.refuses_resize { Resize::Refused } else { Resize::Accepted };
                self.patch_pod(&pod, |p| {
                    let annotations = p.metadata.annotations.get_or_insert_default();
                    annotations.insert(key::RESIZE.to_owned(), answer.as_str().to_owned());
                    for etcd in p.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
                        if answer == Resize::Accepted {
                            etcd.resources = Some((*resources).clone());
                        }
                    }
                })?;
            }
            Act::SetTemplate { member, template, served } => self.patch_member(&member, |m| {
                template::put(m, &template);
                m.spec.served = served.map(|served| *served);
            })?,
            Act::DeleteClaim { claim, .. } => {
                let mut volume = self.volumes.get(&claim.name).ok_or(())?.clone();
                Self::same(&claim, &volume.claim.metadata)?;
                self.no_client_counts_on(&volume);
                self.go("claim", &claim.name, &mut volume.claim.metadata);
                self.volumes.insert(claim.name, volume);
            }
            Act::DeleteMember { member, .. } => {
                Self::same(&member, &self.members.get(&member.name).ok_or(())?.metadata)?;
                self.check_kept(&member.name);
                self.delete_member(&member.name);
            }
            Act::ReleaseMember { member } => {
                self.patch_member(&member, |m| m.metadata.finalizers = None)?;
            }
            Act::RecordRun(record) => self.record_run(*record),
            // Saved at once, or failed.
            Act::RequestSnapshot(snapshot) => {
                let name = meta::name(&snapshot.metadata).to_owned();
                if self.store_trouble.is_some() {
                    self.snapshot(&name, Phase::Failed, &name);
                } else if !self.snapshots.contains_key(&name) {
                    self.back_up(&name);
                }
            }
            Act::KeepArtifact { .. } | Act::LatchRemoval(_) | Act::ReleaseArtifact { .. } | Act::DeleteJob { .. } => {
                panic!("nobody deletes a snapshot here: {act:?}")
            }
            Act::StartRun(_) | Act::DeleteDeployment { .. } => panic!("no schedule has a log here: {act:?}"),
            Act::HoldUser { .. }
            | Act::ReleaseUser { .. }
            | Act::ClaimUser { .. }
            | Act::PutUser { .. }
            | Act::DropUser { .. } => panic!("no cluster has users here: {act:?}"),
            Act::LatchPrune(run) => {
                let mut schedule = self.schedule.clone().ok_or(())?;
                schedule.status.get_or_insert_default().prune_run = Some(*run);
                self.touch(&mut schedule.metadata);
                self.schedule = Some(schedule);
            }
            Act::DeleteRecord { snapshot, .. } => {
                Self::same(&snapshot, &self.snapshots.get(&snapshot.name).ok_or(())?.metadata)?;
                self.snapshots.remove(&snapshot.name);
                self.writes += 1;
                self.changed();
            }
            Act::StartJob(mut job) => {
                let name = meta::name(&job.metadata).to_owned();
                let pod = job.spec.as_ref().and_then(|s| s.template.spec.as_ref());
                let of_schedule = job.metadata.owner_references.iter().flatten();
                if Kind::Rehearse.runs_in(pod) {
                    self.start_rehearsal(*job);
                } else if of_schedule.into_iter().any(|owner| owner.kind.starts_with("EtcdSnapshot")) {
                    self.start_task(*job);
                } else if Kind::Latest.runs_in(pod) {
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
            _ => panic!("a merge patch carries this act out: {act:?}"),
        }
        Ok(())
    }

    /// I4, judged by the world: no volume is deleted that holds a member of a formed cluster which still exists.
    pub(super) fn no_client_counts_on(&self, volume: &Volume) {
        let formed = self.cluster.as_ref().and_then(|c| c.status.as_ref()?.latches.formed.clone());
        if let (Some(formed), Some(data)) = (formed, &volume.data) {
            let listed = self.groups[&data.group].members.iter().any(|l| l.id == data.member_id);
            let live = format!("{:x}", data.group) == formed.cluster_id && listed;
            assert!(!live, "a live volume was deleted");
        }
    }

    /// Applies a merge patch as the API server does.
    fn patch(&mut self, on: Patched<'_>, change: &Value) -> Result<(), ()> {
        match on {
            Patched::Cluster(target) => self.patch_cluster(target, |cluster| patch_keys(&mut cluster.metadata, change)),
            Patched::Member(target) => self.patch_member(target, |member| {
                assert_eq!(change.as_object().unwrap().len(), 1);
                member.spec = merged(&member.spec, &change["spec"]);
            }),
            Patched::Pod(target) => self.patch_pod(target, |pod| patch_keys(&mut pod.metadata, change)),
            Patched::User(target) => panic!("no cluster has users here: {target:?}"),
        }
    }

    fn patch_cluster(&mut self, target: &Target, change: impl FnOnce(&mut EtcdCluster)) -> Result<(), ()> {
        Self::same(target, &self.cluster.as_ref().ok_or(())?.metadata)?;
        self.write_cluster(change);
        Ok(())
    }

    fn patch_member(&mut self, target: &Target, change: impl FnOnce(&mut EtcdMember)) -> Result<(), ()> {
        Self::same(target, &self.members.get(&target.name).ok_or(())?.metadata)?;
        self.write_member(&target.name, change);
        Ok(())
    }

    pub(super) fn patch_pod(&mut self, target: &Target, change: impl FnOnce(&mut Pod)) -> Result<(), ()> {
        let mut pod = self.pods.get(&target.name).ok_or(())?.clone();
        Self::same(target, &pod.metadata)?;
        change(&mut pod);
        self.touch(&mut pod.metadata);
        self.pods.insert(target.name.clone(), pod);
        Ok(())
    }
}

/// Changes labels and annotations. Times of other fields would lose their fractions in JSON.
fn patch_keys(metadata: &mut ObjectMeta, change: &Value) {
    let change = &change["metadata"];
    assert!(change.as_object().unwrap().keys().all(|part| ["labels", "annotations"].contains(&part.as_str())));
    metadata.labels = merged(&metadata.labels, &change["labels"]).or(metadata.labels.take());
    metadata.annotations = merged(&metadata.annotations, &change["annotations"]).or(metadata.annotations.take());
}

fn merged<K: Serialize + DeserializeOwned>(object: &K, change: &Value) -> K {
    let mut value = serde_json::to_value(object).unwrap();
    merge(&mut value, change);
    serde_json::from_value(value).unwrap()
}

/// RFC 7396.
fn merge(value: &mut Value, change: &Value) {
    let Value::Object(changes) = change else {
        *value = change.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (name, change) in changes {
        if change.is_null() {
            value.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut value[name], change);
        }
    }
}

/// An act in plain English.
pub fn english(act: &Act) -> String {
    match act {
        Act::Latch(latches) if latches.defragmenting.is_some() => {
            let record = latches.defragmenting.clone().unwrap();
            let began = if record.began.is_some() { " now" } else { "" };
            format!("write down: {} gives space back{began}", record.member)
        }
        Act::Latch(latches) => {
            let freed = latches.defragmented.iter().map(|done| {
                format!(", {} went from {} to {} MiB", done.member, done.before_bytes >> 20, done.after_bytes >> 20)
            });
            let freed: String = freed.collect();
            let pending = latches.pending_member.as_deref().unwrap_or("none");
            let restoring =
                latches.restoring.as_ref().map(|r| format!(", restoring {}", r.source.key)).unwrap_or_default();
            let formed = latches.formed.as_ref().map(|f| format!(", formed as {}", f.cluster_id)).unwrap_or_default();
            let replaced =
                latches.replaced.as_ref().map(|r| format!(", replaces {} on evidence", r.member)).unwrap_or_default();
            let orphan = latches.orphan.as_ref().map(|id| format!(", nothing stands for {id}")).unwrap_or_default();
            let upgrade = latches.upgrade.as_ref().map(|u| {
                let back = if u.reversible { "" } else { ", no way back" };
                format!(", from {} to {}{back}", u.from, u.to)
            });
            let failed = latches.failed_template.as_ref().map(|f| format!(", {} did not start", f.member));
            let (upgrade, failed) = (upgrade.unwrap_or_default(), failed.unwrap_or_default());
            let transport = latches.transport.map(|step| format!(", at {}", step.as_str())).unwrap_or_default();
            let granted = latches.granted_quota.map(|bytes| format!(", quota {} MiB", bytes >> 20)).unwrap_or_default();
            format!(
                "write down: next member {pending}{restoring}{formed}{replaced}{orphan}{upgrade}{failed}{granted}{freed}{transport}"
            )
        }
        Act::HoldCluster { .. } => "put the finalizer on the cluster".to_owned(),
        Act::CopyRetention { member, retention } => format!("write down: the claim of {}: {retention:?}", member.name),
        Act::ReleaseCluster { .. } => "let the cluster go".to_owned(),
        Act::CreateMember(m) => {
            let how = if m.spec.restore.is_some() { ", restored" } else { "" };
            format!("create member {} ({:?}{how})", meta::name(&m.metadata), m.spec.role)
        }
        Act::AddLearner { name, .. } => format!("tell etcd of the learner {name}"),
        Act::SetPeerUrl { name, peer_url, .. } => format!("tell etcd that {name} is at {peer_url}"),
        Act::SetInitialCluster { member, initial_cluster } => {
            let names: Vec<&str> = initial_cluster.split(',').filter_map(|e| e.split_once('=')).map(|e| e.0).collect();
            format!("tell {} of everybody: {}", member.name, names.join(", "))
        }
        Act::LatchJoined { member, .. } => format!("write down: {} has joined", member.name),
        Act::LatchStart { member, count } => format!("write down: {} serves from its Pod number {count}", member.name),
        Act::MarkStarted { pod, count, .. } => format!("tell {} that number {count} has served", pod.name),
        Act::ForbidEmptyStart { pod, .. } => format!("{} may not start empty any more", pod.name),
        Act::Promote { name, .. } => format!("give {name} its vote"),
        Act::LatchLeaving { member, leaving } if leaving.why == Departure::ScaledIn => {
            format!("write down: {} leaves", member.name)
        }
        Act::LatchLeaving { member, leaving } => format!("write down: {} leaves ({:?})", member.name, leaving.why),
        Act::Issue(issue) => {
            let verb = if issue.replaces.is_some() { "renew" } else { "issue" };
            format!("{verb} the certificates of {}", meta::name(&issue.metadata))
        }
        Act::AnnounceCertificates { member, .. } => format!("write down: the certificates of {}", member.name),
        Act::RefreshCertificates { pod, .. } => format!("let kubelet refresh the certificates of {}", pod.name),
        Act::DismissClients { pod } => format!("lead clients away from {}", pod.name),
        Act::Defragment { name, .. } => format!("defragment {name}, and let clients in"),
        Act::MoveLeader { name, to, .. } => format!("move the leadership from {name} to {to:x}"),
        Act::EndLeaderRequest { member, refused: None, .. } => format!("end the request: {member} leads"),
        Act::EndLeaderRequest { member, refused: Some(why), .. } => format!("refuse to let {member} lead: {why:?}"),
        Act::RemoveMember { name, learner, .. } => {
            format!("remove {name} from etcd{}", if *learner { ", a learner" } else { "" })
        }
        Act::LatchRemoved { member, .. } => format!("write down: etcd does not list {}", member.name),
        Act::Park { member, parked } => {
            let known = if parked.index.is_some() { "" } else { ", which does not answer" };
            format!("write down: {} is parked{known}", member.name)
        }
        Act::SetAside { member, .. } => format!("write down: {} is set aside", member.name),
        Act::TakeBack { member, .. } => format!("write down: {} starts again", member.name),
        Act::Unpark { member } => format!("write down: {} is back", member.name),
        Act::FillLog { entries, .. } => format!("commit {entries} entries that change nothing"),
        Act::SetAuth { enabled, .. } => format!("turn authentication {}", if *enabled { "on" } else { "off" }),
        Act::CommitEntry { .. } => "commit an entry that changes nothing".to_owned(),
        Act::Disarm { alarm, .. } => format!("clear the {} alarm of {:x}", alarm.kind.as_str(), alarm.member_id),
        Act::Relabel { pod, labels } => {
            format!(
                "put labels of {} back: {}",
                pod.name,
                labels.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
            )
        }
        Act::AdmitClients { pod } => format!("let clients reach {}", pod.name),
        Act::CreateClaim(c) => format!("create claim {}", meta::name(&c.metadata)),
        Act::CreatePod(p) => {
            let restores = if flags_in(p, "restore").is_some() { ", with a restore step" } else { "" };
            let empty = if pods::may_start_empty(p) { ", may start empty" } else { "" };
            format!("create Pod {}{restores}{empty}", meta::name(&p.metadata))
        }
        Act::GrowClaim { claim, size, .. } => format!("let {} ask for {}", claim.name, size.0),
        Act::SetVolumeSize { member, size } => format!("write down: the volume of {} has {}", member.name, size.0),
        Act::RefreshVolume { pod, .. } => format!("let kubelet look at the volume of {}", pod.name),
        Act::DeletePod { pod, why } => format!("delete Pod {}: {why}", pod.name),
        Act::BeginResize { pod, .. } => format!("mark Pod {}: its resources change", pod.name),
        Act::ResizePod { pod, .. } => format!("resize Pod {}", pod.name),
        Act::EndResize { pod, .. } => format!("write down: Pod {} has its resources", pod.name),
        Act::SetPodMetadata { pod, labels, annotations } => {
            let keys: Vec<&str> = labels.keys().chain(annotations.keys()).map(String::as_str).collect();
            format!("change labels and annotations of Pod {}: {}", pod.name, keys.join(", "))
        }
        Act::CopyPodMetadata { member, .. } => format!("write down: the Pod of {} has spec.podMetadata", member.name),
        Act::EvictPod { pod, why } => format!("evict Pod {}: {why}", pod.name),
        Act::SetTemplate { member, template, served } if served.as_ref() == Some(template) => {
            format!("give {} its earlier template back", member.name)
        }
        Act::SetTemplate { member, served: None, .. } => {
            format!("write down: {} serves with its template", member.name)
        }
        Act::SetTemplate { member, .. } => format!("give {} the template of the spec", member.name),
        Act::DeleteClaim { claim, why } => format!("delete claim {}: {why}", claim.name),
        Act::DeleteMember { member, why } => format!("delete member {}: {why}", member.name),
        Act::ReleaseMember { member } => format!("let member {} go", member.name),
        Act::StartJob(j) => format!("start Job {}", meta::name(&j.metadata)),
        Act::RequestSnapshot(s) => format!("request snapshot {}", meta::name(&s.metadata)),
        Act::RecordRun(s) => format!("record run {}", meta::name(&s.metadata)),
        Act::LatchPrune(run) => match &run.protects {
            None => format!("write down: {} may remove snapshots", run.job),
            Some(keys) => format!("write down: {} protects {}", run.job, keys.len()),
        },
        Act::DeleteRecord { snapshot, why, .. } => format!("delete record {} ({why})", snapshot.name),
        Act::KeepArtifact { .. }
        | Act::LatchRemoval(_)
        | Act::ReleaseArtifact { .. }
        | Act::DeleteJob { .. }
        | Act::StartRun(_)
        | Act::DeleteDeployment { .. }
        | Act::HoldUser { .. }
        | Act::ReleaseUser { .. }
        | Act::ClaimUser { .. }
        | Act::PutUser { .. }
        | Act::DropUser { .. } => {
            format!("{act:?}")
        }
    }
}
