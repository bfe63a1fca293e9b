//! Input of one pass over an `EtcdCluster`: the object, its children, and the answers of etcd.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use holdfast_api::cluster::LastSnapshot;
use holdfast_api::condition::Wanted;
use holdfast_api::timeline::ReturnPhase;
use holdfast_api::transport::Transport;
use holdfast_api::{EtcdCluster, EtcdMember, EtcdSnapshot, component, key, name, timeline};
use holdfast_plan::cluster::{
    Answer, ClusterJob, Ending, ForeignVolume, KeyHash, Member, Membership, Observed, Saving, asks_for_another_minor,
    asks_for_hashes, has_turn, name_of_final_snapshot, name_of_requested_snapshot, newest, saving,
};
use holdfast_plan::schedule::healthy;
use holdfast_plan::{Act, Seen, Unread, ending, meta, pods};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Resource, ResourceExt};
use rand::RngExt;

use super::certificates;
use super::growth::refused_growth;
use super::snapshot::terminates;
use super::source::{Source, cluster_jobs, read_source, returns};
use super::successor::next_pods;
use super::{labelled, owned_by};
use crate::context::Context;
use crate::error::Error;
use crate::etcd::{self, Address};
use crate::reader::{Only, Reader};
use crate::tls::Login;
use crate::{backoff, clock};

/// Reads the cluster of this name and UID with its children; `None` when the cluster is gone.
pub(crate) async fn observe(reader: Reader<'_>, named: &str, uid: &str) -> Result<Option<Observed>, Error> {
    let Some(cluster) = reader.get::<EtcdCluster>(named).await?.filter(|c| c.uid().as_deref() == Some(uid)) else {
        return Ok(None);
    };
    read(reader, cluster).await.map(Some)
}

/// Reads the cluster of this name with its children, for the record of a return; `None` when there is none.
pub(super) async fn observe_named(reader: Reader<'_>, named: &str) -> Result<Option<Observed>, Error> {
    match reader.get::<EtcdCluster>(named).await? {
        Some(cluster) => Box::pin(read(reader, cluster)).await.map(Some),
        None => Ok(None),
    }
}

