//! Reads what is known of a cluster's certificates, by name and never by list.
//!
//! Decides how old knowledge may be: a pass that would write looks live; others take what was read within five minutes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource, ResourceExt};
use sha2::{Digest, Sha256};

use super::{Data, Login, entry, parse, served};
use crate::api::tls::SECRET_TYPE;
use crate::api::{EtcdCluster, name};
use crate::operator::clock::{self, Instant};
use crate::operator::error::Error;
use crate::operator::reader::{Reader, View};
use crate::plan::build::port;
use crate::plan::certificate::{Certificates, Files, Kept, Known, Plane, files};
use crate::plan::cluster::{Member, issued_at};
use crate::plan::{Target, meta};

/// Nothing tells when a Secret changes.
const FRESH: Duration = Duration::from_mins(5);

/// What was read before, so that a settled cluster costs a few reads in five minutes. Losing it costs reads.
#[derive(Default)]
pub(in crate::operator) struct Memory(Mutex<Knowledge>);

#[derive(Default)]
struct Knowledge {
    secrets: HashMap<(String, String), (Instant, Option<Read>)>,
    bundles: HashMap<(String, String), (Instant, Option<Bundle>)>,
    /// UIDs of Pods with the fingerprint that they were seen to show.
    shown: HashSet<(String, String)>,
}

/// Metadata, and the fingerprint of the CA in it.
type Bundle = (ObjectMeta, Option<String>);

/// A Secret, and the operator's login in it.
#[derive(Clone)]
struct Read {
    kept: Kept,
    login: Option<Login>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    /// Forgets an object that is about to be written.
    pub(in crate::operator) fn forget(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut known = self.lock();
        known.secrets.remove(&key);
        known.bundles.remove(&key);
    }

