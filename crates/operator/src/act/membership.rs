//! Changes of etcd's membership and alarms, and defragmentation. Each change goes to the leader's own server, right after a linearizable read of the
//! membership through the same connection, and only when that etcd cluster has the expected cluster ID (I2, I11).

use futures::{StreamExt as _, TryStreamExt as _};
use holdfast_plan::cluster::Membership;
use holdfast_plan::{Act, Alarm, AlarmKind, Target};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{Actor, Done, patch, read};
use crate::context::Context;
use crate::error::Error;
use crate::etcd::{Address, Failure};

/// Adds a learner; a listed member with this peer URL counts as done.
pub(super) async fn add_learner(
    ctx: &Context,
    leader: Option<&Address>,
    peer_url: &str,
    cluster_id: u64,
) -> Result<Done, Error> {
    let (at, now) = read_membership(ctx, leader, cluster_id).await?;
    if now.members.iter().any(|m| m.peer_urls.iter().any(|url| url == peer_url)) {
        return Ok(Done::Already);
    }
    change(ctx, "add a learner", "add", ctx.etcd.add_learner(at, peer_url)).await
}

/// Changes the peer URL of a member; a member that has the URL counts as done.
pub(super) async fn set_peer_url(
    ctx: &Context,
    leader: Option<&Address>,
    (member_id, peer_url): (u64, &str),
    cluster_id: u64,
) -> Result<Done, Error> {
    let (at, now) = read_membership(ctx, leader, cluster_id).await?;
    match now.members.iter().find(|m| m.id == member_id) {
        Some(member) if member.peer_urls == [peer_url] => return Ok(Done::Already),
        Some(_) => {}
        None => return Err(Error::Stale(format!("etcd does not list member {member_id:x} any more"))),
    }
    change(ctx, "change a peer URL", "update", ctx.etcd.set_peer_url(at, member_id, peer_url)).await
}

/// Gives a learner its vote; a voter counts as done. The leader judges whether the learner has caught up.
pub(super) async fn promote(
    ctx: &Context,
    leader: Option<&Address>,
    member_id: u64,
    cluster_id: u64,
) -> Result<Done, Error> {
    let (at, now) = read_membership(ctx, leader, cluster_id).await?;
    match now.members.iter().find(|m| m.id == member_id) {
        Some(member) if !member.learner => return Ok(Done::Already),
        Some(_) => {}
        None => return Err(Error::Stale(format!("etcd does not list member {member_id:x} any more"))),
    }
    change(ctx, "promote a learner", "promote", ctx.etcd.promote(at, member_id)).await
}

/// Asks a leader to hand the leadership over; a member that does not lead any more counts as done.
pub(super) async fn move_leader(
    ctx: &Context,
    leader: Option<&Address>,
    (from, to): (u64, u64),
    cluster_id: u64,
) -> Result<Done, Error> {
    let (at, now) = read_membership(ctx, leader, cluster_id).await?;
    if !now.members.iter().any(|m| m.id == to && !m.learner) {
        return Err(Error::Stale(format!("etcd does not list {to:x} as a voter any more")));
    }
    if !now.members.iter().any(|m| m.id == from) {
        return Ok(Done::Already);
    }
    change(ctx, "move the leadership", "move_leader", ctx.etcd.move_leader(at, to)).await
}

/// Removes a member; an unlisted member counts as done. A learner that got its vote meanwhile needs a new decision.
pub(super) async fn remove(
    ctx: &Context,
    leader: Option<&Address>,
    (member_id, learner): (u64, bool),
    cluster_id: u64,
) -> Result<Done, Error> {
    let (at, now) = read_membership(ctx, leader, cluster_id).await?;
    match now.members.iter().find(|m| m.id == member_id) {
        None => return Ok(Done::Already),
        Some(member) if member.learner != learner => {
            return Err(Error::Stale(format!("member {member_id:x} has got its vote meanwhile")));
        }
        Some(_) => {}
    }
    change(ctx, "remove a member", "remove", ctx.etcd.remove_member(at, member_id)).await
}

/// Clears the alarm of an unlisted member, or a member's own `NOSPACE`; an alarm that is not raised counts as cleared.
pub(super) async fn disarm(
    ctx: &Context,
    leader: Option<&Address>,
    alarm: &Alarm,
    cluster_id: u64,
) -> Result<Done, Error> {
    let (at, now) = read_membership(ctx, leader, cluster_id).await?;
    if alarm.kind == AlarmKind::Corrupt && now.members.iter().any(|m| m.id == alarm.member_id) {
        return Err(Error::Stale(format!("etcd lists member {:x} now: its alarm is its own", alarm.member_id)));
    }
    change(ctx, "clear an alarm", "disarm", ctx.etcd.disarm(at, alarm)).await
}

