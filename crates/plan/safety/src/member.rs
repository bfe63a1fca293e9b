//! Rules for plans about a member. Decides only whether a plan keeps them.

use std::collections::BTreeMap;

use holdfast_api::cluster::Retention;
use holdfast_api::member::{Birth, Joined};
use holdfast_api::name::Scheme;
use holdfast_api::timeline::{FIRST, ReturnPhase, of_member};
use holdfast_api::{EtcdMemberStatus, key, name, role};
use holdfast_contract::Request;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::last_snapshot::{is_kept, needs_members};
use super::{Verdict, is, rule, volumes};
use holdfast_base::objects::{container, request};
use holdfast_base::seen::member::Observed;
use holdfast_base::{Act, Plan, Seen, Target, meta, pods, template};

/// Whether a plan keeps the rules.
pub fn member(seen: &Observed, plan: &Plan<EtcdMemberStatus>) -> Verdict {
    rule("I13", plan.ensures.is_empty(), "a member has nothing that is applied")?;
    let Some(act) = &plan.act else { return Ok(()) };
    match act {
        Act::CreateClaim(claim) => create_claim(seen, claim),
        Act::CreatePod(pod) => create_pod(seen, pod),
        Act::DeletePod { pod, .. } => delete_pod(seen, pod),
        Act::DeleteClaim { claim, .. } => delete_claim(seen, claim),
        Act::ReleaseMember { member } => release(seen, member),
        Act::LatchStart { member, count } => latch_start(seen, member, *count),
        Act::MarkStarted { pod, count, joined } => mark_started(seen, pod, *count, joined),
        Act::Relabel { pod, labels } => relabel(seen, pod, labels),
        Act::SetPodMetadata { pod, labels, annotations } => {
            let keys = || labels.keys().chain(annotations.keys()).filter(|name| *name != key::POD_METADATA);
            let foreign = keys().all(|name| !key::is_own(name) && !key::ALL.contains(&name.as_str()));
            rule("I13", foreign, "a user's labels and annotations never replace Holdfast's")?;
            own_as_seen(seen, pod)
        }
        Act::CopyPodMetadata { member, .. } => {
            rule("I12", is(member, &seen.member.metadata), "the member is the one that was seen")
        }
        Act::RefreshCertificates { pod, digest } => {
            let staged = seen.member.spec.certificates().and_then(|tls| tls.staged.as_ref());
            rule("I15", staged == Some(digest), "a Pod is told of the certificates that its member was given")?;
            own_as_seen(seen, pod)
        }
        Act::RefreshVolume { pod, size } => refresh_volume(seen, pod, size),
        Act::Latch(_)
        | Act::HoldCluster { .. }
        | Act::CopyRetention { .. }
        | Act::ReleaseCluster { .. }
        | Act::CreateMember(_)
        | Act::AddLearner { .. }
        | Act::SetPeerUrl { .. }
        | Act::SetInitialCluster { .. }
        | Act::LatchJoined { .. }
        | Act::ForbidEmptyStart { .. }
        | Act::Promote { .. }
        | Act::Disarm { .. }
        | Act::SetAuth { .. }
        | Act::HoldUser { .. }
        | Act::ReleaseUser { .. }
        | Act::ClaimUser { .. }
        | Act::PutUser { .. }
        | Act::DropUser { .. }
        | Act::CommitEntry { .. }
        | Act::AdmitClients { .. }
        | Act::DeleteMember { .. }
        | Act::LatchLeaving { .. }
        | Act::DismissClients { .. }
        | Act::MoveLeader { .. }
        | Act::EndLeaderRequest { .. }
        | Act::Defragment { .. }
        | Act::RemoveMember { .. }
        | Act::LatchRemoved { .. }
        | Act::Park { .. }
        | Act::Unpark { .. }
        | Act::SetAside { .. }
        | Act::TakeBack { .. }
        | Act::Issue(_)
        | Act::AnnounceCertificates { .. }
        | Act::RecordRun(_)
        | Act::RequestSnapshot(_)
        | Act::DeleteRecord { .. }
        | Act::DeleteJob { .. }
        | Act::DeleteDeployment { .. }
        | Act::StartRun(_)
        | Act::SetTemplate { .. }
        | Act::BeginResize { .. }
        | Act::ResizePod { .. }
        | Act::EndResize { .. }
        | Act::FillLog { .. }
        | Act::GrowClaim { .. }
        | Act::SetVolumeSize { .. }
        | Act::EvictPod { .. }
        | Act::LatchPrune(_)
        | Act::KeepArtifact { .. }
        | Act::LatchRemoval(_)
        | Act::ReleaseArtifact { .. }
        | Act::StartJob(_) => rule("I11", false, "a member's pass never changes the cluster or its membership"),
    }
}