    /// The operator's login that was read last.
    pub(in crate::operator) fn login(&self, namespace: &str, secret: &str) -> Option<Login> {
        let key = (namespace.to_owned(), secret.to_owned());
        self.lock().secrets.get(&key).and_then(|(_, read)| read.as_ref()?.login.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Knowledge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that is known of a cluster's certificates, and the operator's login; `None` for a cluster in plaintext.
pub(in crate::operator) async fn certificates(
    reader: Reader<'_>,
    cluster: &EtcdCluster,
    members: &[Member],
) -> Result<Option<(Certificates, Option<Login>)>, Error> {
    if cluster.spec.scheme() == name::Scheme::Http {
        return Ok(None);
    }
    let named = meta::name(&cluster.metadata);
    let of_members = members.iter().filter(|m| m.object.spec.tls.is_some()).map(|member| async move {
        let kept = secret(reader, &name::member_tls(member.name()), MEMBER).await?;
        Ok(kept.map(|read| (member.name().to_owned(), read.kept)))
    });
    let names = (name::client_ca(named), name::peer_ca(named), name::operator_tls(named), name::client_tls(named));
    let bundle_name = name::ca_bundle(named);
    let (client_ca, peer_ca, operator, client, bundle, of_members) = futures::try_join!(
        secret(reader, &names.0, &[files::CA]),
        secret(reader, &names.1, &[files::CA]),
        secret(reader, &names.2, &[files::CLIENT]),
        secret(reader, &names.3, &[files::CLIENT]),
        bundle(reader, &bundle_name),
        futures::future::try_join_all(of_members),
    )?;
    let login = operator.as_ref().and_then(|read| read.login.clone());
    let cas = [(Plane::Client, client_ca), (Plane::Peer, peer_ca)];
    let mut all = Certificates {
        cas: cas.into_iter().filter_map(|(plane, read)| Some((plane, read?.kept))).collect(),
        operator: operator.map(|read| read.kept),
        client: client.map(|read| read.kept),
        bundle,
        members: of_members.into_iter().flatten().collect(),
        unserved: vec![],
    };
    all.unserved = unserved(reader, members, &all.members).await;
    Ok(Some((all, login)))
}

const MEMBER: &[Files] = &[files::PEER, files::SERVER, files::ETCDCTL];

async fn secret(reader: Reader<'_>, name: &str, wanted: &[Files]) -> Result<Option<Read>, Error> {
    let memory = &reader.ctx.tls;
    let key = (reader.namespace.to_owned(), name.to_owned());
    if reader.view == View::Cached
        && let Some((_, Some(read))) =
            memory.lock().secrets.get(&key).filter(|(at, _)| clock::instant().duration_since(*at) < FRESH)
    {
        return Ok(Some(read.clone()));
    }
    let found: Option<Secret> = live(reader, name).await?;
    let read = found.map(|secret| read(secret, wanted));
    memory.lock().secrets.insert(key, (clock::instant(), read.clone()));
    Ok(read)
}

fn read(secret: Secret, wanted: &[Files]) -> Read {
    let data = secret.data.unwrap_or_default();
    let leaves: BTreeMap<&'static str, Result<Known, String>> =
        wanted.iter().map(|files| (files.certificate, parse::known(&data, *files))).collect();
    let digest = digest(&data, wanted);
    let usable = wanted == [files::CLIENT] && leaves.values().all(Result::is_ok);
    let login = usable.then(|| Login::of(&data, digest.clone()));
    let controller = secret.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
    let kept = Kept {
        owner: controller.map(|owner| owner.uid.clone()),
        typed: secret.type_.as_deref() == Some(SECRET_TYPE),
        target: Target::of(&secret.metadata),
        digest,
        leaves,
    };
    Read { kept, login }
}

/// Of certificates only: a digest of keys would be a trace of them.
fn digest(data: &Data, wanted: &[Files]) -> String {
    let mut sum = Sha256::new();
    for file in wanted.iter().flat_map(|files| [files.ca, files.certificate]) {
        sum.update(entry(data, file));
    }
    hex::encode(&sum.finalize()[..8])
}

async fn bundle(reader: Reader<'_>, name: &str) -> Result<Option<Bundle>, Error> {
    let memory = &reader.ctx.tls;
    let key = (reader.namespace.to_owned(), name.to_owned());
    if reader.view == View::Cached
        && let Some((_, Some(bundle))) =
            memory.lock().bundles.get(&key).filter(|(at, _)| clock::instant().duration_since(*at) < FRESH)
    {
        return Ok(Some(bundle.clone()));
    }
    let found: Option<ConfigMap> = live(reader, name).await?;
    let bundle = found.map(|map| {
        let holds = map.data.as_ref().and_then(|data| parse::first_fingerprint(data.get(files::CLIENT.ca)?.as_bytes()));
        (map.metadata, holds)
    });
    memory.lock().bundles.insert(key, (clock::instant(), bundle.clone()));
    Ok(bundle)
}

async fn live<K>(reader: Reader<'_>, name: &str) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + fmt::Debug,
{
    let api: Api<K> = Api::namespaced(reader.ctx.read.0.clone(), reader.namespace);
    reader.ctx.reading(|| format!("get {} {name}", K::kind(&())), api.get_opt(name)).await
}

/// Members whose Pod was there before their newest certificates and that do not show them yet, on either port. Nobody else
/// is asked: etcd logs each handshake that is broken off.
async fn unserved(reader: Reader<'_>, members: &[Member], kept: &BTreeMap<String, Kept>) -> Vec<String> {
    let asked = members.iter().filter_map(|member| {
        let pod = member.pod.as_ref()?;
        let kept = kept.get(member.name())?;
        let (peer, server) = (kept.leaf(files::PEER)?, kept.leaf(files::SERVER)?);
        let renewed = pod.creation_timestamp().is_some_and(|made| issued_at(peer) > made.0);
        let ip = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
        let key = (pod.uid()?, kept.digest.clone());
        (renewed && !reader.ctx.tls.lock().shown.contains(&key)).then_some((member.name(), key, ip, peer, server))
    });
    let asked = asked.map(|(member, key, ip, peer, server)| async move {
        let port = |port: i32| u16::try_from(port).unwrap_or_default();
        let (on_peer, on_client) =
            futures::join!(served::shown(ip, port(port::PEER)), served::shown(ip, port(port::CLIENT)));
        let both = on_peer.as_ref() == Some(&peer.fingerprint) && on_client.as_ref() == Some(&server.fingerprint);
        if both {
            reader.ctx.tls.lock().shown.insert(key);
        }
        (!both).then(|| member.to_owned())
    });
    futures::future::join_all(asked.collect::<Vec<_>>()).await.into_iter().flatten().collect()
}
