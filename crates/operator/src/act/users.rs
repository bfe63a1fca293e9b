//! Gives etcd a user, and takes it away. Each change follows a linearizable read of the membership through the same connection, and
//! only in the etcd cluster that the claim names (I2, I31).
//!
//! Decides the password of a user that logs in by a certificate: a random one, which is kept nowhere. A user that etcd made without a
//! password could never get one.

use holdfast_api::{EtcdUser, USER_FINALIZER};
use holdfast_kube::requests;
use holdfast_plan::{Act, Target, UserChange};
use k8s_openapi::api::core::v1::Secret;

use super::membership::{change, read_membership};
use super::{Actor, Done, patch};
use crate::context::Context;
use crate::error::Error;
use crate::etcd::Address;

/// Makes or changes a user, and notes in its object what etcd was given.
pub(super) async fn put(
    ctx: &Context,
    actor: &Actor,
    at: Option<&Address>,
    user: &Target,
    wanted: &UserChange,
    cluster_id: u64,
) -> Result<Done, Error> {
    let (at, _) = read_membership(ctx, at, cluster_id).await?;
    let password = match &wanted.password {
        None => hex::encode(rand::random::<[u8; 32]>()),
        Some(named) => {
            let found = requests::get::<Secret>(&ctx.read.0, &actor.namespace, &named.name);
            let found = ctx.reading(|| format!("get Secret {}", named.name), found).await?;
            let data = found.data.and_then(|mut data| data.remove(&named.key)).map(|text| String::from_utf8(text.0));
            match data {
                Some(Ok(password)) if !password.is_empty() => password,
                Some(Ok(_)) => {
                    return Ok(Done::Held(format!("key {} of the Secret {} is empty", named.key, named.name)));
                }
                Some(Err(_)) => {
                    return Ok(Done::Held(format!("key {} of the Secret {} is no text", named.key, named.name)));
                }
                None => return Ok(Done::Held(format!("the Secret {} has no key {}", named.name, named.key))),
            }
        }
    };
    let put = ctx.etcd.put_user(at, &wanted.name, &wanted.permissions, &password);
    match change(ctx, "give etcd a user", "user_put", put).await? {
        Done::Applied => {
            let claim = wanted.claim.clone();
            patch::send(ctx, actor, &Act::ClaimUser { user: user.clone(), claim }).await
        }
        other => Ok(other),
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
    let (at, _) = read_membership(ctx, at, cluster_id).await?;
    match change(ctx, "delete a user", "user_delete", ctx.etcd.drop_user(at, name)).await? {
        Done::Applied => patch::release::<EtcdUser>(ctx, actor, user, USER_FINALIZER).await,
        other => Ok(other),
    }
}