fn own_as_seen(seen: &Observed, pod: &Target) -> Verdict {
    let own = seen.pod.as_ref().filter(|p| meta::controlled_by(&p.metadata, uid(seen)));
    rule("I12", own.is_some_and(|p| is(pod, &p.metadata)), "the Pod is the member's own, as it was seen")
}

fn joined(seen: &Observed) -> bool {
    seen.member.spec.joined.is_some()
}

fn going(seen: &Observed) -> bool {
    meta::deleting(&seen.member.metadata)
}

fn uid(seen: &Observed) -> &str {
    meta::uid(&seen.member.metadata)
}

/// Whether the cluster exists and has not formed. An unread cluster does not count.
fn unformed(seen: &Observed) -> bool {
    matches!(&seen.cluster, Seen::Known(Some(c)) if c.status.as_ref().is_none_or(|s| s.latches.formed.is_none()))
}

/// Whether etcd does not list the member any more, by a latched proof (I4).
fn removed(seen: &Observed) -> bool {
    seen.member.spec.removed.is_some()
}

/// Whether the spec asks for no member, and this member's log index is latched.
fn parked(seen: &Observed) -> bool {
    let zero = matches!(&seen.cluster, Seen::Known(Some(c)) if c.spec.replicas == 0 && !needs_members(c));
    zero && seen.member.spec.parked.is_some()
}

/// Whether a return has set the member aside.
fn set_aside(seen: &Observed) -> bool {
    seen.member.spec.aside.is_some()
}

/// Whether the member belongs to a timeline that its cluster is not in yet.
fn ahead(seen: &Observed) -> bool {
    let Seen::Known(Some(cluster)) = &seen.cluster else { return false };
    let present = cluster.status.as_ref().and_then(|status| status.latches.timeline).unwrap_or(FIRST);
    !joined(seen) && of_member(&seen.member) > present
}

/// Whether the return that set the member aside has ended, so that no cluster goes back to the member.
fn outlived(seen: &Observed) -> bool {
    let Seen::Known(Some(cluster)) = &seen.cluster else { return false };
    let latches = cluster.status.as_ref().map(|status| &status.latches);
    let present = latches.and_then(|latches| latches.timeline).unwrap_or(FIRST);
    let idle = latches.is_some_and(|latches| latches.returning.is_none() && latches.formed.is_some());
    idle && seen.member.spec.aside.as_ref().is_some_and(|aside| aside.timeline <= present)
}

/// Whether the member's data ends with its Pod.
fn in_memory(seen: &Observed) -> bool {
    seen.member.spec.storage.in_memory()
}

/// Whether no cluster needs this member any more: the cluster is gone or being deleted, etcd has removed the member, or no cluster
/// ever formed with it.
fn expendable(seen: &Observed) -> bool {
    match &seen.cluster {
        Seen::Unknown(_) => false,
        Seen::Known(None) => true,
        Seen::Known(Some(cluster)) => {
            let seed = seen.member.spec.role == Birth::Seed;
            let goes = meta::deleting(&cluster.metadata) && !(joined(seen) && is_kept(cluster));
            removed(seen) || goes || outlived(seen) || (!joined(seen) && (seed || unformed(seen)))
        }
    }
}

/// Whether a living cluster needs the member's vote, even if a user deleted the member.
fn counted_on(seen: &Observed) -> bool {
    joined(seen)
        && !removed(seen)
        && !set_aside(seen)
        && matches!(&seen.cluster, Seen::Known(Some(c)) if !meta::deleting(&c.metadata) || is_kept(c))
}

