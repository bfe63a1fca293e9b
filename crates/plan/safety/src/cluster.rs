//! Rules for plans about a cluster. Decides only whether a plan keeps them.

use holdfast_api::cluster::Latches;
use holdfast_api::member::{Birth, Departure, Joined, Leaving, Removed};
use holdfast_api::repair::Loss;
use holdfast_api::timeline::of_member;
use holdfast_api::{EtcdClusterStatus, EtcdMember, component, key, role};
use holdfast_contract::Request;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::facts::{
    answers, formed_as, id, is_healthy, known, latches, listed_as, may_start_empty, named, owner_of, stands_for,
    target_member, voters,
};
use super::{
    Verdict, alarms, auth, certificates, defragment, is, last_snapshot, leadership, replace, retention, roll, rule,
    timeline, transport, upgrade, volumes,
};
use holdfast_base::objects::job::{Kind, request_of};
use holdfast_base::restores::read_by;
use holdfast_base::seen::cluster::{Listed, Member, Membership, Observed};
use holdfast_base::{Act, AlarmKind, Ensure, Plan, Seen, Target, meta, objects, pods, store_identity};

/// The largest number of members, and of learners (`--max-learners` of every server).
const MOST: usize = 9;

/// Whether a plan keeps the rules.
pub fn cluster(seen: &Observed, plan: &Plan<EtcdClusterStatus>) -> Verdict {
    rule("I2", plan.status.latches == latches(seen), "a status carries latches over unchanged")?;
    let deleting = meta::deleting(&seen.cluster.metadata);
    let ends = matches!(plan.act, Some(Act::CopyRetention { .. } | Act::ReleaseCluster { .. }));
    let idle = seen.cluster.spec.paused || deleting;
    let still = plan.ensures.is_empty() && (plan.act.is_none() || (deleting && ends));
    let still = still || last_snapshot::permits(seen, plan) || gives_back(seen, plan);
    rule("I13", !idle || still, "a paused or deleted cluster is left alone")?;
    for ensure in &plan.ensures {
        check_ensure(seen, ensure)?;
    }
    let Some(act) = &plan.act else { return Ok(()) };
    let step = last_snapshot::check_step(seen, act).or_else(|| timeline::check_step(seen, act));
    step.unwrap_or_else(|| check_act(seen, act))
}

/// Whether a plan gives clients of a paused cluster back what an earlier plan took from them in steps, and changes nothing else.
fn gives_back(seen: &Observed, plan: &Plan<EtcdClusterStatus>) -> bool {
    let ends = |new: &Latches| *new == Latches { defragmenting: None, ..latches(seen) };
    let permitted = match &plan.act {
        Some(Act::Latch(new)) => ends(new),
        Some(Act::ForbidEmptyStart { .. } | Act::AdmitClients { .. } | Act::Unpark { .. }) => true,
        Some(_) | None => false,
    };
    permitted && plan.ensures.is_empty() && !meta::deleting(&seen.cluster.metadata)
}

fn check_ensure(seen: &Observed, ensure: &Ensure) -> Verdict {
    let (name, standing) = match ensure {
        Ensure::Service(service) => {
            let name = meta::name(&service.metadata);
            let all = [&seen.peer_service, &seen.client_service].into_iter().flatten();
            (name, all.map(|s| &s.metadata).find(|m| meta::name(m) == name))
        }
        Ensure::Secret(issue) => return certificates::certify(seen, issue),
        Ensure::Reissue(request) => return certificates::reissue(seen, request),
        Ensure::CaBundle { metadata, cas } => {
            let all = seen.certificates.as_ref();
            rule("I15", all.is_some(), "a cluster in plaintext has no CA")?;
            certificates::placed(seen, cas)?;
            (meta::name(metadata), all.and_then(|all| all.bundle.as_ref()).map(|(meta, _)| meta))
        }
        Ensure::CronJob(cron) => {
            rule("I13", false, "a cluster has no CronJob")?;
            (meta::name(&cron.metadata), None)
        }
        Ensure::Deployment(log) => {
            rule("I13", false, "a cluster has no Deployment")?;
            (meta::name(&log.metadata), None)
        }
        Ensure::Certificate { metadata, .. } => {
            let all = seen.certificates.as_ref();
            rule("I15", all.is_some(), "a cluster in plaintext asks for no certificates")?;
            let owners = metadata.owner_references.iter().flatten();
            let there = all.and_then(|all| all.requests.get(meta::name(metadata)));
            let is_owned =
                there.is_none_or(|there| owners.into_iter().any(|o| meta::controlled_by(&there.metadata, &o.uid)));
            return rule("I13", is_owned, "a Certificate of another owner is not changed");
        }
        Ensure::Budget(budget) => (meta::name(&budget.metadata), seen.budget.as_ref().map(|b| &b.metadata)),
        Ensure::DropBudget(target) => {
            let standing = seen.budget.as_ref().map(|b| &b.metadata);
            rule(
                "I12",
                standing.is_some_and(|meta| is(target, meta)),
                "the budget that goes is the one that was seen",
            )?;
            let voters = known(seen).map(|etcd| voters(etcd).len())?;
            rule("I16", voters < 2, "a cluster with two voters or more keeps its disruption budget")?;
            (target.name.as_str(), standing)
        }
    };
    let is_owned = standing.is_none_or(|meta| meta::controlled_by(meta, meta::uid(&seen.cluster.metadata)));
    rule("I13", is_owned, &format!("{name} belongs to another owner, so Holdfast does not apply the object"))
}