/// Has a member defragment its file, and then lets clients in to its Pod. `at`: the member's own server.
pub(super) async fn defragment(
    ctx: &Context,
    actor: &Actor,
    at: Option<&Address>,
    pod: &Target,
    (member_id, cluster_id): (u64, u64),
) -> Result<Done, Error> {
    let (at, now) = read_membership(ctx, at.filter(|at| at.pod_uid == pod.uid), cluster_id).await?;
    if !now.members.iter().any(|member| member.id == member_id && !member.learner) {
        return Err(Error::Stale(format!("etcd does not list {member_id:x} as a voter any more")));
    }
    match change(ctx, "defragment a member", "defragment", ctx.etcd.defragment(at)).await? {
        Done::Applied => {}
        other => return Ok(other),
    }
    // kubelet has written the Pod's status meanwhile, so the version of the decision is old.
    let Some(there) =
        read::<Pod>(ctx, actor, &pod.name).await?.filter(|there| there.uid().as_deref() == Some(&*pod.uid))
    else {
        return Ok(Done::Already);
    };
    patch::send(ctx, actor, &Act::AdmitClients { pod: Target::from(&there.metadata) }).await
}

/// Turns authentication on, with the user root, or off. Each step may be repeated.
pub(super) async fn set_auth(
    ctx: &Context,
    leader: Option<&Address>,
    enabled: bool,
    cluster_id: u64,
) -> Result<Done, Error> {
    let (at, _) = read_membership(ctx, leader, cluster_id).await?;
    let done = if enabled {
        change(ctx, "turn authentication on", "auth_enable", ctx.etcd.enable_auth(at)).await?
    } else {
        change(ctx, "turn authentication off", "auth_disable", ctx.etcd.disable_auth(at)).await?
    };
    if done == Done::Applied {
        // The login counts, not the answer of the change.
        read_membership(ctx, leader, cluster_id).await?;
        ctx.etcd.auth.put(at, enabled);
    }
    Ok(done)
}

/// Commits an entry that changes nothing.
pub(super) async fn commit_entry(ctx: &Context, leader: Option<&Address>, cluster_id: u64) -> Result<Done, Error> {
    let committed = async {
        let (at, _) = read_membership(ctx, leader, cluster_id).await?;
        change(ctx, "commit an entry", "revoke", ctx.etcd.commit_entry(at)).await
    };
    // A failed entry does no harm to the cluster: the next pass tries again.
    Ok(committed.await.unwrap_or_else(|error| Done::NotYet(error.to_string())))
}

/// Commits this many entries that change nothing, some of them at a time.
pub(super) async fn fill_log(
    ctx: &Context,
    leader: Option<&Address>,
    entries: u32,
    cluster_id: u64,
) -> Result<Done, Error> {
    let filled = async {
        let (at, _) = read_membership(ctx, leader, cluster_id).await?;
        let each = futures::stream::iter(0..entries).map(|_| ctx.etcd.commit_entry(at)).buffer_unordered(AT_A_TIME);
        change(ctx, "fill the log", "revoke", each.try_collect::<()>()).await
    };
    // A failed entry does no harm to the cluster: the next pass counts again.
    Ok(filled.await.unwrap_or_else(|error| Done::NotYet(error.to_string())))
}

/// Requests for empty entries that wait for an answer at the same time.
const AT_A_TIME: usize = 64;

/// Reads the membership now, from the server that gets the change.
pub(super) async fn read_membership<'a>(
    ctx: &Context,
    leader: Option<&'a Address>,
    cluster_id: u64,
) -> Result<(&'a Address, Membership), Error> {
    let what = "read the membership before changing it";
    let at = leader.ok_or_else(|| Error::Etcd {
        what: what.to_owned(),
        message: "the leader has no Pod that answers".to_owned(),
    })?;
    let now = ctx
        .etcd
        .membership(at, None)
        .await
        .map_err(|failure| Error::Etcd { what: what.to_owned(), message: failure.to_string() })?;
    if now.cluster_id != cluster_id {
        return Err(Error::Stale(format!(
            "etcd cluster {:x} answered where {cluster_id:x} was expected: nothing was changed",
            now.cluster_id
        )));
    }
    Ok((at, now))
}

/// Makes the change, if this process may still write. The change starts here: a future does nothing before it is awaited.
pub(super) async fn change(
    ctx: &Context,
    what: &str,
    verb: &'static str,
    change: impl Future<Output = Result<(), Failure>>,
) -> Result<Done, Error> {
    ctx.may_write()?;
    match change.await {
        Ok(()) => {
            ctx.wrote("etcd", verb);
            Ok(Done::Applied)
        }
        Err(failure) => refused(what, failure),
    }
}

/// Maps a refusal to a retry soon, and silence to an unknown result: the next pass reads the membership.
fn refused(what: &str, failure: Failure) -> Result<Done, Error> {
    match failure {
        Failure::Refused(why) => Ok(Done::NotYet(why)),
        login @ Failure::LoginRequired => Ok(Done::NotYet(login.to_string())),
        Failure::Silent(_) => Err(Error::Timeout { what: what.to_owned(), writes: false }),
        Failure::Unreachable(message) => Err(Error::Etcd { what: what.to_owned(), message }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_no_is_waited_out_and_silence_is_not_taken_for_a_no() {
        let no = Failure::Refused("etcdserver: can only promote a learner member which is in sync".to_owned());
        assert!(matches!(refused("x", no), Ok(Done::NotYet(_))));
        assert!(matches!(refused("x", Failure::Silent(Duration::from_secs(5))), Err(Error::Timeout { .. })));
        assert!(matches!(refused("x", Failure::Unreachable("reset".to_owned())), Err(Error::Etcd { .. })));
    }
}