fn active(seen: &Observed) -> Verdict {
    let paused = matches!(&seen.cluster, Seen::Known(Some(c)) if c.spec.paused && !meta::deleting(&c.metadata));
    rule("I13", !paused, "nothing of a paused cluster is changed")
}

fn create_claim(seen: &Observed, claim: &PersistentVolumeClaim) -> Verdict {
    active(seen)?;
    rule("I5", !joined(seen), "a member that has served never gets a new claim")?;
    rule("I11", !removed(seen), "no claim is made for a removed member")?;
    rule("I21", !going(seen), "nothing is made for a member that goes")?;
    rule("I5", seen.claim.is_none(), "a member has one claim")?;
    rule("I5", !in_memory(seen), "a member in memory has no claim")?;
    let labelled = meta::label(&claim.metadata, key::MEMBER_UID) == Some(uid(seen)) && !uid(seen).is_empty();
    rule("I4", labelled, "a claim is labelled with its member's UID")?;
    let owners = claim.metadata.owner_references.iter().flatten().count();
    rule("I4", owners == 0, "no garbage collector may delete data")
}

fn create_pod(seen: &Observed, pod: &Pod) -> Verdict {
    // A roll ended the Pod before the cluster was paused.
    if !joined(seen) || seen.member.spec.served.is_none() {
        active(seen)?;
    }
    rule("I21", !going(seen) || counted_on(seen), "nothing is made for a member that goes")?;
    rule("I11", !removed(seen) && !parked(seen), "no Pod is made for a removed or a parked member")?;
    rule("I2", !set_aside(seen), "two timelines never have a Pod at the same time")?;
    rule(
        "I2",
        pods::prepares(pod) == ahead(seen),
        "a member of the next timeline has no etcd, and each other one has",
    )?;
    rule("I29", !seen.member.spec.is_lost(), "no Pod is made for a member whose data are lost")?;
    rule("I5", seen.pod.is_none(), "a member has one Pod")?;
    rule("I13", meta::controlled_by(&pod.metadata, uid(seen)), "a Pod is owned by its member")?;
    let claim = own_claim(seen);
    if in_memory(seen) {
        let status = seen.member.status.as_ref();
        let ran = status.is_some_and(|status| status.evidence.is_some() || status.received_pod_uid.is_some());
        rule("I5", !joined(seen) && !ran, "a member in memory whose etcd has run never gets a second Pod")?;
    } else {
        rule("I5", claim.is_some_and(|c| !meta::deleting(&c.metadata)), "a Pod starts on its member's own claim")?;
    }
    let learner = meta::label(&pod.metadata, key::ROLE) == Some(role::LEARNER);
    rule("I16", learner, "clients reach no Pod that has not been admitted")?;
    let permission = pod.metadata.annotations.as_ref().and_then(|a| a.get(key::MAY_START_EMPTY));
    if let Some(permitted) = permission {
        rule("I3", !joined(seen), "a member that has joined never starts on an empty volume")?;
        let volume = if in_memory(seen) { Some(uid(seen)) } else { claim.map(|c| meta::uid(&c.metadata)) };
        let own = volume.is_some_and(|volume| volume == permitted && !permitted.is_empty());
        rule("I3", own, "an empty start is permitted only for the member's own claim, or in its own memory")?;
    }
    let knows = seen.member.spec.joined.as_ref().is_none_or(|joined| pods::knows_joined(pod, joined));
    rule("I5", knows, "the Pod of a joined member has the annotation with the joined IDs")?;
    let first = !joined(seen) && seen.member.spec.role == Birth::Seed && unformed(seen);
    let store_id = seen.member.spec.restore.as_ref().filter(|_| restores(pod)).and_then(|r| r.store_id.as_ref());
    let restore = request::of_container(pod.spec.as_ref(), container::RESTORE);
    let expected = restore.as_ref().and_then(Request::expected_store_id);
    let is_expected = store_id.is_none_or(|store_id| expected == Some(store_id));
    rule("I25", is_expected, "a restore expects the known store ID of its store")?;
    let transport = seen.member.spec.transport();
    let listens_plain = |arg: &String| {
        let urls = |port: &str| arg.strip_prefix(&format!("--listen-{port}-urls=")).unwrap_or_default().to_owned();
        let (clients, peers) = (urls("client").contains("http://"), urls("peer").contains("http://"));
        clients && !transport.serves_plaintext() || peers && transport.peers() == Scheme::Https
    };
    let plain = pods::gate(pod).is_none_or(|gate| gate.exec.iter().any(listens_plain));
    let tls = seen.member.spec.certificates();
    let mounted = mounts_secret(pod, &name::member_tls(meta::name(&seen.member.metadata)));
    let staged = ahead(seen) || tls.is_none_or(|tls| tls.staged.is_some() && mounted && !plain);
    rule(
        "I15",
        staged,
        "the Pod of a member with TLS mounts its certificates, and listens in plaintext only where its transport does",
    )?;
    let prepares = ahead(seen) && is_latched(seen);
    rule(
        "I9",
        first || prepares || !restores(pod),
        "restore steps only in the seed of a timeline that has not formed",
    )?;
    rule("I2", first || prepares || !founds(pod), "only the seed of a cluster that has not formed founds one")
}