fn check_act(seen: &Observed, act: &Act) -> Verdict {
    match act {
        Act::Latch(new) => latch(seen, &latches(seen), new),
        Act::HoldCluster { cluster } => retention::hold(seen, cluster),
        Act::CopyRetention { member, retention } => {
            let other = seen.others.iter().any(|other| is(member, &other.object.metadata));
            if !other {
                target_member(seen, member)?;
            }
            retention::copy(seen, *retention)
        }
        Act::ReleaseCluster { cluster } => retention::release(seen, cluster),
        Act::CreateMember(member) => create(seen, member),
        Act::AddLearner { name, peer_url, cluster_id } => add(seen, name, peer_url, *cluster_id),
        Act::SetPeerUrl { name, member_id, peer_url, cluster_id } => {
            transport::set_peer_url(seen, name, (*member_id, peer_url), *cluster_id)
        }
        Act::SetInitialCluster { member, initial_cluster } => introduce(seen, member, initial_cluster),
        Act::LatchJoined { member, joined } => join(seen, member, joined),
        Act::ForbidEmptyStart { pod, joined } => forbid_empty_start(seen, pod, joined),
        Act::Promote { name, member_id, cluster_id } => promote(seen, name, *member_id, *cluster_id),
        Act::Disarm { alarm, cluster_id } => alarms::disarm(seen, alarm, *cluster_id),
        Act::CommitEntry { cluster_id } => {
            let etcd = formed_as(seen, *cluster_id)?;
            let runs = |l: &Listed| stands_for(seen, l).is_some_and(|m| m.live_pod().is_some_and(pods::runs));
            let silent = etcd.members.iter().any(|l| runs(l) && !answers(seen, etcd, l));
            rule("I17", silent, "an entry is committed only for a member that runs and gives no answer")
        }
        Act::SetAuth { enabled, cluster_id } => auth::set(seen, *enabled, *cluster_id),
        Act::FillLog { entries, cluster_id } => upgrade::fill(seen, formed_as(seen, *cluster_id)?, *entries),
        Act::AdmitClients { pod } => admit(seen, pod),
        Act::Defragment { pod, name, member_id, cluster_id } => {
            defragment::stand_still(seen, pod, name, (*member_id, *cluster_id))
        }
        Act::DeleteMember { member, .. } => delete(seen, member),
        Act::LatchLeaving { member, leaving } => leave(seen, member, leaving),
        Act::DismissClients { pod } => {
            let member = owner_of(seen, pod)?;
            let ends = member.object.spec.leaving.is_some() || defragment::is_under_way(seen, member);
            rule("I16", ends, "only a member that leaves or is defragmented loses its clients")
        }
        Act::MoveLeader { name, from, to, cluster_id } => leadership::hand_over(seen, name, (*from, *to), *cluster_id),
        Act::EndLeaderRequest { cluster, member, refused } => leadership::end_request(seen, cluster, member, *refused),
        Act::RemoveMember { name, member_id, learner, cluster_id } => {
            remove(seen, name, (*member_id, *learner), *cluster_id)
        }
        Act::LatchRemoved { member, removed } => forget(seen, member, removed),
        Act::Park { member, .. } => {
            let object = &target_member(seen, member)?.object;
            rule("I1", seen.cluster.spec.replicas == 0, "members are parked when spec.replicas is 0")?;
            rule("I11", object.spec.parked.is_none() && object.spec.removed.is_none(), "a member is parked once")
        }
        Act::Unpark { member } => unpark(seen, member),
        Act::SetTemplate { member, template, served } => {
            roll::set(seen, target_member(seen, member)?, template, served.as_deref())
        }
        Act::BeginResize { pod, template } => roll::begin_resize(owner_of(seen, pod)?, template),
        Act::ResizePod { pod, resources } => roll::resize(seen, owner_of(seen, pod)?, resources),
        Act::EndResize { pod, .. } => roll::end_resize(owner_of(seen, pod)?),
        Act::GrowClaim { claim, size, at: _ } => volumes::grow(seen, claim, size),
        Act::SetVolumeSize { member, size } => volumes::set(seen, target_member(seen, member)?, size),
        Act::EvictPod { pod, .. } => roll::end(seen, owner_of(seen, pod)?, true),
        Act::DeletePod { pod, .. } => roll::delete(seen, owner_of(seen, pod)?),
        Act::Issue(issue) => certificates::certify(seen, issue),
        Act::AnnounceCertificates { member, digest, trusts, .. } => {
            certificates::announce(seen, target_member(seen, member)?, digest, trusts)
        }
        Act::CreateClaim(_)
        | Act::CreatePod(_)
        | Act::DeleteClaim { .. }
        | Act::ReleaseMember { .. }
        | Act::LatchStart { .. }
        | Act::MarkStarted { .. }
        | Act::RefreshCertificates { .. }
        | Act::SetPodMetadata { .. }
        | Act::CopyPodMetadata { .. }
        | Act::RefreshVolume { .. }
        | Act::Relabel { .. } => rule("I1", false, "the cluster's pass leaves Pods and claims to their members"),
        // `timeline::check_step` decides about the first two.
        Act::SetAside { .. }
        | Act::TakeBack { .. }
        | Act::HoldUser { .. }
        | Act::ReleaseUser { .. }
        | Act::ClaimUser { .. }
        | Act::PutUser { .. }
        | Act::DropUser { .. } => rule("I13", false, "the cluster's pass leaves users to their own passes"),
        Act::RecordRun(_)
        | Act::DeleteRecord { .. }
        | Act::DeleteJob { .. }
        | Act::DeleteDeployment { .. }
        | Act::StartRun(_)
        | Act::LatchPrune(_)
        | Act::KeepArtifact { .. }
        | Act::LatchRemoval(_)
        | Act::ReleaseArtifact { .. } => {
            rule("I13", false, "the cluster's pass leaves EtcdSnapshots to people and to their schedules")
        }
        Act::RequestSnapshot(snapshot) => upgrade::request(seen, snapshot),
        Act::StartJob(job) if rehearses(job) => upgrade::rehearse(seen, job),
        Act::StartJob(job) => search(seen, job),
    }
}

