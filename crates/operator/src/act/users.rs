//! Gives etcd a user, and takes it away. Each change follows a linearizable read of the membership through the same connection, and
//! only in the etcd cluster that the claim names (I2, I31).
//!
//! Decides the password of a user that logs in by a certificate: a random one, which is kept nowhere. A user that etcd made without a
//! password could never get one.

use holdfast_api::user::PasswordRef;
use holdfast_api::{EtcdUser, USER_FINALIZER};
use holdfast_kube::requests;
use holdfast_plan::{Act, Target, UserChange};
use k8s_openapi::api::core::v1::Secret;

use super::membership::{change, read_membership};
use super::{Actor, Done, patch};
use crate::context::Context;
use crate::error::Error;
use crate::etcd::Address;

/// Longest password, in bytes.
const LONGEST: usize = 72;

/// Makes or changes a user, and notes in its object what etcd was given.
pub(super) async fn put(
    ctx: &Context,
    actor: &Actor,
    at: Option<&Address>,
    user: &Target,
    wanted: &UserChange,
    cluster_id: u64,
) -> Result<Done, Error> {
    let at = match read_membership(ctx, at, cluster_id).await {
        Ok((at, _)) => at,
        Err(error) => return unanswered(error, ""),
    };
    let password = match &wanted.password {
        None => hex::encode(rand::random::<[u8; 32]>()),
        Some(named) => match password(ctx, actor, named).await? {
            Ok(password) => password,
            Err(why) => return Ok(Done::Held(format!("key {} of the Secret {} {why}", named.key, named.name))),
        },
    };
    match change(ctx, "give etcd a user", "user_put", ctx.etcd.put_user(at, wanted, &password)).await? {
        Done::Applied => {
            let claim = wanted.claim.clone();
            patch::send(ctx, actor, &Act::ClaimUser { user: user.clone(), claim }).await
        }
        other => Ok(other),
    }
}

/// Returns the password in a Secret, or why there is none.
async fn password(ctx: &Context, actor: &Actor, named: &PasswordRef) -> Result<Result<String, &'static str>, Error> {
    let found = requests::get::<Secret>(&ctx.read.0, &actor.namespace, &named.name);
    let found = ctx.reading(|| format!("get Secret {}", named.name), found).await?;
    let text = found.data.and_then(|mut data| data.remove(&named.key)).map(|text| String::from_utf8(text.0));
    Ok(match text {
        None => Err("does not exist"),
        Some(Err(_)) => Err("is no text"),
        Some(Ok(text)) if text.is_empty() => Err("is empty"),
        Some(Ok(text)) if text.ends_with(['\n', '\r']) => {
            Err("ends with a line break, which would be part of the password")
        }
        // etcd hashes with bcrypt.
        Some(Ok(text)) if text.len() > LONGEST => Err("has more than 72 bytes, the most that etcd takes"),
        Some(Ok(text)) => Ok(text),
    })
}

/// Turns the silence of etcd into a wait with its reason.
fn unanswered(error: Error, way_out: &str) -> Result<Done, Error> {
    match error {
        Error::Etcd { message, .. } => Ok(Done::NotYet(format!("etcd does not answer: {message}{way_out}"))),
        other => Err(other),
    }
}

/// Deletes a user, and lets its object go.
pub(super) async fn drop_user(
    ctx: &Context,
    actor: &Actor,
    at: Option<&Address>,
    (user, name): (&Target, &str),
    cluster_id: u64,
) -> Result<Done, Error> {
    let at = match read_membership(ctx, at, cluster_id).await {
        Ok((at, _)) => at,
        Err(error) => return unanswered(error, ". To leave the user there, set spec.reclaimPolicy: Retain"),
    };
    match change(ctx, "delete a user", "user_delete", ctx.etcd.drop_user(at, name)).await? {
        Done::Applied => patch::release::<EtcdUser>(ctx, actor, user, USER_FINALIZER).await,
        other => Ok(other),
    }
}