/// Whether a return that is under way prepares the member.
fn is_latched(seen: &Observed) -> bool {
    let Seen::Known(Some(cluster)) = &seen.cluster else { return false };
    let returning = cluster.status.as_ref().and_then(|status| status.latches.returning.as_ref());
    returning.is_some_and(|it| {
        it.phase() == ReturnPhase::Preparing
            && it.timeline == of_member(&seen.member)
            && it.member.as_deref() == Some(meta::name(&seen.member.metadata))
            && it.restoring == seen.member.spec.restore
    })
}

fn mounts_secret(pod: &Pod, secret: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    volumes.filter_map(|v| v.secret.as_ref()?.secret_name.as_deref()).any(|name| name == secret)
}

fn latch_start(seen: &Observed, target: &Target, count: u64) -> Verdict {
    active(seen)?;
    rule("I12", is(target, &seen.member.metadata), "the member is the one that was seen")?;
    rule("I27", joined(seen), "starts count when the member has joined")?;
    let pod = own_pod(seen);
    rule("I27", pod.is_some_and(pods::ready), "a start counts when its Pod serves")?;
    let numbered = pod.and_then(pods::start_number) == Some(count);
    rule("I27", numbered && count == seen.member.spec.start_count + 1, "starts are counted one by one")
}

fn mark_started(seen: &Observed, target: &Target, count: u64, joined: &Joined) -> Verdict {
    active(seen)?;
    let pod = own_pod(seen);
    rule("I12", pod.is_some_and(|p| is(target, &p.metadata)), "the Pod is the one that was seen")?;
    rule("I27", count == seen.member.spec.start_count, "a Pod's annotation holds the latched start count")?;
    // The gate would refuse a Pod with a smaller number at its next start.
    let own = pod.and_then(pods::start_number).is_some_and(|number| number >= count);
    rule("I27", own, "no Pod's annotation holds a higher number than the Pod's own")?;
    rule(
        "I5",
        seen.member.spec.joined.as_ref() == Some(joined),
        "a Pod's annotation holds the IDs under which its member has joined",
    )
}

fn refresh_volume(seen: &Observed, target: &Target, size: &Quantity) -> Verdict {
    active(seen)?;
    rule("I12", own_pod(seen).is_some_and(|p| is(target, &p.metadata)), "the Pod is the one that was seen")?;
    let asked = own_claim(seen).is_some_and(|claim| volumes::asks_for(claim, size));
    rule("I13", asked, "a Pod's annotation holds the size that its member's claim asks for")
}

fn relabel(seen: &Observed, target: &Target, labels: &BTreeMap<String, String>) -> Verdict {
    active(seen)?;
    let pod = own_pod(seen);
    rule("I12", pod.is_some_and(|p| is(target, &p.metadata)), "the Pod is the one that was seen")?;
    rule("I16", !labels.contains_key(key::ROLE), "only the cluster's pass lets clients in")
}

