//! The order of decisions about one user.
//!
//! Decides when a user is claimed, made, changed and deleted in etcd, and when its certificate is issued. A claim stands in an
//! annotation before etcd gets the user, so that a crash leaves no user without an owner, and Holdfast changes no user that it has
//! not claimed (I31). The claim names the etcd cluster: the data of another cluster have other users, but those of an earlier
//! timeline of the same EtcdCluster have the same owner. etcd is not asked again what it was given: each question is an entry in its
//! raft log.

use std::collections::BTreeMap;

use holdfast_api::condition::Reason;
use holdfast_api::tls::SECRET_TYPE;
use holdfast_api::user::ReclaimPolicy;
use holdfast_api::{EtcdCluster, EtcdUserStatus, USER_FINALIZER, key, name};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::given::wanted;
use super::{Observed, status};
use holdfast_base::certificate::{Ca, CaPlace, Contents, Files, Issue, Kept, Known, Leaf, Origin, Plane, ROOT, files};
use holdfast_base::{Act, Next, Plan, Seen, Target, UserChange, Wake, meta, objects, user_claim};

/// How often to look at what no watch reports: the version of a Secret.
const POLL: Wake = Wake::AfterMillis(300_000);
/// How often to look for what another pass is about to bring.
const SOON: Wake = Wake::AfterMillis(2_000);

/// How often to ask again which users etcd has: each question is an entry in its raft log.
const RARELY: Wake = Wake::AfterMillis(30_000);

/// Returns the plan for one user.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdUserStatus> {
    let next = next(seen, now);
    let status = status::whole(seen, &next, now);
    let (act, waiting, wake) = next.into_parts();
    Plan { ensures: vec![], act, status, notes: vec![], waiting, wake }
}

fn next(seen: &Observed, now: Timestamp) -> Next {
    let user = Target::from(&seen.user.metadata);
    let held = meta::has_finalizer(&seen.user.metadata, USER_FINALIZER);
    if meta::deleting(&seen.user.metadata) {
        return if held { end(seen, user) } else { Next::Settled(Wake::OnChange) };
    }
    let named = &seen.user.spec.cluster_ref.name;
    let Some(cluster) = &seen.cluster else {
        return Next::wait(
            Reason::WaitingForReference,
            format!("the EtcdCluster {named} does not exist"),
            Wake::OnChange,
        );
    };
    if cluster.spec.paused {
        return Next::wait(Reason::Paused, format!("spec.paused of the EtcdCluster {named} is set"), Wake::OnChange);
    }
    let Some(formed) = seen.formed() else {
        return Next::wait(
            Reason::WaitingForCluster,
            format!("the EtcdCluster {named} has not formed yet"),
            Wake::OnChange,
        );
    };
    if let Some(rival) = &seen.rival {
        let message = format!("the EtcdUser {rival} has the name {} in etcd. Use another name", seen.user.user_name());
        return Next::wait(Reason::NameTaken, message, POLL);
    }
    if let Some(hindered) = login(seen, cluster) {
        return hindered;
    }
    if !held {
        return Next::act(Act::HoldUser { user });
    }
    let claim = seen.claim();
    // A change that etcd refuses lets no certificate run out.
    let certificate = || if seen.user.spec.certificate.is_some() { certificate(seen, cluster, now) } else { None };
    if let Some(issue) = claim.is_some().then(certificate).flatten().filter(|next| matches!(next, Next::Do(..))) {
        return issue;
    }
    let (given, wanted) = (claim.clone().flatten(), wanted(seen));
    let changes = given.as_ref() != Some(&wanted);
    // A user that etcd has needs no answer of etcd.
    if changes && !seen.reachable {
        return Next::wait(Reason::WaitingForEtcd, format!("no member of the EtcdCluster {named} can be asked"), SOON);
    }
    if claim.is_none() {
        return claimed(seen, user, formed);
    }
    if changes {
        let change = UserChange {
            name: seen.user.user_name().to_owned(),
            permissions: seen.user.spec.permissions.clone(),
            is_new: given.is_none(),
            password: seen.user.spec.password_secret_ref.clone(),
            changes_password: given.is_none_or(|given| given.login != wanted.login),
            claim: user_claim::text(formed, seen.user.user_name(), Some(&wanted)),
        };
        return Next::act(Act::PutUser { user, change: Box::new(change), cluster_id: id(formed) });
    }
    if let Some(wait) = certificate() {
        return wait;
    }
    if cluster.status.as_ref().and_then(|status| status.auth_enabled) != Some(true) {
        let message = format!(
            "the user stands in etcd, and authentication of the EtcdCluster {named} is off: every client of the cluster reads and \
             writes every key. Set spec.auth.enabled of the EtcdCluster"
        );
        return Next::wait(Reason::AuthDisabled, message, POLL);
    }
    Next::Settled(POLL)
}

