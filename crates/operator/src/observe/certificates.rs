//! Facts of a cluster's certificates. The operator reads the Secrets by name and never lists them.
//!
//! A pass that may write accepts a reading of the last three seconds; other passes accept one of the last five minutes.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_api::name::Scheme;
use holdfast_api::tls::SECRET_TYPE;
use holdfast_api::{EtcdCluster, EtcdUser, key, name};
use holdfast_plan::certificate::{Certificates, Files, Kept, Known, Plane, Request, UserCertificate, files};
use holdfast_plan::cluster::{self, Member, holds_certificates, is_auto, written_at};
use holdfast_plan::objects::port;
use holdfast_plan::{Target, meta, pods, user_claim};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt};
use serde_json::Value;

use super::acceptance::accepted;
use crate::aged::FRESH;
use crate::error::Error;
use crate::reader::{Only, Reader, View};
use crate::tls::{Bundle, Login, Read, parse, served};

/// Certificate files in a member's Secret.
const MEMBER: &[Files] = &[files::PEER, files::SERVER, files::ETCDCTL];

/// Certificate files in the Secret of a CA.
const CA: &[Files] = &[files::CA, files::NEXT];

/// Reads a cluster's certificates and the operator's login; `None` for a cluster in plaintext.
pub(super) async fn certificates(
    reader: Reader<'_>,
    cluster: &EtcdCluster,
    members: &[Member],
) -> Result<Option<(Certificates, Option<Login>)>, Error> {
    let holders: Vec<&Member> = members.iter().filter(|m| holds_certificates(cluster, m)).collect();
    if !cluster.has_certificates() && holders.is_empty() {
        return Ok(None);
    }
    let (named, owner) = (meta::name(&cluster.metadata), meta::uid(&cluster.metadata));
    let of_members = holders.into_iter().map(|member| async move {
        let owner = meta::uid(&member.object.metadata);
        let kept = secret(reader, &name::member_tls(member.name()), owner, MEMBER).await?;
        Ok(kept.map(|read| (member.name().to_owned(), read.kept)))
    });
    let names = (name::client_ca(named), name::peer_ca(named), name::operator_tls(named), name::client_tls(named));
    let bundle_name = name::ca_bundle(named);
    // Secrets that Holdfast does not write may belong to another owner.
    let (auto_client, auto_peer) = (is_auto(cluster, Plane::Client), is_auto(cluster, Plane::Peer));
    let (client_ca, peer_ca, operator, client, bundle, of_members, sources, (requests, cert_manager)) = futures::try_join!(
        async { if auto_client { secret(reader, &names.0, owner, CA).await } else { Ok(None) } },
        async { if auto_peer { secret(reader, &names.1, owner, CA).await } else { Ok(None) } },
        secret(reader, &names.2, owner, &[files::CLIENT]),
        async { if auto_client { secret(reader, &names.3, owner, &[files::CLIENT]).await } else { Ok(None) } },
        async { if auto_client { bundle(reader, &bundle_name).await } else { Ok(None) } },
        futures::future::try_join_all(of_members),
        sources(reader, cluster, members),
        requests(reader, cluster, members),
    )?;
    let login = operator.as_ref().and_then(|read| read.login.clone());
    let cas = [(Plane::Client, client_ca), (Plane::Peer, peer_ca)];
    let mut all = Certificates {
        cas: cas.into_iter().filter_map(|(plane, read)| Some((plane, read?.kept))).collect(),
        operator: operator.map(|read| read.kept),
        client: client.map(|read| read.kept),
        bundle,
        sources,
        requests,
        cert_manager,
        members: of_members.into_iter().flatten().collect(),
        unserved: vec![],
        accepted: BTreeMap::new(),
        users: if auto_client { users(reader, cluster).await? } else { vec![] },
    };
    all.unserved = unserved(reader, members, &all.members).await;
    all.accepted = accepted(reader, cluster, members, &all).await?;
    Ok(Some((all, login)))
}

/// Longest age of a reading of an object that Holdfast writes. The passes of a cluster that forms follow each other within
/// milliseconds, and a write forgets the reading of its object. Each write is guarded by the version that was read, and a CA that
/// signs is read again (I15).
const fn remembered(view: View) -> Duration {
    match view {
        View::Cached => FRESH,
        View::Live => JUST_READ,
    }
}

/// See [`remembered`].
const JUST_READ: Duration = Duration::from_secs(3);