fn forbid_empty_start(seen: &Observed, pod: &Target, joined: &Joined) -> Verdict {
    let latched = owner_of(seen, pod)?.object.spec.joined.as_ref();
    rule("I3", latched.is_some(), "a first start is not forbidden before the member has joined")?;
    rule("I5", latched == Some(joined), "a Pod's annotation holds the IDs under which its member has joined")
}

fn rehearses(job: &Job) -> bool {
    Kind::Rehearse.runs_in(job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()))
}

/// Checks a cluster's only Job: the search for the latest snapshot, before the cluster has formed.
fn search(seen: &Observed, job: &Job) -> Verdict {
    let unformed = latches(seen).formed.is_none() && seen.members.iter().all(|m| m.object.spec.joined.is_none());
    let returns = seen.returns.is_some() && latches(seen).returning.is_none();
    rule("I9", unformed || returns, "a cluster that has formed is not restored again")?;
    let template = job.spec.as_ref().map(|s| &s.template);
    let searches = Kind::Latest.runs_in(template.and_then(|t| t.spec.as_ref()));
    rule("I1", searches, "a cluster's Job only looks for a snapshot")?;
    let store_id = match &seen.store {
        Some(Seen::Known(Some(named))) => store_identity::known(named).map(|known| known.id.as_str()),
        Some(Seen::Known(None) | Seen::Unknown(_)) | None => None,
    };
    rule(
        "I25",
        store_id.is_none_or(|store_id| request_of(job).as_ref().and_then(Request::expected_store_id) == Some(store_id)),
        "a Job expects the known store ID of its store",
    )?;
    let meta = &seen.cluster.metadata;
    let owned = meta::controlled_by(&job.metadata, meta::uid(meta)) && job.metadata.namespace == meta.namespace;
    rule("I13", owned, "a cluster's Job is its own and stands beside it")?;
    let component = template.and_then(|t| t.metadata.as_ref()).and_then(|m| meta::label(m, key::COMPONENT));
    let agent = component == Some(component::SNAPSHOT_AGENT);
    rule("I16", agent, "an agent's Pod never stands behind a Service of a cluster")
}