async fn read(reader: Reader<'_>, cluster: EtcdCluster) -> Result<Observed, Error> {
    let (named, uid) = (&cluster.name_any(), &cluster.uid().unwrap_or_default());
    // By a field that only the operator writes: a member that lost its label must not look absent.
    let objects =
        reader.list::<EtcdMember>(Only::Field("spec.clusterRef.uid", uid), |m| m.spec.cluster_ref.uid == *uid).await?;
    let returns = returns(reader, &cluster, &objects).await?;
    let latches = cluster.status.as_ref().map(|status| &status.latches);
    let returning = latches.and_then(|latches| latches.returning.as_ref());
    let first = cluster.spec.bootstrap.as_ref().and_then(|b| b.restore.as_ref());
    // A cluster that has formed restores for an EtcdRestore alone.
    let restore = match &returns {
        Some(returns) => returns.spec.from.as_ref(),
        None => first,
    };
    let formed = cluster.status.as_ref().is_some_and(|s| s.latches.formed.is_some());
    let restores = !formed || returns.is_some();
    // Until the source is latched.
    let seeks = if returns.is_some() { returning.is_none() } else { !formed };
    let (pods, claims, peer_service, client_service, budget, foreign, source) = futures::try_join!(
        reader.list::<Pod>(Only::Label(key::CLUSTER_UID, uid), |p| labelled(p, key::CLUSTER_UID, uid)),
        reader.list::<PersistentVolumeClaim>(Only::Label(key::CLUSTER_UID, uid), |c| labelled(
            c,
            key::CLUSTER_UID,
            uid
        )),
        async { reader.get::<Service>(&name::peer_service(named)).await },
        async { reader.get::<Service>(&name::client_service(named)).await },
        async { reader.get::<PodDisruptionBudget>(&name::budget(named)).await },
        async { if formed { Ok(vec![]) } else { foreign(reader, named, uid).await } },
        read_source(reader, restore, (restores, seeks), uid),
    )?;
    let Source { snapshot, store, searches, prunes, refusal } = source;
    let (foreign, foreign_members) = if formed && objects.is_empty() {
        futures::try_join!(self::foreign(reader, named, uid), foreign_members(reader, named, uid))?
    } else {
        (foreign, vec![])
    };
    let foreign = [foreign, orphaned(&cluster, &objects, &claims)].concat();
    let stray = |pod: &&Pod| !objects.iter().any(|member| owned_by(*pod, &member.uid().unwrap_or_default()));
    let stray_pods = pods.iter().filter(stray).map(ResourceExt::name_any).collect();
    let present = timeline::of_cluster(&cluster, objects.iter());
    let all = objects.into_iter().map(|object| with_parts(object, &pods, &claims));
    let (members, others): (Vec<Member>, Vec<Member>) =
        all.partition(|m| m.object.spec.aside.is_none() && timeline::of_member(&m.object) == present);
    let saves = returning.filter(|returning| returning.phase() == ReturnPhase::Saving);
    let safety_snapshot = match saves {
        Some(returning) => reader.get::<EtcdSnapshot>(&name::safety_snapshot(named, &returning.uid)).await?,
        None => None,
    };

    let Preflight { rehearsals, backup, requested } = preflight(reader, &cluster, &members).await?;
    let ending = if ending::asked_for_snapshot(&cluster) { Some(read_ending(reader, &cluster).await?) } else { None };

    // Without its Secrets the operator cannot ask a cluster with TLS. Pods, claims and clients need no Secret of the operator.
    let (read, unread_certificates) = match certificates::certificates(reader, &cluster, &members).await {
        Ok(read) => (read, None),
        // Without the error: the first read that fails, and so the text, differs from pass to pass (I17).
        Err(error) if error.is_forbidden() => {
            tracing::debug!(%error, "certificates cannot be read");
            (None, Some("the API server forbids it".to_owned()))
        }
        Err(error) => return Err(error),
    };
    let (certificates, login) = read.map_or((None, None), |(all, login)| (Some(all), login));

    let Answers { etcd, servers: answers, hashes, auth } = ask(reader, &cluster, &members, login.as_ref()).await;
    let (refused_growth, next_pods) =
        futures::join!(refused_growth(reader, &cluster, &members), next_pods(reader, &cluster, &members));
    let (last_snapshot, saving) = of_snapshots(reader, named, uid);

    Ok(Observed {
        auth,
        has_turn: takes_turn(reader, &cluster),
        refused_growth,
        next_pods,
        cluster,
        members,
        others,
        returns,
        safety_snapshot,
        peer_service,
        client_service,
        budget,
        etcd,
        answers,
        snapshot,
        store,
        foreign,
        foreign_members,
        prunes,
        stray_pods,
        hashes,
        searches,
        rehearsals,
        backup,
        requested,
        ending,
        refusal,
        certificates,
        unread_certificates,
        last_snapshot,
        saving,
        refused_for: refused_for(reader, named),
        backups: backups(reader, named),
        client_endpoints: client_endpoints(reader, named),
        fresh_suffix: fresh_suffix(),
        settings: reader.ctx.settings.clone(),
    })
}

/// Answers of a cluster's servers.
struct Answers {
    etcd: Seen<Membership>,
    servers: BTreeMap<String, Seen<Answer>>,
    hashes: BTreeMap<String, KeyHash>,
    auth: Option<bool>,
}

/// Asks each member, and reads the membership.
async fn ask(reader: Reader<'_>, cluster: &EtcdCluster, members: &[Member], login: Option<&Login>) -> Answers {
    let addresses: Vec<Address> = members.iter().filter_map(|m| address(m, login)).collect();
    let (pool, news) = (&reader.ctx.etcd, reader.ctx.wakers.news_of(cluster));
    let round = etcd::answers(pool, &addresses, &news).await;
    let etcd = etcd::membership(pool, &addresses, &round).await;
    let latches = cluster.status.as_ref().map(|status| &status.latches);
    let alarms = etcd.known().and_then(|etcd| asks_for_hashes(etcd, latches?.replaced.as_ref()));
    let hashes = etcd::hashes(pool, &addresses, alarms.as_deref(), &news);
    let answers: BTreeMap<_, _> =
        round.answers.into_iter().filter_map(|(member, answer)| answer_of_member(members, member, answer)).collect();
    let auth = auth(reader, cluster, leader_of(&etcd, &answers, &addresses)).await;
    Answers { etcd, servers: answers, hashes, auth }
}

