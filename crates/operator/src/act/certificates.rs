//! Makes keys and certificates, and writes them into one Secret.
//!
//! Decides lifetimes and extensions. Keys are P-256. A Secret is written whole, so that a certificate and its key never
//! come from two writes.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_api::tls::SECRET_TYPE;
use holdfast_api::{FIELD_MANAGER, key};
use holdfast_kube::requests;
use holdfast_plan::certificate::{Contents, Issue, Leaf, Origin, Plane, files};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;
use time::OffsetDateTime;

use super::{Actor, Done};
use crate::clock;
use crate::context::Context;
use crate::error::Error;
use crate::tls::{Data, entry, parse};

const DAY: Duration = Duration::from_hours(24);
/// Lifetime of a CA.
const CA_LIFE: Duration = DAY.saturating_mul(3650);
/// Lifetime of every other certificate.
const LEAF_LIFE: Duration = DAY.saturating_mul(90);
/// Certificates are valid from this long before their issue, for clocks that are behind.
const BACKDATED: Duration = Duration::from_hours(1);

/// Writes a Secret of certificates.
pub(super) async fn issue(ctx: &Context, actor: &Actor, wanted: &Issue) -> Result<Done, Error> {
    ctx.skew.check(&ctx.read.0).await?;
    let name = wanted.metadata.name.clone().unwrap_or_default();
    let data = match &wanted.contents {
        Contents::Ca(plane) => ca(&name, *plane).map_err(|error| unmade(&error))?,
        Contents::Leaves { leaves, cas, copies } => {
            let mut signers = BTreeMap::new();
            for (plane, (secret, fingerprint)) in cas {
                signers.insert(*plane, signer(ctx, actor, secret, fingerprint).await?);
            }
            let mut sources = BTreeMap::new();
            for (secret, contents) in copies {
                sources.insert(secret.as_str(), source(ctx, actor, secret, contents).await?);
            }
            fill(leaves, &signers, &sources)?
        }
    };
    ctx.tls.forget(&actor.namespace, &name);
    let written = (key::WRITTEN_AT.to_owned(), clock::now().to_string());
    let (client, namespace) = (&ctx.write.0, actor.namespace.as_str());
    match &wanted.replaces {
        None => {
            let annotations = Some([written].into());
            let secret = Secret {
                metadata: ObjectMeta { annotations, ..wanted.metadata.clone() },
                type_: Some(SECRET_TYPE.to_owned()),
                data: Some(data),
                ..Secret::default()
            };
            let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            match ctx.writing("Secret", "create", &name, requests::create(client, namespace, &params, &secret)).await {
                Ok(_) => Ok(Done::Applied),
                // The next pass reads the Secret. This pass does not overwrite an object that it has not read.
                Err(Error::Kube { source, .. }) if matches!(source.as_ref(), kube::Error::Api(status) if status.is_already_exists()) => {
                    Err(Error::Stale(format!("Secret {name} is there since")))
                }
                Err(error) => Err(error),
            }
        }
        Some(there) => {
            let metadata = json!({
                "uid": there.uid, "resourceVersion": there.resource_version, "annotations": {written.0: written.1},
            });
            let patch = json!({"metadata": metadata, "data": data});
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let patch = Patch::Merge(patch);
            let written = requests::patch::<Secret>(client, namespace, &name, &params, &patch);
            ctx.writing("Secret", "patch", &name, written).await?;
            Ok(Done::Applied)
        }
    }
}

/// The `ConfigMap` with the certificate of a CA, read from its Secret.
pub(super) async fn bundle(
    ctx: &Context,
    actor: &Actor,
    metadata: &ObjectMeta,
    secret: &str,
    fingerprint: &str,
) -> Result<ConfigMap, Error> {
    let data = ca_data(ctx, actor, secret, fingerprint).await?;
    let certificate = String::from_utf8_lossy(entry(&data, files::CA.certificate)).into_owned();
    ctx.tls.forget(&actor.namespace, metadata.name.as_deref().unwrap_or_default());
    Ok(ConfigMap {
        metadata: metadata.clone(),
        data: Some(BTreeMap::from([(files::CLIENT.ca.to_owned(), certificate)])),
        ..ConfigMap::default()
    })
}

/// A CA that signs, and its certificate.
struct Signer {
    issuer: Issuer<'static, KeyPair>,
    certificate: ByteString,
}

async fn signer(ctx: &Context, actor: &Actor, secret: &str, fingerprint: &str) -> Result<Signer, Error> {
    let data = ca_data(ctx, actor, secret, fingerprint).await?;
    let text = |file: &str| String::from_utf8_lossy(entry(&data, file)).into_owned();
    let key = KeyPair::from_pem(&text(files::CA.key)).map_err(|error| unmade(&error))?;
    let issuer = Issuer::from_ca_cert_pem(&text(files::CA.certificate), key).map_err(|error| unmade(&error))?;
    Ok(Signer { issuer, certificate: ByteString(entry(&data, files::CA.certificate).to_vec()) })
}