fn latch(seen: &Observed, old: &Latches, new: &Latches) -> Verdict {
    if let Some(verdict) = timeline::latch(seen, old, new) {
        return verdict;
    }
    replace::latch(seen, old, new)?;
    upgrade::latch(seen, old, new)?;
    defragment::latch(seen, old, new)?;
    volumes::grant(seen, old, new)?;
    if let Some(formed) = &old.formed {
        transport::latch(seen, old, new)?;
        rule("I2", new.formed.as_ref() == Some(formed), "the latch of a formed cluster is never removed or changed")?;
        return rule("I9", new.restoring == old.restoring, "a cluster that has formed is not restored again");
    }
    let any_joined = seen.members.iter().any(|m| m.object.spec.joined.is_some());
    let Some(formed) = &new.formed else {
        return rule("I2", !any_joined, "a cluster with a member that has served goes on to be formed, nothing else");
    };
    let etcd = known(seen)?;
    rule("I2", formed.cluster_id == id(etcd.cluster_id), "the latched cluster ID is the one that answers")?;
    let joined: Vec<&Joined> = seen.members.iter().filter_map(|m| m.object.spec.joined.as_ref()).collect();
    rule("I3", !joined.is_empty(), "the first member is latched as joined before the cluster counts as formed")?;
    rule("I2", joined.iter().all(|j| j.cluster_id == formed.cluster_id), "no member has served another cluster")?;
    let own = formed.corrupt_came_along.iter().any(|old| etcd.members.iter().any(|l| id(l.id) == *old));
    let alone = etcd.members.len() == 1 && formed.restored_from.is_some() && formed.restored_from == old.restoring;
    let certain = formed.corrupt_came_along.is_empty() || (alone && !own);
    rule(
        "I3",
        certain,
        "an alarm is latched as restored only while the restored seed is alone, and never for the seed's own ID",
    )?;
    let seed = seen.members.iter().find(|m| m.object.spec.role == Birth::Seed);
    // Where the seed was removed, the other members remember the restore.
    let remembered = || seen.members.iter().find_map(|m| m.object.spec.restored_from.as_ref());
    let made_from = seed.map_or_else(remembered, |seed| seed.object.spec.restore.as_ref());
    let is_same = formed.restored_from.as_ref() == made_from;
    rule("I9", is_same, "a cluster is latched as restored from what its seed was made with, and from nothing else")?;
    let permitted = seen.members.iter().filter(|m| m.object.spec.joined.is_some()).any(may_start_empty);
    rule("I3", !permitted, "no joined member may start on an empty volume when the cluster counts as formed")
}