/// Asks whether authentication is on. In plaintext the operator has no login, and etcd says so itself; on the way between plaintext and
/// TLS the answer decides about the next step.
async fn auth(reader: Reader<'_>, cluster: &EtcdCluster, leader: Option<&Address>) -> Option<bool> {
    let on_its_way = cluster.transport() == Transport::PeersPlaintext;
    let leader = leader.filter(|at| at.tls.is_some() || on_its_way)?;
    etcd::is_auth_on(&reader.ctx.etcd, leader, cluster.spec.auth.as_ref().map(|auth| auth.enabled)).await
}

/// Returns the leader's server, after a linearizable read has named the leader.
fn leader_of<'a>(
    etcd: &Seen<Membership>,
    answers: &BTreeMap<String, Seen<Answer>>,
    addresses: &'a [Address],
) -> Option<&'a Address> {
    let leader = etcd.known()?.leader?;
    let leads = |at: &&Address| answers.get(&at.member).and_then(Seen::known).is_some_and(|it| it.member_id == leader);
    addresses.iter().find(leads)
}

/// The last snapshot, and the saves that are under way. From the cache in both views: the list of a cluster's snapshots is long, the
/// date guards no act, and each view sees a save that begins at this moment only a moment later.
fn of_snapshots(reader: Reader<'_>, named: &str, uid: &str) -> (Option<LastSnapshot>, Vec<Saving>) {
    let all = reader.ctx.caches.snapshots.of_cluster(reader.namespace, named);
    let all = || all.iter().map(AsRef::as_ref);
    (newest(uid, all()), saving(uid, all(), clock::now()))
}

/// How long etcd has refused the next step. From the operator's memory: a restart forgets it.
fn refused_for(reader: Reader<'_>, named: &str) -> Option<SignedDuration> {
    let object = backoff::key::<EtcdCluster>(reader.namespace, named);
    reader.ctx.backoff.refused_for(&object, clock::instant()).and_then(|lasted| lasted.try_into().ok())
}

/// Whether the cluster's defragmentation has its turn. From the cache in both views: two clusters that decide at this moment may both
/// have the last turn for a moment.
fn takes_turn(reader: Reader<'_>, cluster: &EtcdCluster) -> bool {
    let decided = cluster.status.as_ref().is_some_and(|status| status.latches.defragmenting.is_some());
    let all = || reader.ctx.caches.clusters.state();
    !decided || has_turn(cluster, all().iter().map(AsRef::as_ref), clock::now())
}

/// The objects that an upgrade needs before it begins.
#[derive(Default)]
struct Preflight {
    /// Jobs that rehearse.
    rehearsals: Vec<ClusterJob>,
    /// The newest complete snapshot.
    backup: Option<EtcdSnapshot>,
    /// The snapshot that the operator requested.
    requested: Option<EtcdSnapshot>,
}

/// The objects before an upgrade, while the spec asks for another minor. Snapshots come from the cache in both views: a snapshot that
/// is complete stays complete, and a second request has the same name.
async fn preflight(reader: Reader<'_>, cluster: &EtcdCluster, members: &[Member]) -> Result<Preflight, Error> {
    let begins = cluster.status.as_ref().is_some_and(|s| s.latches.formed.is_some() && s.latches.upgrade.is_none());
    if !begins || !asks_for_another_minor(cluster, members.iter().map(|member| &member.object)) {
        return Ok(Preflight::default());
    }
    let uid = cluster.uid().unwrap_or_default();
    let all = reader.ctx.caches.snapshots.of_cluster(reader.namespace, &cluster.name_any());
    let last = newest(&uid, all.iter().map(AsRef::as_ref));
    let find = |name: String| all.iter().find(|snapshot| snapshot.name_any() == name).map(|found| (**found).clone());
    let (backup, requested) = (last.and_then(|last| find(last.name)), find(name_of_requested_snapshot(cluster)));
    Ok(Preflight { rehearsals: cluster_jobs(reader, &uid).await?, backup, requested })
}