/// Returns the Pod under the member's name, if the member owns it.
fn own_pod(seen: &Observed) -> Option<&Pod> {
    seen.pod.as_ref().filter(|p| meta::controlled_by(&p.metadata, uid(seen)))
}

/// Returns the claim under the member's name, if it has the member's UID.
fn own_claim(seen: &Observed) -> Option<&PersistentVolumeClaim> {
    seen.claim.as_ref().filter(|c| meta::label(&c.metadata, key::MEMBER_UID) == Some(uid(seen)))
}

fn restores(pod: &Pod) -> bool {
    let init = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten());
    init.into_iter().any(|c| c.name != container::INSTALL) || pods::prepares(pod)
}

/// Whether the gate may found a cluster; also where its request is unknown.
fn founds(pod: &Pod) -> bool {
    pods::gate(pod).is_none_or(|gate| gate.seed)
}

fn delete_pod(seen: &Observed, target: &Target) -> Verdict {
    active(seen)?;
    let own = own_pod(seen);
    rule("I13", own.is_some(), "only the member's own Pod is deleted")?;
    rule("I12", own.is_some_and(|p| is(target, &p.metadata)), "the Pod is the one that was seen")?;
    // The first Pod that refused the member's data, while no container of the Pod runs.
    let known = seen.member.status.as_ref().map(|status| status.refusals.as_slice()).unwrap_or_default();
    let refused = |pod: &Pod| {
        matches!(known, [only] if only.pod_uid == meta::uid(&pod.metadata)) && !pods::runs(pod) && !pods::ready(pod)
    };
    let still = own.is_some_and(|pod| pods::ended(pod) || pods::restore_held_since(pod).is_some() || refused(pod));
    // No etcd runs there. The data of a member in memory would go with the Pod.
    let larger = |pod: &Pod| volumes::is_outgrown(pod, &seen.member, own_claim(seen));
    let outdated =
        |pod: &Pod| (!template::is_current(pod, &seen.member) || larger(pod)) && !pods::runs(pod) && !pods::ready(pod);
    let still = still || (own.is_some_and(outdated) && !(in_memory(seen) && joined(seen)));
    let expendable = if going(seen) { expendable(seen) } else { !joined(seen) || removed(seen) };
    rule(
        "I1",
        still || expendable || parked(seen) || set_aside(seen) || seen.member.spec.is_lost(),
        "the Pod of a member that has joined and runs is not deleted",
    )
}

fn delete_claim(seen: &Observed, target: &Target) -> Verdict {
    rule("I4", going(seen), "the claim of a member that stays is not deleted")?;
    active(seen)?;
    let claim = own_claim(seen);
    rule("I4", claim.is_some() && !uid(seen).is_empty(), "only a claim labelled with the member's UID is deleted")?;
    rule("I12", claim.is_some_and(|c| is(target, &c.metadata)), "the claim is the one that was seen")?;
    rule("I4", expendable(seen), "no claim is deleted that a living cluster may count on")?;
    rule("I4", own_pod(seen).is_none(), "a claim goes after its Pod")?;
    rule("I4", retention(seen) == Retention::Delete, "the claim is to be kept")
}

fn retention(seen: &Observed) -> Retention {
    match &seen.cluster {
        Seen::Known(Some(cluster)) => cluster.spec.storage.retention,
        Seen::Known(None) | Seen::Unknown(_) => seen.member.spec.storage.retention,
    }
}

fn release(seen: &Observed, target: &Target) -> Verdict {
    rule("I4", going(seen), "a member that stays is not let go")?;
    active(seen)?;
    rule("I12", is(target, &seen.member.metadata), "the member is the one that was seen")?;
    rule("I4", expendable(seen), "a living cluster counts on this member")?;
    rule("I21", own_pod(seen).is_none(), "its Pod is still there")?;
    rule("I21", own_claim(seen).is_none() || retention(seen) == Retention::Retain, "its claim is still there")
}