fn create(seen: &Observed, member: &EtcdMember) -> Verdict {
    let old = latches(seen);
    let name = meta::name(&member.metadata);
    let prepared = timeline::create(seen, member);
    let latched = prepared.is_some() || old.pending_member.as_deref() == Some(name);
    rule("I11", latched, "a member's name is latched before the member is made")?;
    let mut all = seen.members.iter().chain(&seen.others);
    rule("I5", !all.any(|m| m.name() == name), "a member's name is never used twice")?;
    let present = prepared.is_some() || of_member(member) == seen.timeline();
    rule("I2", present, "a member belongs to the timeline of its cluster")?;
    let uid = meta::uid(&seen.cluster.metadata);
    rule("I13", meta::controlled_by(&member.metadata, uid), "a member is owned by its cluster")?;
    rule("I5", member.spec.joined.is_none(), "a new member has not joined")?;
    retention::create(seen, member, old.formed.is_some())?;
    match member.spec.role {
        Birth::Seed => {
            if let Some(verdict) = prepared {
                verdict?;
            } else {
                rule("I2", old.formed.is_none(), "a cluster that has formed is never seeded again")?;
                rule("I2", seen.members.is_empty(), "there is one seed")?;
                rule(
                    "I2",
                    seen.foreign.is_empty(),
                    "no cluster is founded beside volumes of an earlier one of its name",
                )?;
                rule("I9", member.spec.restore == old.restoring, "a restore is latched before its seed is made")?;
            }
            let keys = member.spec.restore.as_ref().map(read_by).unwrap_or_default();
            let spared = |key: &String| {
                let below = |key: &str, lineage: &str| key == lineage || key.starts_with(&format!("{lineage}/"));
                let knows = |keys: &Option<Vec<String>>| keys.as_ref().is_some_and(|keys| keys.contains(key));
                let apart = |lineage: &str| !below(key, lineage) && !below(lineage, key);
                seen.prunes.iter().all(|run| apart(&run.lineage) || knows(&run.protects))
            };
            rule("I25", keys.iter().all(spared), "nothing removes a snapshot, or a log, while it is restored")
        }
        Birth::Joiner => {
            rule("I2", prepared.is_none(), "no member joins while a return is prepared")?;
            rule("I2", old.formed.is_some(), "members join a cluster that has formed")?;
            upgrade::create(seen, &member.spec.process.version)?;
            rule("I9", member.spec.restore.is_none(), "members that join are never restored")?;
            rule("I11", member.spec.initial_cluster.is_none(), "a member starts only when etcd knows it")?;
            known(seen)?;
            let wanted = usize::try_from(seen.cluster.spec.replicas).unwrap_or(0).min(MOST);
            let stays = |m: &&Member| m.object.spec.leaving.is_none() && m.object.spec.removed.is_none();
            let staying = seen.members.iter().filter(stays).count();
            rule("I11", staying < wanted, "no more members than are wanted")
        }
    }
}

fn add(seen: &Observed, name: &str, peer_url: &str, cluster_id: u64) -> Verdict {
    let etcd = formed_as(seen, cluster_id)?;
    let member = named(seen, name)?;
    rule("I5", member.object.spec.joined.is_none(), "a member that has served is never added again")?;
    let url = objects::member::own_peer_url(&member.object);
    rule("I11", peer_url == url, "a member is added under its own peer URL")?;
    let is_own = |url: &String| objects::member::is_peer_url_of(&seen.cluster, name, url);
    let twice = etcd.members.iter().any(|l| l.name == name || l.peer_urls.iter().any(is_own));
    rule("I11", !twice, "etcd does not list the added member yet")?;
    rule("I3", etcd.alarms.iter().all(|a| a.kind != AlarmKind::Corrupt), "nothing is added while data are in doubt")?;
    rule("I11", member.object.spec.leaving.is_none(), "a member that leaves is not added")?;
    let voters = voters(etcd);
    let healthy = voters.iter().filter(|l| is_healthy(seen, etcd, l)).count();
    let enough = healthy == voters.len() || 2 * healthy > voters.len() + 1;
    rule("I1", enough, "a quorum of the grown cluster is healthy before a member is added")?;
    let learners = etcd.members.len() - voters.len();
    let one = seen.cluster.spec.version.starts_with("3.5.");
    rule("I11", learners < if one { 1 } else { MOST }, "3.5 knows one learner at a time")
}

/// Whether a quorum of the remaining voters is healthy without this voter (I1).
fn spared(seen: &Observed, etcd: &Membership, voter: &Listed) -> bool {
    let rest: Vec<&Listed> = voters(etcd).into_iter().filter(|l| l.id != voter.id).collect();
    let healthy = rest.iter().filter(|l| is_healthy(seen, etcd, l)).count();
    !rest.is_empty() && 2 * healthy > rest.len()
}