/// Facts for the last snapshot. The namespace matters only until the snapshot is requested.
async fn read_ending(reader: Reader<'_>, cluster: &EtcdCluster) -> Result<Ending, Error> {
    let snapshot = reader.get::<EtcdSnapshot>(&name_of_final_snapshot(cluster)).await?;
    let terminating = snapshot.is_none() && terminates(reader).await;
    Ok(Ending { snapshot, terminating })
}

/// From the cache in both views: the schedules guard no act here.
fn backups(reader: Reader<'_>, named: &str) -> Wanted {
    let all = reader.ctx.caches.schedules.of_cluster(reader.namespace, named);
    healthy(all.iter().map(AsRef::as_ref))
}

/// From the cache in both views: endpoints guard no act.
fn client_endpoints(reader: Reader<'_>, named: &str) -> Option<Vec<String>> {
    let cache = &reader.ctx.caches.endpoints;
    if !cache.is_filled() {
        return None;
    }
    let service = name::client_service(named);
    let of_service = |slice: &EndpointSlice| labelled(slice, SERVICE_NAME, &service);
    let slices = cache.within(reader.namespace, of_service);
    let ready = |endpoint: &&Endpoint| endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true);
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().filter(ready));
    Some(endpoints.filter_map(|endpoint| endpoint.target_ref.as_ref()?.uid.clone()).collect())
}

/// Kubernetes' label of an EndpointSlice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Claims of this cluster's members where status and members are lost: only they show that the cluster had formed (I2). Once a
/// member's name is latched, a claim without a member comes from an earlier attempt that never served.
fn orphaned(cluster: &EtcdCluster, members: &[EtcdMember], claims: &[PersistentVolumeClaim]) -> Vec<ForeignVolume> {
    let has_founded =
        cluster.status.as_ref().is_some_and(|s| s.latches.formed.is_some() || s.latches.pending_member.is_some());
    if has_founded || !members.is_empty() {
        return vec![];
    }
    let volume = |claim: &PersistentVolumeClaim| ForeignVolume {
        claim: claim.name_any(),
        going: claim.meta().deletion_timestamp.is_some(),
    };
    let named = |claim: &&PersistentVolumeClaim| labelled(*claim, key::CLUSTER, &cluster.name_any());
    claims.iter().filter(named).map(volume).collect()
}

/// Claims of members of an earlier cluster of this name: they may hold its data.
async fn foreign(reader: Reader<'_>, named: &str, uid: &str) -> Result<Vec<ForeignVolume>, Error> {
    let earlier = |claim: &PersistentVolumeClaim| {
        labelled(claim, key::CLUSTER, named)
            && labelled(claim, key::COMPONENT, component::MEMBER)
            && !labelled(claim, key::CLUSTER_UID, uid)
    };
    let mut found = vec![];
    for claim in reader.list::<PersistentVolumeClaim>(Only::Label(key::CLUSTER, named), earlier).await? {
        let going = claim.meta().deletion_timestamp.is_some() || its_member_goes(reader, &claim).await?;
        found.push(ForeignVolume { claim: claim.name_any(), going });
    }
    Ok(found)
}

/// Members of an earlier cluster of this name.
async fn foreign_members(reader: Reader<'_>, named: &str, uid: &str) -> Result<Vec<String>, Error> {
    let earlier = |member: &EtcdMember| {
        let cluster = &member.spec.cluster_ref;
        cluster.name == named && cluster.uid != uid
    };
    Ok(reader.list::<EtcdMember>(Only::Everything, earlier).await?.iter().map(ResourceExt::name_any).collect())
}