/// The Secret of the CA that the plan saw, read live.
async fn ca_data(ctx: &Context, actor: &Actor, secret: &str, fingerprint: &str) -> Result<Data, Error> {
    let found = get(ctx, actor, secret).await?;
    let data = found.data.clone().unwrap_or_default();
    // I15: a CA that was exchanged after the plan was made signs nothing.
    if parse::first_fingerprint(entry(&data, files::CA.certificate)).as_deref() == Some(fingerprint) {
        Ok(data)
    } else {
        Err(Error::Stale(format!("Secret {} holds another CA since", found.name_any())))
    }
}

/// The certificate that the plan judged, read live. A certificate that was exchanged since is not copied (I15).
async fn source(ctx: &Context, actor: &Actor, secret: &str, contents: &str) -> Result<Data, Error> {
    let found = get(ctx, actor, secret).await?;
    let data = found.data.unwrap_or_default();
    match parse::known(&data, files::CLIENT) {
        Ok(known) if known.contents == contents => Ok(data),
        _ => Err(Error::Stale(format!("Secret {secret} holds another certificate since"))),
    }
}

async fn get(ctx: &Context, actor: &Actor, secret: &str) -> Result<Secret, Error> {
    let found = requests::get(&ctx.read.0, &actor.namespace, secret);
    ctx.reading(|| format!("get Secret {secret}"), found).await
}

fn fill(leaves: &[Leaf], signers: &BTreeMap<Plane, Signer>, sources: &BTreeMap<&str, Data>) -> Result<Data, Error> {
    let mut data = Data::new();
    for leaf in leaves {
        if let Origin::Copied(secret) = &leaf.origin {
            let source = sources.get(secret.as_str()).ok_or_else(|| Error::Internal("no source".to_owned()))?;
            let copy = |file: &str| ByteString(entry(source, file).to_vec());
            // In a Secret of a member this file is the CA of the servers.
            if leaf.files != files::ETCDCTL {
                data.insert(leaf.files.ca.to_owned(), copy(files::CLIENT.ca));
            }
            data.insert(leaf.files.certificate.to_owned(), copy(files::CLIENT.certificate));
            data.insert(leaf.files.key.to_owned(), copy(files::CLIENT.key));
            continue;
        }
        let signer = signers.get(&leaf.plane).ok_or_else(|| Error::Internal("no CA for a certificate".to_owned()))?;
        let (certificate, key) = sign(leaf, &signer.issuer).map_err(|error| unmade(&error))?;
        let put = |(name, bytes): (&str, ByteString)| (name.to_owned(), bytes);
        let entries =
            [(leaf.files.ca, signer.certificate.clone()), (leaf.files.certificate, certificate), (leaf.files.key, key)];
        data.extend(entries.map(put));
    }
    Ok(data)
}

fn ca(name: &str, plane: Plane) -> Result<Data, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = params(vec![], CA_LIFE)?;
    // The random number gives two CAs of one cluster different names: a server sends these names in its handshake.
    let number: u32 = rand::random();
    params.distinguished_name.push(DnType::CommonName, format!("{name} {number:08x}"));
    params.distinguished_name.push(DnType::OrganizationName, format!("holdfast {}", plane.as_str()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let certificate = params.self_signed(&key)?;
    Ok([
        (files::CA.certificate.to_owned(), ByteString(certificate.pem().into_bytes())),
        (files::CA.key.to_owned(), ByteString(key.serialize_pem().into_bytes())),
    ]
    .into())
}

fn sign(leaf: &Leaf, issuer: &Issuer<'static, KeyPair>) -> Result<(ByteString, ByteString), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = params(leaf.names.clone(), LEAF_LIFE)?;
    if let Some(name) = &leaf.common_name {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Each server is a client too: of its peers, and of itself through the gateway.
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, issuer)?;
    Ok((ByteString(certificate.pem().into_bytes()), ByteString(key.serialize_pem().into_bytes())))
}

fn params(names: Vec<String>, life: Duration) -> Result<CertificateParams, rcgen::Error> {
    let now = OffsetDateTime::from_unix_timestamp(clock::now().as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.not_before = now - BACKDATED;
    params.not_after = now + life;
    Ok(params)
}

/// The error of a certificate that rcgen could not make. rcgen's messages hold no key.
fn unmade(error: &rcgen::Error) -> Error {
    Error::Internal(format!("a certificate cannot be made: {error}"))
}