fn leave(seen: &Observed, target: &Target, leaving: &Leaving) -> Verdict {
    let etcd = known(seen)?;
    formed_as(seen, etcd.cluster_id)?;
    let member = target_member(seen, target)?;
    let stays = |m: &&Member| m.object.spec.leaving.is_none() && m.object.spec.removed.is_none();
    rule("I11", stays(&member), "the decision that a member leaves is latched once")?;
    let leaves = |m: &&Member| m.object.spec.leaving.is_some() && m.object.spec.removed.is_none();
    let lost = |leaving: &Leaving| leaving.why == Departure::Lost;
    let listed = listed_as(seen, etcd, member.name());
    let joins = listed.map_or(member.object.spec.joined.is_none(), |l| l.learner);
    // No vote goes with such a member.
    let free = match leaving.why {
        Departure::NeverPromoted => joins,
        Departure::NotListed => listed.is_none(),
        Departure::ScaledIn | Departure::Requested | Departure::Lost => false,
    };
    let beside = |m: &Member| !free && (!lost(leaving) || m.object.spec.leaving.as_ref().is_some_and(lost));
    let alone = !seen.members.iter().filter(leaves).any(beside);
    rule("I11", alone, "one member leaves at a time, and beside it one that is lost, or that has no vote")?;
    let wanted = usize::try_from(seen.cluster.spec.replicas).unwrap_or(MOST);
    let staying = seen.members.iter().filter(stays).count();
    rule("I1", wanted > 0, "no member leaves a cluster that is parked")?;
    let lasts = if leaving.why == Departure::ScaledIn {
        rule("I1", staying > wanted, "no member leaves while no fewer are wanted")?;
        false
    } else {
        replace::leave(seen, etcd, member, leaving)?
    };
    let sure = joins || is_sure(seen, etcd, member, leaving);
    rule("I3", sure, "no voter leaves while data are in doubt")?;
    let own = |l: &&Listed| stands_for(seen, l).is_some_and(|m| m.name() == member.name());
    let voter = voters(etcd).into_iter().find(own);
    let last = |v: &Listed| lasts && voters(etcd).len() == 1 && answers(seen, etcd, v);
    let spares = |v: &Listed| last(v) || spared(seen, etcd, v);
    rule("I1", voter.is_none_or(spares), "a quorum of the rest is healthy without the voter")
}

fn remove(seen: &Observed, name: &str, (member_id, learner): (u64, bool), cluster_id: u64) -> Verdict {
    let etcd = formed_as(seen, cluster_id)?;
    let Some(listed) = etcd.members.iter().find(|l| l.id == member_id && l.learner == learner) else {
        return rule("I12", false, "a removed member is listed as it was seen");
    };
    let Some(member) = stands_for(seen, listed) else { return remove_orphan(seen, etcd, listed) };
    rule("I12", member.name() == name, "the removed ID belongs to the member")?;
    rule("I11", member.object.spec.leaving.is_some(), "the decision is latched before a member is removed")?;
    if listed.learner {
        return Ok(());
    }
    let leaving = member.object.spec.leaving.as_ref();
    let sure = leaving.is_some_and(|leaving| is_sure(seen, etcd, member, leaving));
    rule("I3", sure, "no voter goes while data are in doubt")?;
    let serves_clients =
        |pod: &Pod| !meta::deleting(&pod.metadata) && meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER);
    replace::remove(member)?;
    rule("I16", !member.pod.as_ref().is_some_and(serves_clients), "clients are led elsewhere before a voter goes")?;
    rule("I1", etcd.leader.is_some_and(|leader| leader != member_id), "a leader is not removed")?;
    rule("I1", spared(seen, etcd, listed), "a quorum of the rest is healthy without the voter")
}