/// Reads a Secret. `owner`: UID of its expected owner.
pub(super) async fn secret(
    reader: Reader<'_>,
    name: &str,
    owner: &str,
    wanted: &[Files],
) -> Result<Option<Read>, Error> {
    let memory = &reader.ctx.tls;
    if let Some(read) = memory.secret(reader.namespace, name, owner, remembered(reader.view)) {
        return Ok(Some(read));
    }
    let found: Option<Secret> = reader.live(name).await?;
    let read = found.map(|secret| read(secret, wanted));
    memory.put_secret(reader.namespace, name, read.as_ref());
    Ok(read)
}

fn read(secret: Secret, wanted: &[Files]) -> Read {
    let operators = name::operator_tls("");
    let data = secret.data.unwrap_or_default();
    // A CA that follows stands there only during an exchange.
    let there = |files: &&Files| **files != files::NEXT || data.contains_key(files.certificate);
    let leaves: BTreeMap<&'static str, Result<Known, String>> =
        wanted.iter().filter(there).map(|files| (files.certificate, parse::known(&data, *files))).collect();
    let digest = parse::digest(&data, wanted);
    let usable = meta::name(&secret.metadata).ends_with(&operators) && leaves.values().all(Result::is_ok);
    let login = usable.then(|| Login::read(&data, digest.clone()));
    let controller = secret.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
    let kept = Kept {
        owner: controller.map(|owner| owner.uid.clone()),
        typed: secret.type_.as_deref() == Some(SECRET_TYPE),
        exchanged: meta::annotation(&secret.metadata, key::EXCHANGED_AT).and_then(|at| at.parse().ok()),
        rotated_for: meta::annotation(&secret.metadata, key::ROTATED_FOR).map(str::to_owned),
        written: meta::annotation(&secret.metadata, key::WRITTEN_AT).and_then(|at| at.parse().ok()),
        target: Target::from(&secret.metadata),
        digest,
        leaves,
    };
    Read { kept, login }
}

/// Reads the Secrets that certificates are copied from.
async fn sources(
    reader: Reader<'_>,
    cluster: &EtcdCluster,
    members: &[Member],
) -> Result<BTreeMap<String, Result<Known, String>>, Error> {
    let memory = &reader.ctx.tls;
    let all = cluster::sources(cluster, members.iter().map(|member| &member.object));
    let read = all.into_iter().map(|name| async move {
        if reader.view == View::Cached
            && let Some(known) = memory.source(reader.namespace, &name)
        {
            return Ok(Some((name, Ok(known))));
        }
        let found: Option<Secret> = reader.live(&name).await?;
        let known = found.map(|secret| parse::known(&secret.data.unwrap_or_default(), files::CLIENT));
        memory.put_source(reader.namespace, &name, known.as_ref().and_then(|known| known.as_ref().ok()));
        Ok(known.map(|known| (name, known)))
    });
    let read: Result<Vec<_>, Error> = futures::future::try_join_all(read).await;
    Ok(read?.into_iter().flatten().collect())
}

/// Reads the Certificates of cert-manager, and whether the API server serves their kind.
async fn requests(
    reader: Reader<'_>,
    cluster: &EtcdCluster,
    members: &[Member],
) -> Result<(BTreeMap<String, Request>, bool), Error> {
    let asked = cluster::requests(cluster, members.iter().map(|member| &member.object), None);
    let mut there = BTreeMap::new();
    for (metadata, _) in asked {
        let name = metadata.name.unwrap_or_default();
        if reader.view == View::Cached
            && let Some(request) = reader.ctx.tls.request(reader.namespace, &name)
        {
            there.insert(name, request);
            continue;
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(reader.ctx.read.0.clone(), reader.namespace, &cert_manager());
        // A 404 that names the object means that it is absent. Any other 404 means that the API server does not serve the path.
        let get = async {
            match api.get(&name).await {
                Ok(found) => Ok(Some(Some(found))),
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    Ok(status.details.as_ref().is_some_and(|about| about.name == name).then_some(None))
                }
                Err(error) => Err(error),
            }
        };
        let Some(found) = reader.ctx.reading(|| format!("get Certificate {name}"), get).await? else {
            return Ok((there, false));
        };
        if let Some(request) = found.map(request) {
            reader.ctx.tls.put_request(
                reader.namespace,
                &name,
                Some(&request).filter(|r| r.unready.is_none() && !r.issuing),
            );
            there.insert(name, request);
        }
    }
    Ok((there, true))
}

/// The kind of cert-manager's Certificates.
pub(crate) fn cert_manager() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"))
}

