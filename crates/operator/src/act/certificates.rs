//! Makes keys and certificates, and writes them into one Secret.
//!
//! Decides lifetime and extensions of a CA. Keys are P-256. A Secret is written whole, so that a certificate and its key never
//! come from two writes.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_api::tls::SECRET_TYPE;
use holdfast_api::{FIELD_MANAGER, key};
use holdfast_kube::requests;
use holdfast_plan::certificate::{CaPlace, Contents, Files, Issue, Leaf, Origin, Plane, files};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use rcgen::{BasicConstraints, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

use super::{Actor, Done};
use crate::clock;
use crate::context::Context;
use crate::error::Error;
use crate::tls::sign::{params, sign, signing};
use crate::tls::{Data, entry, parse};

/// Lifetime of a CA.
const CA_LIFE: Duration = Duration::from_hours(24 * 3650);

/// Writes a Secret of certificates.
pub(super) async fn issue(ctx: &Context, actor: &Actor, wanted: &Issue) -> Result<Done, Error> {
    ctx.skew.check(&ctx.read.0).await?;
    let name = wanted.metadata.name.clone().unwrap_or_default();
    let mut rotated_for = None;
    let mut taken = vec![];
    let mut exchanged = false;
    let data = match &wanted.contents {
        Contents::Ca { plane, request } | Contents::NextCa { plane, request } => {
            rotated_for.clone_from(request);
            let follows = matches!(wanted.contents, Contents::NextCa { .. });
            let files = if follows { files::NEXT } else { files::CA };
            ca(&name, *plane, files).map_err(|error| unmade(&error))?
        }
        Contents::PromoteCa { next, .. } => {
            taken = vec![files::NEXT.certificate, files::NEXT.key];
            promoted(ctx, actor, &name, next).await?
        }
        Contents::Leaves { leaves, trusts, cas, copies, exchanges } => {
            exchanged = *exchanges;
            let mut signers = BTreeMap::new();
            for (plane, (secret, fingerprint)) in cas {
                signers.insert(*plane, signer(ctx, actor, secret, fingerprint).await?);
            }
            let mut sources = BTreeMap::new();
            for (secret, contents) in copies {
                sources.insert(secret.as_str(), source(ctx, actor, secret, contents).await?);
            }
            let mut data = fill(leaves, &signers, &sources)?;
            for (file, places) in trusts {
                let text = assemble(ctx, actor, places).await?;
                data.insert((*file).to_owned(), ByteString(text.into_bytes()));
            }
            data
        }
    };
    ctx.tls.forget(&actor.namespace, &name);
    let now = clock::now().to_string();
    let mut annotations = BTreeMap::from([(key::WRITTEN_AT.to_owned(), now.clone())]);
    annotations.extend(exchanged.then(|| (key::EXCHANGED_AT.to_owned(), now)));
    annotations.extend(rotated_for.map(|token| (key::ROTATED_FOR.to_owned(), token)));
    let (client, namespace) = (&ctx.write.0, actor.namespace.as_str());
    match &wanted.replaces {
        None => {
            let secret = Secret {
                metadata: ObjectMeta { annotations: Some(annotations), ..wanted.metadata.clone() },
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
                "uid": there.uid, "resourceVersion": there.resource_version, "annotations": annotations,
            });
            let mut data = json!(data);
            if let Some(data) = data.as_object_mut() {
                data.extend(taken.into_iter().map(|file| (file.to_owned(), Value::Null)));
            }
            let patch = json!({"metadata": metadata, "data": data});
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let patch = Patch::Merge(patch);
            let written = requests::patch::<Secret>(client, namespace, &name, &params, &patch);
            ctx.writing("Secret", "patch", &name, written).await?;
            Ok(Done::Applied)
        }
    }
}