/// Checks a member without an `EtcdMember`: a learner that never booted, or a member of this cluster whose Pod is gone.
fn remove_orphan(seen: &Observed, etcd: &Membership, listed: &Listed) -> Verdict {
    if listed.learner && listed.name.is_empty() {
        return Ok(());
    }
    let is_own_url = |url: &String| objects::member::is_peer_url(&seen.cluster, url);
    rule(
        "I4",
        !listed.peer_urls.is_empty() && listed.peer_urls.iter().all(is_own_url),
        "the member is not this cluster's",
    )?;
    let runs =
        |pod: &String| listed.peer_urls.iter().any(|url| objects::member::is_peer_url_of(&seen.cluster, pod, url));
    rule("I4", !seen.stray_pods.iter().any(runs), "without an EtcdMember only a member without a Pod is removed")?;
    rule("I29", seen.cluster.spec.repairs_itself(), "in mode Manual a person decides")?;
    rule("I4", latches(seen).orphan == Some(id(listed.id)), "the ID is latched before the objects are read again")?;
    if listed.learner {
        return Ok(());
    }
    rule("I3", etcd.alarms.iter().all(|a| a.kind != AlarmKind::Corrupt), "no voter goes while data are in doubt")?;
    rule("I11", etcd.members.iter().all(|l| !l.learner), "no voter goes while a member joins")?;
    rule("I1", etcd.leader.is_some_and(|leader| leader != listed.id), "a leader is not removed")?;
    rule("I1", spared(seen, etcd, listed), "a quorum of the rest is healthy without the voter")
}

/// Whether no `CORRUPT` alarm is raised, or only that of the member that leaves for it while a majority has the same other data.
fn is_sure(seen: &Observed, etcd: &Membership, member: &Member, leaving: &Leaving) -> bool {
    let for_it = leaving.evidence.as_ref().is_some_and(|why| why.kind == Loss::Diverged);
    etcd.alarms.iter().all(|a| a.kind != AlarmKind::Corrupt) || (for_it && replace::is_outvoted(seen, member))
}

fn forget(seen: &Observed, target: &Target, removed: &Removed) -> Verdict {
    let etcd = known(seen)?;
    formed_as(seen, etcd.cluster_id)?;
    let member = target_member(seen, target)?;
    let spec = &member.object.spec;
    rule("I11", spec.leaving.is_some() && spec.removed.is_none(), "only a member that leaves is latched as removed")?;
    rule("I4", removed.cluster_id == id(etcd.cluster_id), "the proof is of this cluster's member list")?;
    let joined = spec.joined.as_ref().map(|j| &j.member_id);
    rule("I5", removed.member_id.as_ref() == joined, "the proof names the ID under which the member joined")?;
    let listed = |l: &Listed| {
        stands_for(seen, l).is_some_and(|m| m.name() == member.name()) || joined.is_some_and(|j| *j == id(l.id))
    };
    rule("I4", !etcd.members.iter().any(listed), "etcd lists the member still")
}

/// Checks that the leader has applied the largest parked index, which covers every member.
fn unpark(seen: &Observed, target: &Target) -> Verdict {
    let etcd = known(seen)?;
    formed_as(seen, etcd.cluster_id)?;
    target_member(seen, target)?;
    rule("I1", seen.cluster.spec.replicas > 0, "a cluster with spec.replicas 0 stays parked")?;
    let parked = seen.members.iter().filter_map(|m| m.object.spec.parked.as_ref()?.index).max().unwrap_or(0);
    let leader = etcd.members.iter().find(|l| Some(l.id) == etcd.leader).filter(|l| answers(seen, etcd, l));
    let answer = leader.and_then(|l| seen.answers.get(stands_for(seen, l)?.name())?.known());
    let level = answer.is_some_and(|answer| answer.applied_index >= parked);
    rule("I3", level, "the leader has applied as much as every member had when it was parked")
}

fn introduce(seen: &Observed, target: &Target, initial_cluster: &str) -> Verdict {
    let etcd = known(seen)?;
    let member = target_member(seen, target)?;
    rule("I5", member.object.spec.joined.is_none(), "a member that has served keeps its arguments")?;
    let urls: Vec<&str> = initial_cluster.split(',').filter_map(|e| e.split_once('=').map(|(_, url)| url)).collect();
    let listed: Vec<&str> = etcd.members.iter().flat_map(|l| &l.peer_urls).map(String::as_str).collect();
    let same = urls.len() == listed.len() && listed.iter().all(|url| urls.contains(url));
    rule("I11", same, "a new member's initial cluster is exactly the member list of etcd")?;
    let is_own = |(name, url): (&str, &str)| {
        name == member.name() && objects::member::is_peer_url_of(&seen.cluster, member.name(), url)
    };
    rule(
        "I11",
        initial_cluster.split(',').filter_map(|e| e.split_once('=')).any(is_own),
        "a new member's initial cluster contains the member itself",
    )
}

