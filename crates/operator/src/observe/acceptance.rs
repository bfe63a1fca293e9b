//! Members that accept certificates of another CA than the one that they were started with, by handshakes.
//!
//! Decides which members are asked: those whose Pod was made with the CA in its files. etcd logs each refused handshake, so no other
//! Pod is asked, and no member again after its acceptance.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdfast_api::EtcdCluster;
use holdfast_api::name;
use holdfast_plan::certificate::{Certificates, Leaf, Origin, Plane, files};
use holdfast_plan::cluster::{Member, is_auto};
use holdfast_plan::objects::{member, port};
use holdfast_plan::{meta, pods};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use crate::error::Error;
use crate::reader::Reader;
use crate::tls::probe::{Shown, accepts};
use crate::tls::sign::{sign, signing};
use crate::tls::{Data, entry, parse};

/// One question: whether a member accepts certificates of a CA.
struct Question<'a> {
    member: &'a str,
    pod_uid: String,
    ip: IpAddr,
    plane: Plane,
    anchor: String,
}

impl Question<'_> {
    fn memory_key(&self) -> String {
        format!("accepts {}/{}", self.plane.as_str(), self.anchor)
    }

    fn port(&self) -> u16 {
        let port = match self.plane {
            Plane::Client => port::CLIENT,
            Plane::Peer => port::PEER,
        };
        u16::try_from(port).unwrap_or_default()
    }
}

/// Returns the CAs that each member has accepted in a handshake.
pub(super) async fn accepted(
    reader: Reader<'_>,
    cluster: &EtcdCluster,
    members: &[Member],
    all: &Certificates,
) -> Result<BTreeMap<String, BTreeSet<(Plane, String)>>, Error> {
    let memory = &reader.ctx.tls;
    let mut accepted: BTreeMap<String, BTreeSet<(Plane, String)>> = BTreeMap::new();
    let mut shown: BTreeMap<(Plane, String), Option<Shown>> = BTreeMap::new();
    let mut asked = vec![];
    for question in members.iter().flat_map(|member| questions(member, all)) {
        if memory.was_shown(&question.pod_uid, &question.memory_key()) {
            let known = accepted.entry(question.member.to_owned()).or_default();
            known.insert((question.plane, question.anchor));
            continue;
        }
        let key = (question.plane, question.anchor.clone());
        if !shown.contains_key(&key) {
            let certificate = certificate_of(reader, cluster, all, &key).await?;
            shown.insert(key.clone(), certificate);
        }
        if let Some(Some(certificate)) = shown.get(&key) {
            asked.push((question, certificate.clone()));
        }
    }
    let asked = asked.into_iter().map(|(question, certificate)| async move {
        let accepted = accepts(question.ip, question.port(), &certificate).await;
        accepted.then_some(question)
    });
    for question in futures::future::join_all(asked).await.into_iter().flatten() {
        memory.note_shown(&question.pod_uid, &question.memory_key());
        accepted.entry(question.member.to_owned()).or_default().insert((question.plane, question.anchor));
    }
    Ok(accepted)
}

/// Returns the questions to a member: each CA in its files that it is not known to trust.
fn questions<'a>(member: &'a Member, all: &Certificates) -> Vec<Question<'a>> {
    let asked = || {
        let tls = member.object.spec.certificates()?;
        let kept = all.members.get(member.name())?;
        let pod = member.live_pod().filter(|pod| pods::ready(pod))?;
        tls.cas.as_ref().filter(|_| !pods::has_other_cas(pod, &member.object))?;
        // A container that starts again loads its files again.
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let containers = statuses.filter_map(|status| status.container_id.as_deref()).collect::<Vec<_>>().join(",");
        let (pod_uid, ip) =
            (format!("{} {containers}", pod.uid()?), pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?);
        let questions = Plane::ALL.into_iter().flat_map(move |plane| {
            let leaf = kept.leaf(plane.shown());
            let known = plane.trusted(&tls.trusts).or_else(|| leaf.map(|known| &known.anchor));
            let cas = leaf.into_iter().flat_map(|leaf| &leaf.cas).filter(move |ca| known != Some(&ca.anchor));
            let pod_uid = pod_uid.clone();
            cas.map(move |ca| Question {
                member: member.name(),
                pod_uid: pod_uid.clone(),
                ip,
                plane,
                anchor: ca.anchor.clone(),
            })
        });
        Some(questions.collect())
    };
    asked().unwrap_or_default()
}

/// Returns a client's certificate of a CA: of Holdfast's own CA a new one, of another CA the one in a source.
async fn certificate_of(
    reader: Reader<'_>,
    cluster: &EtcdCluster,
    all: &Certificates,
    (plane, anchor): &(Plane, String),
) -> Result<Option<Shown>, Error> {
    let named = meta::name(&cluster.metadata);
    if is_auto(cluster, *plane) {
        let is = |files| all.cas.get(plane).and_then(|kept| kept.leaf(files)).is_some_and(|ca| ca.anchor == *anchor);
        let Some(files) = [files::CA, files::NEXT].into_iter().find(|files| is(*files)) else { return Ok(None) };
        let secret = if *plane == Plane::Client { name::client_ca(named) } else { name::peer_ca(named) };
        let found: Option<Secret> = reader.live(&secret).await?;
        let data = found.and_then(|secret| secret.data).unwrap_or_default();
        let leaf = Leaf {
            files: plane.shown(),
            plane: *plane,
            origin: Origin::Issued,
            common_name: None,
            names: vec![member::peer_marker(cluster)],
        };
        let made = signing(&data, files).and_then(|issuer| sign(&leaf, &issuer));
        return Ok(made.ok().and_then(|(certificate, key)| Shown::read(certificate.as_bytes(), key.as_bytes())));
    }
    let sources = all.sources.iter().filter_map(|(name, known)| Some((name, known.as_ref().ok()?)));
    // A peer shows the name of the peers.
    let marker = member::peer_marker(cluster);
    let (_, parent) = marker.split_once('.').unwrap_or_default();
    let named = |names: &[String]| names.iter().any(|name| *name == marker || name.strip_prefix("*.") == Some(parent));
    let mut fits = sources.filter(|(_, known)| {
        known.anchor == *anchor && known.for_clients && (*plane == Plane::Client || named(&known.names))
    });
    let Some((secret, _)) = fits.next() else { return Ok(None) };
    let found: Option<Secret> = reader.live(secret).await?;
    let data: Data = found.and_then(|secret| secret.data).unwrap_or_default();
    // The source may have changed since.
    if !parse::known(&data, files::CLIENT).is_ok_and(|known| known.anchor == *anchor) {
        return Ok(None);
    }
    Ok(Shown::read(entry(&data, files::CLIENT.certificate), entry(&data, files::CLIENT.key)))
}