async fn its_member_goes(reader: Reader<'_>, claim: &PersistentVolumeClaim) -> Result<bool, Error> {
    let (Some(member), Some(uid)) = (claim.labels().get(key::MEMBER), claim.labels().get(key::MEMBER_UID)) else {
        return Ok(false);
    };
    let member = reader.get::<EtcdMember>(member).await?;
    Ok(member.is_some_and(|m| m.uid().as_ref() == Some(uid) && m.meta().deletion_timestamp.is_some()))
}

fn with_parts(object: EtcdMember, pods: &[Pod], claims: &[PersistentVolumeClaim]) -> Member {
    let uid = object.uid().unwrap_or_default();
    let pod = pods.iter().find(|pod| owned_by(*pod, &uid)).cloned();
    let claim = claims.iter().find(|claim| labelled(*claim, key::MEMBER_UID, &uid)).cloned();
    Member { object, pod, claim }
}

/// Address of a member's server. A `Pending` Pod with an address counts: kubelet reports a running container up to a second late,
/// and etcd starts faster.
pub(super) fn address(member: &Member, login: Option<&Login>) -> Option<Address> {
    let (pod_uid, ip) = place(member)?;
    let spec = &member.object.spec;
    let pod = member.pod.as_ref().map(pods::transport)?;
    // I15: a member that has no Pod in plaintext, nor had one before its present template, is not asked in plaintext.
    let may_be_plain = spec.transport() <= Transport::PeersPlaintext;
    let plain = may_be_plain && (pod == Transport::Plaintext || login.is_none() && pod.serves_plaintext());
    let tls = if plain {
        None
    } else {
        // I15: without its certificate the operator asks nothing.
        let namespace = member.object.namespace().unwrap_or_default();
        Some((login?.clone(), name::host(member.name(), &spec.cluster_ref.name, &namespace)))
    };
    Some(Address { member: member.object.name_any(), pod_uid, ip, tls })
}

/// UID and address of a member's Pod.
fn place(member: &Member) -> Option<(String, IpAddr)> {
    let pod = member.pod.as_ref()?;
    let status = pod.status.as_ref()?;
    let runs = matches!(status.phase.as_deref(), Some("Running" | "Pending"));
    Some((pod.uid()?, status.pod_ip.as_deref()?.parse().ok()?)).filter(|_| runs)
}

/// Address of the server that an act goes to: the member's own for a defragmentation, else the leader's; `None` where that server
/// does not answer.
pub(crate) fn server(ctx: &Context, seen: &Observed, act: &Act) -> Option<Address> {
    let id = match act {
        Act::Defragment { member_id, .. } => *member_id,
        _ => seen.etcd.known()?.leader?,
    };
    let cluster = &seen.cluster.metadata;
    let login =
        ctx.tls.login(cluster.namespace.as_deref().unwrap_or_default(), &name::operator_tls(meta::name(cluster)));
    seen.members
        .iter()
        .filter_map(|member| address(member, login.as_ref()))
        .find(|at| seen.answers.get(&at.member).and_then(Seen::known).is_some_and(|answer| answer.member_id == id))
}

/// A member's answer for the plan; `None` for the silence of a Pod that does not run yet.
fn answer_of_member(
    members: &[Member],
    member: String,
    answer: Result<Answer, Unread>,
) -> Option<(String, Seen<Answer>)> {
    let runs = || {
        members
            .iter()
            .find(|m| m.object.name_any() == member)
            .and_then(|m| m.pod.as_ref()?.status.as_ref()?.phase.as_deref().map(|phase| phase == "Running"))
            .unwrap_or(false)
    };
    match answer {
        Ok(answer) => Some((member, Seen::Known(answer))),
        Err(why) if runs() => Some((member, Seen::Unknown(why))),
        Err(_) => None,
    }
}

/// Delay until the next question to a member that has an address and does not serve yet. No watch reports that etcd serves, and
/// every question costs one refused connection. The short delay ends a minute after the init containers: rebuilding the data
/// may take hours.
pub(crate) fn hurry(seen: &Observed, now: Timestamp) -> Option<Duration> {
    let starting = |member: &Member| {
        place(member)?;
        if member.object.spec.joined.is_some() || seen.answers.get(member.name()).and_then(Seen::known).is_some() {
            return None;
        }
        let pod = member.pod.as_ref()?;
        let made = pod.creation_timestamp().map(|at| at.0);
        // Two clocks: where the Pod is younger than the end of its init containers, the Pod's creation counts.
        made.max(prepared(pod, now)).map(|since| now.duration_since(since).as_secs())
    };
    let youngest = seen.members.iter().filter_map(starting).min()?;
    Some(if youngest < 60 { Duration::from_millis(100) } else { Duration::from_secs(2) })
}