/// Returns the step of a user that is being deleted: etcd loses the user, unless it has to stay, or etcd is gone.
fn end(seen: &Observed, user: Target) -> Next {
    let release = Next::act(Act::ReleaseUser { user: user.clone() });
    let Some(cluster) = seen.cluster.as_ref().filter(|cluster| !meta::deleting(&cluster.metadata)) else {
        return release;
    };
    // In a return in place etcd has another cluster ID in a moment, and may have the user.
    if seen.formed().is_none() && cluster.status.as_ref().is_some_and(|status| status.latches.returning.is_some()) {
        let message = "the EtcdCluster goes back to a snapshot in place";
        return Next::wait(Reason::WaitingForCluster, message, SOON);
    }
    let there = seen.formed().filter(|_| seen.claim().is_some());
    let Some(formed) = there.filter(|_| seen.user.spec.reclaim_policy == ReclaimPolicy::Delete) else { return release };
    // Another object has claimed the user since.
    if seen.rival.is_some() {
        return release;
    }
    let way_out = "To leave the user there, set spec.reclaimPolicy: Retain";
    let name = seen.user.user_name();
    if cluster.spec.paused {
        let message = format!("etcd has to lose the user {name}, and spec.paused of the EtcdCluster is set. {way_out}");
        return Next::wait(Reason::Paused, message, Wake::OnChange);
    }
    if !seen.reachable {
        let message = format!("etcd has to lose the user {name}, and no member can be asked. {way_out}");
        return Next::wait(Reason::WaitingForEtcd, message, SOON);
    }
    Next::act(Act::DropUser { user, name: seen.user.user_name().to_owned(), cluster_id: id(formed) })
}

/// Returns the claim of a user, or the wait where another owner has the name.
fn claimed(seen: &Observed, user: Target, formed: &str) -> Next {
    match &seen.taken {
        Some(Seen::Known(true)) if !seen.user.spec.take_over => {
            let message = format!(
                "etcd has a user or a role {}, which this EtcdUser did not make. Use another name, or set spec.takeOver: true to have \
                 Holdfast change that user and that role",
                seen.user.user_name()
            );
            Next::wait(Reason::NameTaken, message, POLL)
        }
        Some(Seen::Known(_)) => {
            Next::act(Act::ClaimUser { user, claim: user_claim::text(formed, seen.user.user_name(), None) })
        }
        Some(Seen::Unknown(why)) => {
            Next::wait(Reason::WaitingForEtcd, format!("etcd does not say which users it has: {why}"), RARELY)
        }
        None => Next::wait(Reason::WaitingForEtcd, "etcd was not asked yet which users it has", SOON),
    }
}

/// Returns the wait for the means by which the user logs in.
fn login(seen: &Observed, cluster: &EtcdCluster) -> Option<Next> {
    let wait = |reason, message| Some(Next::wait(reason, message, POLL));
    if seen.user.spec.certificate.is_some() {
        if !cluster.spec.issues_client_certificates() {
            return wait(
                Reason::InvalidSpec,
                "spec.certificate: Holdfast issues no client certificates for this EtcdCluster. Use spec.passwordSecretRef; with \
                 an issuer of your own, request a certificate whose common name is the name of the user"
                    .to_owned(),
            );
        }
        let uid = meta::uid(&seen.user.metadata);
        let foreign = seen.secret.as_ref().is_some_and(|kept| !kept.belongs_to(uid));
        let secret = name::user_tls(meta::name(&seen.user.metadata));
        return foreign.then(|| {
            let message = format!("the Secret {secret} does not belong to this EtcdUser, or is not of type {SECRET_TYPE}. Delete the Secret");
            Next::wait(Reason::NameConflict, message, POLL)
        });
    }
    let secret = &seen.user.spec.password_secret_ref.as_ref()?.name;
    match seen.password.as_ref()? {
        Seen::Known(Some(_)) => None,
        Seen::Known(None) => wait(Reason::WaitingForReference, format!("the Secret {secret} does not exist")),
        Seen::Unknown(why) => wait(Reason::RightsMissing, format!("the Secret {secret} cannot be read: {why}")),
    }
}