fn request(found: DynamicObject) -> Request {
    let conditions = found.data.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let of_type = |wanted: &str| conditions.clone().find(|condition| condition["type"] == wanted);
    let (ready, issuing) = (of_type("Ready"), of_type("Issuing").is_some_and(|issuing| issuing["status"] == "True"));
    let unready = match ready {
        Some(ready) if ready["status"] == "True" => None,
        Some(ready) => Some(ready["message"].as_str().unwrap_or("it is not ready").to_owned()),
        None => Some("nothing yet. Look whether its controllers run".to_owned()),
    };
    Request { metadata: found.metadata, spec: found.data["spec"].clone(), issuing, unready }
}

/// The certificates of the cluster's users, by the cached `EtcdUser`s.
async fn users(reader: Reader<'_>, cluster: &EtcdCluster) -> Result<Vec<UserCertificate>, Error> {
    let formed = cluster.status.as_ref().and_then(|status| status.latches.formed.as_ref());
    let Some(formed) = formed else { return Ok(vec![]) };
    let named = meta::name(&cluster.metadata);
    // The certificate of a user that this etcd does not know by Holdfast's hand may be of an earlier cluster.
    let certified = |user: &EtcdUser| {
        let own = user.spec.cluster_ref.name == named && user.spec.certificate.is_some();
        own && user_claim::read(user, formed).is_some()
    };
    let all = reader.list::<EtcdUser>(Only::Everything, certified).await?;
    let certificate = |user: EtcdUser| {
        let name = user.name_any();
        let status = user.status.filter(|status| status.signed_by.is_some())?;
        Some(UserCertificate { name, signed_by: status.signed_by, trusts: status.trusts })
    };
    Ok(all.into_iter().filter_map(certificate).collect())
}

async fn bundle(reader: Reader<'_>, name: &str) -> Result<Option<Bundle>, Error> {
    let memory = &reader.ctx.tls;
    if let Some(bundle) = memory.bundle(reader.namespace, name, remembered(reader.view)) {
        return Ok(Some(bundle));
    }
    let found: Option<ConfigMap> = reader.live(name).await?;
    let bundle = found.map(|map| {
        let text = map.data.as_ref().and_then(|data| data.get(files::CLIENT.ca));
        (map.metadata, text.map(|text| parse::fingerprints(text.as_bytes())).unwrap_or_default())
    });
    memory.put_bundle(reader.namespace, name, bundle.as_ref());
    Ok(bundle)
}

/// Members whose Pod is older than their newest certificates and does not show them yet, on either port. No other Pod gets a
/// handshake: etcd logs each handshake that is broken off.
async fn unserved(reader: Reader<'_>, members: &[Member], kept: &BTreeMap<String, Kept>) -> Vec<String> {
    let memory = &reader.ctx.tls;
    let asked = members.iter().filter_map(|member| {
        let pod = member.pod.as_ref()?;
        let kept = kept.get(member.name())?;
        let (peer, server) = (kept.leaf(files::PEER)?, kept.leaf(files::SERVER)?);
        let renewed = pod.creation_timestamp().zip(written_at(kept)).is_some_and(|(made, at)| at > made.0);
        // A Pod that does not serve shows no certificate, and etcd reads its files when it starts to serve.
        let transport = pods::transport(pod);
        let serves = pods::ready(pod) && !meta::deleting(&pod.metadata) && transport.has_certificates();
        let ip = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
        let uid = pod.uid()?;
        (renewed && serves && !memory.was_shown(&uid, &kept.digest)).then_some((
            member,
            uid,
            kept,
            (ip, transport),
            peer,
            server,
        ))
    });
    let asked = asked.map(|(member, uid, kept, (ip, transport), peer, server)| async move {
        if reader.ctx.etcd.is_silent(&uid, ip) {
            return Some(member.name().to_owned());
        }
        let port = |port: i32| u16::try_from(port).unwrap_or_default();
        let peers = async {
            let shown = served::shown(ip, port(port::PEER)).await;
            shown.as_ref() == Some(&peer.fingerprint)
        };
        // Without TLS on its peer port a member shows one certificate.
        let peers = async { transport.peers() == Scheme::Http || peers.await };
        let (on_peer, on_client) = futures::join!(peers, served::shown(ip, port(port::CLIENT)));
        let both = on_peer && on_client.as_ref() == Some(&server.fingerprint);
        if both {
            memory.note_shown(&uid, &kept.digest);
        }
        (!both).then(|| member.name().to_owned())
    });
    futures::future::join_all(asked.collect::<Vec<_>>()).await.into_iter().flatten().collect()
}