/// End of a Pod's last init container that succeeded, if there is one.
fn prepared(pod: &Pod, now: Timestamp) -> Option<Timestamp> {
    let steps = pod.status.as_ref()?.init_container_statuses.iter().flatten();
    let ends = steps.filter_map(|step| step.state.as_ref()?.terminated.as_ref());
    let ends = ends.filter(|end| end.exit_code == 0).filter_map(|end| end.finished_at.as_ref()).map(|at| at.0);
    // The node's clock may be ahead.
    ends.filter(|end| *end <= now).max()
}

/// Five characters without vowels, so that they spell no words: 14 million names. The API server refuses a taken name.
fn fresh_suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut luck = rand::rng();
    (0..5).map(|_| char::from(LETTERS[luck.random_range(0..LETTERS.len())])).collect()
}

#[cfg(test)]
mod tests {
    use holdfast_fixtures::{noon, seeding};

    use super::*;
    use jiff::SignedDuration;
    use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
    use kube::api::ObjectMeta;
    use serde_json::json;

    use crate::fake::Fake;
    use crate::reader::View;

    fn member(name: &str, uid: &str) -> EtcdMember {
        let metadata = ObjectMeta { name: Some(name.to_owned()), uid: Some(uid.to_owned()), ..ObjectMeta::default() };
        EtcdMember { metadata, ..EtcdMember::default() }
    }