/// Returns the issue of a certificate that is missing, due, or of another CA, or the wait for the CA.
fn certificate(seen: &Observed, cluster: &EtcdCluster, now: Timestamp) -> Option<Next> {
    let own = |ca: &&Kept| ca.belongs_to(meta::uid(&cluster.metadata));
    // While a CA is exchanged, the operator's Secret holds the CAs of all servers.
    let servers = seen.servers.as_ref().filter(own).and_then(|kept| Some((kept, kept.leaf(files::CLIENT)?)));
    // A CA that the operator does not trust was exchanged by another hand.
    let trusted =
        |ca: &Known| servers.is_none_or(|(_, known)| known.cas.iter().any(|other| other.fingerprint == ca.fingerprint));
    let ca = seen.ca.as_ref().filter(own).and_then(|ca| Some((ca, ca.leaf(files::CA)?)));
    let ca = ca.filter(|(_, ca_known)| trusted(ca_known));
    let known = seen.secret.as_ref().and_then(|kept| kept.leaf(files::CLIENT));
    let beside = match (servers, ca) {
        (Some((kept, known)), _) => places(kept, known, files::CLIENT),
        (None, Some((ca, ca_known))) => places(ca, ca_known, files::CA),
        (None, None) => vec![],
    };
    let trusts_all = |known: &Known| CaPlace::are_in_file(&beside, known.fingerprints_of_cas());
    let write = |leaves: Vec<Leaf>, cas| {
        let metadata = ObjectMeta {
            name: Some(name::user_tls(meta::name(&seen.user.metadata))),
            namespace: seen.user.metadata.namespace.clone(),
            labels: Some([(key::MANAGED_BY.to_owned(), "holdfast".to_owned())].into()),
            owner_references: Some(vec![objects::owner(&seen.user)]),
            ..ObjectMeta::default()
        };
        let trusts = [(files::CLIENT.ca, beside.clone())].into();
        let contents = Contents::Leaves { leaves, trusts, cas, copies: [].into(), exchanges: false };
        let replaces = seen.secret.as_ref().map(|kept| kept.target.clone());
        Some(Next::act(Act::Issue(Box::new(Issue { metadata, contents, replaces }))))
    };
    let Some((ca, ca_known)) = ca else {
        // A CA that follows a lost one signs after each client trusts it.
        if !beside.is_empty() && known.is_some_and(|known| !trusts_all(known)) {
            return write(vec![], BTreeMap::new());
        }
        let message = "the CA of the cluster's clients is missing, or is not the cluster's own: see the EtcdCluster";
        return Some(Next::wait(Reason::CertificatePending, message, POLL));
    };
    let fits = known.is_some_and(|known| {
        known.ca == ca_known.fingerprint
            && trusts_all(known)
            && known.common_name.as_deref() == Some(seen.user.user_name())
            && now >= known.not_before
    });
    let due = known.is_none_or(|known| now >= known.renewed_at());
    if fits && !due {
        return None;
    }
    let leaf = Leaf {
        files: files::CLIENT,
        plane: Plane::Client,
        origin: Origin::Issued,
        common_name: Some(seen.user.user_name().to_owned()).filter(|name| name != ROOT),
        names: vec![],
    };
    write(vec![leaf], [(Plane::Client, (ca.target.name.clone(), ca_known.fingerprint.clone()))].into())
}

fn places(kept: &Kept, known: &Known, files: Files) -> Vec<CaPlace> {
    let place =
        |ca: &Ca| CaPlace { fingerprint: ca.fingerprint.clone(), secret: kept.target.name.clone(), file: files.ca };
    known.cas.iter().map(place).collect()
}

/// Returns an etcd cluster's ID; an ID that is none matches no etcd.
fn id(formed: &str) -> u64 {
    u64::from_str_radix(formed, 16).unwrap_or_default()
}