fn join(seen: &Observed, target: &Target, joined: &Joined) -> Verdict {
    let etcd = known(seen)?;
    let member = target_member(seen, target)?;
    rule("I5", member.object.spec.joined.is_none(), "a member joins once")?;
    rule("I2", joined.cluster_id == id(etcd.cluster_id), "the joined member serves the cluster that answers")?;
    let listed = etcd.members.iter().find(|l| id(l.id) == joined.member_id);
    let own = listed.is_some_and(|l| stands_for(seen, l).is_some_and(|m| m.name() == member.name()));
    rule("I5", own, "the latched member ID is the ID that etcd lists")?;
    rule("I5", listed.is_some_and(|l| answers(seen, etcd, l)), "the member answers under the latched ID")?;
    match latches(seen).formed {
        Some(formed) => {
            rule("I2", formed.cluster_id == joined.cluster_id, "the joined member serves the formed cluster")
        }
        None => rule("I2", etcd.members.len() == 1, "the first member is alone"),
    }
}

fn promote(seen: &Observed, name: &str, member_id: u64, cluster_id: u64) -> Verdict {
    let etcd = formed_as(seen, cluster_id)?;
    let member = named(seen, name)?;
    let listed = etcd.members.iter().find(|l| l.id == member_id && l.learner);
    rule("I11", listed.is_some(), "only a learner gets a vote")?;
    let joined = member.object.spec.joined.as_ref();
    rule("I3", joined.is_some_and(|j| j.member_id == id(member_id)), "a member is latched as joined before it votes")?;
    rule("I3", !may_start_empty(member), "a member that votes may not start on an empty volume")?;
    rule("I11", member.object.spec.leaving.is_none(), "a member that leaves gets no vote")?;
    let voters = voters(etcd);
    let healthy = voters.iter().copied().chain(listed).filter(|l| is_healthy(seen, etcd, l)).count();
    rule("I1", 2 * healthy > voters.len() + 1, "with the new vote a quorum is healthy")
}

fn admit(seen: &Observed, target: &Target) -> Verdict {
    let etcd = known(seen)?;
    let formed = latches(seen).formed;
    rule(
        "I3",
        formed.is_some_and(|f| f.cluster_id == id(etcd.cluster_id)),
        "clients come after the cluster has formed",
    )?;
    let member = owner_of(seen, target)?;
    rule("I3", member.object.spec.joined.is_some(), "clients come after the member is latched as joined")?;
    let goes = member.object.spec.leaving.is_some() || defragment::is_under_way(seen, member);
    rule("I16", !goes, "no client is led to a member that leaves or is defragmented")?;
    rule("I16", !timeline::keeps_clients_away(seen), "no client comes while a return saves and sets aside")?;
    let parked = seen.members.iter().any(|m| m.object.spec.parked.is_some());
    rule("I3", !parked, "clients come when the cluster has reached the index at which it was parked")?;
    rule("I3", !may_start_empty(member), "no client reaches a member that may start on an empty volume")?;
    let own = |l: &&Listed| stands_for(seen, l).is_some_and(|m| m.name() == member.name());
    let listed = voters(etcd).into_iter().find(own);
    rule("I16", listed.is_some(), "clients reach members with a vote only")?;
    rule("I3", listed.is_some_and(|l| answers(seen, etcd, l)), "no client reaches a member that another answers for")
}

/// Checks the only members that the operator deletes: a member that etcd does not list any more, by a latched proof; a member of
/// an attempt that never formed; and a seed that etcd does not list, beside a cluster that formed without it.
fn delete(seen: &Observed, target: &Target) -> Verdict {
    if let Some(verdict) = timeline::delete(seen, target) {
        return verdict;
    }
    let member = target_member(seen, target)?;
    let listed =
        |etcd: &Membership| etcd.members.iter().any(|l| stands_for(seen, l).is_some_and(|m| m.name() == member.name()));
    if member.object.spec.removed.is_some() {
        return rule("I4", !seen.etcd.known().is_some_and(listed), "etcd lists the member still");
    }
    if latches(seen).formed.is_some() {
        let seed = member.object.spec.role == Birth::Seed && member.object.spec.joined.is_none();
        return rule("I4", seed && !listed(known(seen)?), "no member of a cluster that has formed is deleted");
    }
    let joined = seen.members.iter().any(|m| m.object.spec.joined.is_some());
    rule("I4", !joined, "no member is deleted where one has served")
}