    fn pod(owner: &str, phase: &str, ip: Option<&str>) -> Pod {
        let owner = OwnerReference { uid: owner.to_owned(), ..OwnerReference::default() };
        Pod {
            metadata: ObjectMeta {
                uid: Some(format!("pod-of-{}", owner.uid)),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            status: Some(PodStatus {
                phase: Some(phase.to_owned()),
                pod_ip: ip.map(str::to_owned),
                ..PodStatus::default()
            }),
            ..Pod::default()
        }
    }

    /// Else the operator would create the same Job on every pass, and the API server would answer that it exists.
    #[tokio::test]
    async fn a_search_whose_labels_somebody_took_away_is_seen() {
        let job = |name: &str, owner: &str| {
            let owner = json!({"apiVersion": "v1", "kind": "k", "name": "n", "uid": owner, "controller": true});
            json!({"metadata": {"name": name, "namespace": "prod", "uid": name, "ownerReferences": [owner]}})
        };
        let jobs = json!({"apiVersion": "batch/v1", "kind": "JobList", "metadata": {},
            "items": [job("bare", "a-uid"), job("foreign", "b-uid")]});
        let pods = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []});
        let api = Fake::start(vec![("GET", "/jobs", 200, jobs), ("GET", "/pods", 200, pods)]).await;
        let reader = Reader { ctx: &api.ctx, namespace: "prod", view: View::Live };
        let found = cluster_jobs(reader, "a-uid").await.unwrap();
        assert_eq!(found.iter().map(|search| search.job.name_any()).collect::<Vec<_>>(), ["bare"]);
    }

    /// I2: a restore of the API server, or a person, loses status and members but not the volumes.
    #[test]
    fn own_claims_without_a_member_are_volumes_found() {
        let mut object = seeding(1).cluster;
        object.status = None;
        let claim = |name: &str, cluster: &str| {
            let labels = Some([(key::CLUSTER.to_owned(), cluster.to_owned())].into());
            let metadata = ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
            PersistentVolumeClaim { metadata, ..PersistentVolumeClaim::default() }
        };
        // A person removes the label from a claim that the operator shall ignore.
        let claims = [claim("data-a-m0", "a"), claim("data-a-m1", "")];
        let found = |object: &EtcdCluster, members: &[EtcdMember]| {
            orphaned(object, members, &claims).iter().map(|volume| volume.claim.clone()).collect::<Vec<_>>()
        };
        assert_eq!(found(&object, &[]), ["data-a-m0"]);
        assert!(found(&object, &[member("a-m0", "u1")]).is_empty(), "its member stands for the claim");
        // An attempt that never served left its claim.
        object.status.get_or_insert_default().latches.pending_member = Some("a-m2".to_owned());
        assert!(found(&object, &[]).is_empty());
    }

    #[test]
    fn parts_are_found_by_uid_never_by_name() {
        let pods = [pod("other", "Running", None), pod("u1", "Running", None)];
        let whole = with_parts(member("a", "u1"), &pods, &[]);
        assert_eq!(whole.pod.and_then(|p| p.uid()).as_deref(), Some("pod-of-u1"));
        assert!(with_parts(member("a", "u2"), &pods, &[]).pod.is_none());
    }

    #[test]
    fn pods_with_an_address_are_asked_unless_they_ended() {
        let asked = |phase, ip| {
            let whole = with_parts(member("a", "u1"), &[pod("u1", phase, ip)], &[]);
            place(&whole).is_some()
        };
        assert!(asked("Running", Some("10.0.0.1")));
        assert!(asked("Pending", Some("10.0.0.1")));
        assert!(!asked("Pending", None));
        assert!(!asked("Failed", Some("10.0.0.1")));
        assert!(!asked("Running", Some("no address")));
    }

    #[test]
    fn silence_counts_only_from_pods_that_run() {
        let said = |phase| {
            let whole = [with_parts(member("a", "u1"), &[pod("u1", phase, Some("10.0.0.1"))], &[])];
            answer_of_member(&whole, "a".to_owned(), Err(Unread::Other("refused".to_owned())))
        };
        assert_eq!(said("Running"), Some(("a".to_owned(), Seen::unknown("refused"))));
        assert_eq!(said("Pending"), None);
    }

    /// Rebuilding the data may take hours: the minute counts from the end of the restore step, when etcd may start.
    #[test]
    fn who_is_about_to_serve_is_asked_often_for_a_minute() {
        let (often, seldom) = (Some(Duration::from_millis(100)), Some(Duration::from_secs(2)));
        let ago = |seconds| Some(Time(noon() - SignedDuration::from_secs(seconds)));
        // Seconds since the Pod was made; seconds since its restore step ended, with its exit code.
        for (made, ended, expected) in [
            (59, None, often),
            (60, None, seldom),
            (3600, None, seldom),
            (3600, Some((59, 0)), often),
            (3600, Some((60, 0)), seldom),
            // kubelet first runs the failed step again.
            (3600, Some((1, 1)), seldom),
            // The node's clock is behind.
            (10, Some((90, 0)), often),
        ] {
            let mut seen = seeding(1);
            seen.answers.clear();
            let mut whole = pod("u1", "Pending", Some("10.0.0.1"));
            whole.metadata.creation_timestamp = ago(made);
            let step = ended.map(|(seconds, exit_code)| {
                let end = ContainerStateTerminated {
                    exit_code,
                    finished_at: ago(seconds),
                    ..ContainerStateTerminated::default()
                };
                let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
                ContainerStatus { name: "restore".to_owned(), state, ..ContainerStatus::default() }
            });
            whole.status.as_mut().unwrap().init_container_statuses = step.map(|step| vec![step]);
            seen.members[0].pod = Some(whole);
            assert_eq!(hurry(&seen, noon()), expected, "{made} s, {ended:?}");
        }
        let mut serves = seeding(1);
        serves.members[0].pod = Some(pod("u1", "Running", Some("10.0.0.1")));
        assert_eq!(hurry(&serves, noon()), None, "it answers already");
    }

    #[test]
    fn suffixes_fit_names_and_differ() {
        let some: std::collections::HashSet<String> = (0..100).map(|_| fresh_suffix()).collect();
        assert!(some.len() > 95);
        assert!(some.iter().all(|s| s.len() == 5 && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())));
    }
}
