//! Input of one pass over an `EtcdUser`: the object, its cluster, the Secret with its certificate, and what etcd has under its name.

use holdfast_api::formed::Formed;
use holdfast_api::{EtcdCluster, EtcdMember, EtcdUser, USER_FINALIZER, name};
use holdfast_plan::certificate::files;
use holdfast_plan::cluster::Member;
use holdfast_plan::user::Observed;
use holdfast_plan::{Seen, meta, user_claim};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::certificates::secret;
use super::cluster::address;
use crate::context::Context;
use crate::error::Error;
use crate::etcd::{self, Address};
use crate::reader::{Only, Reader};

/// Reads the user of this name and UID with its surroundings; `None` when the user is gone.
pub(crate) async fn observe(reader: Reader<'_>, named: &str, uid: &str) -> Result<Option<Observed>, Error> {
    let Some(user) = reader.get::<EtcdUser>(named).await?.filter(|user| user.uid().as_deref() == Some(uid)) else {
        return Ok(None);
    };
    let cluster = reader.get::<EtcdCluster>(&user.spec.cluster_ref.name).await?;
    let formed = cluster.as_ref().and_then(|c| Some(c.status.as_ref()?.latches.formed.as_ref()?.clone()));
    let rival = rival(reader, &user, formed.as_ref()).await?;
    let password = match &user.spec.password_secret_ref {
        Some(named) => Some(reader.secret_version(&named.name).await?),
        None => None,
    };
    let (mut own, mut ca, mut servers) = (None, None, None);
    if user.spec.certificate.is_some() {
        own = secret(reader, &name::user_tls(named), uid, &[files::CLIENT]).await?.map(|read| read.kept);
        if let Some(cluster) = cluster.as_ref().filter(|cluster| cluster.spec.issues_client_certificates()) {
            let (ca_name, owner) = (name::client_ca(&cluster.name_any()), meta::uid(&cluster.metadata));
            ca = secret(reader, &ca_name, owner, &[files::CA, files::NEXT]).await?.map(|read| read.kept);
            let login = name::operator_tls(&cluster.name_any());
            servers = secret(reader, &login, owner, &[files::CLIENT]).await?.map(|read| read.kept);
        }
    }
    let leader = match &cluster {
        Some(cluster) => leader(reader, cluster).await?,
        None => None,
    };
    let server = cluster.as_ref().zip(leader.as_ref()).and_then(|(cluster, leader)| at(reader.ctx, cluster, leader));
    let claimed = formed.as_ref().is_none_or(|formed| user_claim::read(&user, formed).is_some());
    // Only when nothing else stands before the claim.
    let asks = !claimed
        && rival.is_none()
        && !meta::deleting(&user.metadata)
        && meta::has_finalizer(&user.metadata, USER_FINALIZER)
        && !cluster.as_ref().is_some_and(|cluster| cluster.spec.paused)
        && password.as_ref().is_none_or(|version| matches!(version, Seen::Known(Some(_))));
    let taken = match &server {
        Some(at) if asks => Some(match etcd::has_user(&reader.ctx.etcd, at, user.user_name()).await {
            Ok(taken) => Seen::Known(taken),
            Err(failure) => Seen::unknown(failure.to_string()),
        }),
        _ => None,
    };
    Ok(Some(Observed {
        rival,
        reachable: server.is_some(),
        leader,
        user,
        cluster,
        taken,
        password,
        secret: own,
        ca,
        servers,
    }))
}

/// Returns another object of the same cluster and name that has the user: one with a claim before those without, then the oldest. A
/// deleted object looks for every other claim, since etcd loses the user with it.
async fn rival(reader: Reader<'_>, user: &EtcdUser, formed: Option<&Formed>) -> Result<Option<String>, Error> {
    let unclaimed = |user: &EtcdUser| formed.and_then(|formed| user_claim::read(user, formed)).is_none();
    let rank = |user: &EtcdUser| (unclaimed(user), user.metadata.creation_timestamp.clone(), user.uid());
    let goes = meta::deleting(&user.metadata);
    let before = |other: &EtcdUser| {
        if goes { !unclaimed(other) && other.uid() != user.uid() } else { rank(other) < rank(user) }
    };
    let same =
        |other: &EtcdUser| other.spec.cluster_ref == user.spec.cluster_ref && other.user_name() == user.user_name();
    let rivals = reader.list::<EtcdUser>(Only::Everything, |other| same(other) && before(other)).await?;
    Ok(rivals.first().map(ResourceExt::name_any))
}

/// Member that leads, by the cluster's status, with its Pod. Every voter takes a change of users.
async fn leader(reader: Reader<'_>, cluster: &EtcdCluster) -> Result<Option<Member>, Error> {
    let Some(leader) = cluster.status.as_ref().and_then(|status| status.leader.as_deref()) else { return Ok(None) };
    let Some(object) = reader.get::<EtcdMember>(leader).await? else { return Ok(None) };
    let pod = reader.get::<Pod>(leader).await?;
    Ok(Some(Member { object, pod, claim: None }))
}

fn at(ctx: &Context, cluster: &EtcdCluster, member: &Member) -> Option<Address> {
    let namespace = cluster.namespace().unwrap_or_default();
    let login = ctx.tls.login(&namespace, &name::operator_tls(&cluster.name_any()));
    address(member, login.as_ref())
}

/// Address of the member that an act goes to.
pub(crate) fn server_of(ctx: &Context, seen: &Observed) -> Option<Address> {
    at(ctx, seen.cluster.as_ref()?, seen.leader.as_ref()?)
}
