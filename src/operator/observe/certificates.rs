//! What is known of a cluster's certificates: its Secrets are read by name and never by list.
//!
//! A pass that would write looks live; others take what was read within five minutes.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::api::tls::SECRET_TYPE;
use crate::api::{EtcdCluster, name};
use crate::operator::error::Error;
use crate::operator::reader::{Reader, View};
use crate::operator::tls::{Bundle, Data, Login, Read, entry, parse, served};
use crate::plan::build::port;
use crate::plan::certificate::{Certificates, Files, Kept, Known, Plane, files};
use crate::plan::cluster::{Member, issued_at};
use crate::plan::{Target, meta, pods};

/// Certificates of a member.
const MEMBER: &[Files] = &[files::PEER, files::SERVER, files::ETCDCTL];

/// All that is known of a cluster's certificates, and the operator's login; `None` for a cluster in plaintext.
pub(super) async fn certificates(
    reader: Reader<'_>,
    cluster: &EtcdCluster,
    members: &[Member],
) -> Result<Option<(Certificates, Option<Login>)>, Error> {
    if cluster.spec.scheme() == name::Scheme::Http {
        return Ok(None);
    }
    let (named, owner) = (meta::name(&cluster.metadata), meta::uid(&cluster.metadata));
    let of_members = members.iter().filter(|m| m.object.spec.tls.is_some()).map(|member| async move {
        let owner = meta::uid(&member.object.metadata);
        let kept = secret(reader, &name::member_tls(member.name()), owner, MEMBER).await?;
        Ok(kept.map(|read| (member.name().to_owned(), read.kept)))
    });
    let names = (name::client_ca(named), name::peer_ca(named), name::operator_tls(named), name::client_tls(named));
    let bundle_name = name::ca_bundle(named);
    let (client_ca, peer_ca, operator, client, bundle, of_members) = futures::try_join!(
        secret(reader, &names.0, owner, &[files::CA]),
        secret(reader, &names.1, owner, &[files::CA]),
        secret(reader, &names.2, owner, &[files::CLIENT]),
        secret(reader, &names.3, owner, &[files::CLIENT]),
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

/// `owner`: UID of the object that it should belong to.
async fn secret(reader: Reader<'_>, name: &str, owner: &str, wanted: &[Files]) -> Result<Option<Read>, Error> {
    let memory = &reader.ctx.tls;
    if reader.view == View::Cached
        && let Some(read) = memory.secret(reader.namespace, name, owner)
    {
        return Ok(Some(read));
    }
    let found: Option<Secret> = live(reader, name).await?;
    let read = found.map(|secret| read(secret, wanted));
    memory.put_secret(reader.namespace, name, read.as_ref());
    Ok(read)
}

fn read(secret: Secret, wanted: &[Files]) -> Read {
    let operators = name::operator_tls("");
    let data = secret.data.unwrap_or_default();
    let leaves: BTreeMap<&'static str, Result<Known, String>> =
        wanted.iter().map(|files| (files.certificate, parse::known(&data, *files))).collect();
    let digest = digest(&data, wanted);
    let usable = meta::name(&secret.metadata).ends_with(&operators) && leaves.values().all(Result::is_ok);
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
    if reader.view == View::Cached
        && let Some(bundle) = memory.bundle(reader.namespace, name)
    {
        return Ok(Some(bundle));
    }
    let found: Option<ConfigMap> = live(reader, name).await?;
    let bundle = found.map(|map| {
        let holds = map.data.as_ref().and_then(|data| parse::first_fingerprint(data.get(files::CLIENT.ca)?.as_bytes()));
        (map.metadata, holds)
    });
    memory.put_bundle(reader.namespace, name, bundle.as_ref());
    Ok(bundle)
}

async fn live<K>(reader: Reader<'_>, name: &str) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + fmt::Debug,
{
    let api: Api<K> = Api::namespaced(reader.ctx.read.0.clone(), reader.namespace);
    reader.ctx.reading(|| format!("get {} {name}", K::kind(&())), api.get_opt(name)).await
}

/// Members whose Pod was there before their newest certificates and that do not show them yet, on either port. Nobody else
/// is asked: etcd logs each handshake that is broken off.
async fn unserved(reader: Reader<'_>, members: &[Member], kept: &BTreeMap<String, Kept>) -> Vec<String> {
    let memory = &reader.ctx.tls;
    let asked = members.iter().filter_map(|member| {
        let pod = member.pod.as_ref()?;
        let kept = kept.get(member.name())?;
        let (peer, server) = (kept.leaf(files::PEER)?, kept.leaf(files::SERVER)?);
        let renewed = pod.creation_timestamp().is_some_and(|made| issued_at(peer) > made.0);
        // A Pod that does not serve cannot show anything, and reads its certificates anew when it does.
        let serves = pods::ready(pod) && !meta::deleting(&pod.metadata);
        let ip = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
        let uid = pod.uid()?;
        (renewed && serves && !memory.was_shown(&uid, &kept.digest)).then_some((member, uid, kept, ip, peer, server))
    });
    let asked = asked.map(|(member, uid, kept, ip, peer, server)| async move {
        let port = |port: i32| u16::try_from(port).unwrap_or_default();
        let (on_peer, on_client) =
            futures::join!(served::shown(ip, port(port::PEER)), served::shown(ip, port(port::CLIENT)));
        let both = on_peer.as_ref() == Some(&peer.fingerprint) && on_client.as_ref() == Some(&server.fingerprint);
        if both {
            memory.note_shown(&uid, &kept.digest);
        }
        (!both).then(|| member.name().to_owned())
    });
    futures::future::join_all(asked.collect::<Vec<_>>()).await.into_iter().flatten().collect()
}