/// The `ConfigMap` with the certificates of CAs, read from their Secrets.
pub(super) async fn bundle(
    ctx: &Context,
    actor: &Actor,
    metadata: &ObjectMeta,
    cas: &[CaPlace],
) -> Result<ConfigMap, Error> {
    let certificates = assemble(ctx, actor, cas).await?;
    ctx.tls.forget(&actor.namespace, metadata.name.as_deref().unwrap_or_default());
    Ok(ConfigMap {
        metadata: metadata.clone(),
        data: Some(BTreeMap::from([(files::CLIENT.ca.to_owned(), certificates)])),
        ..ConfigMap::default()
    })
}

type Signer = Issuer<'static, KeyPair>;

async fn signer(ctx: &Context, actor: &Actor, secret: &str, fingerprint: &str) -> Result<Signer, Error> {
    let data = ca_data(ctx, actor, secret, (files::CA, fingerprint)).await?;
    signing(&data, files::CA).map_err(|error| unmade(&error))
}

/// The Secret of the CA that the plan saw, read live.
async fn ca_data(
    ctx: &Context,
    actor: &Actor,
    secret: &str,
    (files, fingerprint): (Files, &str),
) -> Result<Data, Error> {
    let found = get(ctx, actor, secret).await?;
    let data = found.data.clone().unwrap_or_default();
    // I15: a CA that was exchanged after the plan was made signs nothing.
    if parse::first_fingerprint(entry(&data, files.certificate)).as_deref() == Some(fingerprint) {
        Ok(data)
    } else {
        Err(Error::Stale(format!("Secret {} holds another CA since", found.name_any())))
    }
}

/// The CA that follows, in the place of the CA that signs.
async fn promoted(ctx: &Context, actor: &Actor, secret: &str, next: &str) -> Result<Data, Error> {
    let mut data = ca_data(ctx, actor, secret, (files::NEXT, next)).await?;
    let moved = [(files::NEXT.certificate, files::CA.certificate), (files::NEXT.key, files::CA.key)];
    Ok(moved.into_iter().filter_map(|(from, to)| Some((to.to_owned(), data.remove(from)?))).collect())
}

/// The certificates of CAs in one text, read live from the places where the plan saw them.
async fn assemble(ctx: &Context, actor: &Actor, places: &[CaPlace]) -> Result<String, Error> {
    let mut read: BTreeMap<&str, Data> = BTreeMap::new();
    let mut text = String::new();
    for place in places {
        if !read.contains_key(place.secret.as_str()) {
            read.insert(&place.secret, get(ctx, actor, &place.secret).await?.data.unwrap_or_default());
        }
        let data = read.get(place.secret.as_str());
        let found = data.and_then(|data| parse::find_certificate(entry(data, place.file), &place.fingerprint));
        let gone = || Error::Stale(format!("Secret {} holds another CA since", place.secret));
        text.push_str(&found.ok_or_else(gone)?);
    }
    Ok(text)
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
            data.insert(leaf.files.certificate.to_owned(), copy(files::CLIENT.certificate));
            data.insert(leaf.files.key.to_owned(), copy(files::CLIENT.key));
            continue;
        }
        let signer = signers.get(&leaf.plane).ok_or_else(|| Error::Internal("no CA for a certificate".to_owned()))?;
        let (certificate, key) = sign(leaf, signer).map_err(|error| unmade(&error))?;
        let entries = [(leaf.files.certificate, certificate), (leaf.files.key, key)];
        data.extend(entries.map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes()))));
    }
    Ok(data)
}

fn ca(name: &str, plane: Plane, files: Files) -> Result<Data, rcgen::Error> {
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
        (files.certificate.to_owned(), ByteString(certificate.pem().into_bytes())),
        (files.key.to_owned(), ByteString(key.serialize_pem().into_bytes())),
    ]
    .into())
}

/// The error of a certificate that rcgen could not make. rcgen's messages hold no key.
fn unmade(error: &rcgen::Error) -> Error {
    Error::Internal(format!("a certificate cannot be made: {error}"))
}
