//! One connection for each member's Pod, dialled by its first call, and the operator's calls on it.
//!
//! A client with several endpoints would balance calls between them. A member's status needs that member's server, and a
//! linearizable read has to come from the same server as the member list after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Channel, Client, Error as ClientError, GetOptions, MemberAddOptions,
    UserAddOptions,
};
use holdfast_io::net::{connector, refusal};
use holdfast_plan::certificate::ROOT;
use holdfast_plan::cluster::{Answer, KeyHash, Listed, Membership};
use holdfast_plan::{Alarm, AlarmKind};
use tonic::Code;
use tonic::transport::Uri;

use super::Address;
use super::auth::AuthStates;
use super::hashes::Hashes;
use super::silence::Silent;
use crate::clock;

/// Deadline of dialling: Pods are one hop away, and a vanished one must not cost a pass much.
const CONNECT: Duration = Duration::from_secs(2);
/// Deadline of reads. A linearizable read without a quorum never answers.
pub(super) const READ: Duration = Duration::from_secs(2);
/// Deadline of a hash: etcd reads 8 GiB in this time from a disk of 400 MiB/s.
const HASH: Duration = Duration::from_secs(20);
/// Deadline of membership changes: they go through the log and the disks of a quorum.
pub(super) const CHANGE: Duration = Duration::from_secs(5);

/// Deadline of a defragmentation: etcd rewrites 8 GiB at 30 MB/s, and its liveness probe ends a longer one.
const DEFRAGMENT: Duration = Duration::from_mins(5);

/// etcd's message to a client without a login, when authentication is enabled (etcd: `ErrUserEmpty`).
const USER_EMPTY: &str = "etcdserver: user name is empty";

/// etcd's message to a client whose certificate names a user that etcd does not know (etcd: `ErrPermissionDenied`).
const NO_PERMISSION: &str = "etcdserver: permission denied";

/// A name that no user has.
const UNKNOWN_USER: &str = "holdfast.dev/asks-whether-authentication-is-on";

/// etcd's answer to a login while authentication is off (etcd: `ErrAuthNotEnabled`).
const AUTH_OFF: &str = "etcdserver: authentication is not enabled";
/// etcd's answer to a wrong login (etcd: `ErrAuthFailed`).
const WRONG_PASSWORD: &str = "etcdserver: authentication failed, invalid user ID or password";
/// etcd's answer to a second user of a name (etcd: `ErrUserAlreadyExist`).
pub(super) const USER_EXISTS: &str = "etcdserver: user name already exists";
/// etcd's answer to a second role of a name (etcd: `ErrRoleAlreadyExist`).
pub(super) const ROLE_EXISTS: &str = "etcdserver: role name already exists";

/// Reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// etcd answered with an error.
    #[error("etcd says: {0}")]
    Refused(String),
    /// etcd answered that it requires a login.
    #[error("etcd requires a login of the user root")]
    LoginRequired,
    /// No answer within the deadline; etcd may have carried the call out.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// No connection.
    #[error("{0}")]
    Unreachable(String),
}

/// Answer of one member's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberStatus {
    /// The member's status.
    pub(super) answer: Answer,
    /// The alarms that the member knows of.
    pub(super) alarms: Vec<Alarm>,
}

/// The connections, the silent Pods and the hashes. Losing them costs a deadline or a hash for each member.
#[derive(Clone, Default)]
pub(crate) struct Pool {
    open: Arc<Mutex<HashMap<Address, Client>>>,
    pub(super) silent: Arc<Silent>,
    pub(super) hashes: Arc<Hashes>,
    pub(crate) auth: Arc<AuthStates>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// Returns the connection to a member's Pod; its first call dials.
    async fn client(&self, at: &Address) -> Result<Client, Failure> {
        if let Some(client) = self.lock().get(at) {
            return Ok(client.clone());
        }
        let url = at.url().parse::<Uri>().map_err(|e| Failure::Unreachable(e.to_string()))?;
        let secure = at.tls.as_ref().map(|(login, host)| login.towards(host)).transpose();
        let secure = secure.map_err(Failure::Unreachable)?;
        let channel = connector::channel(&url, secure, CONNECT, |endpoint| endpoint)
            .map_err(|e| Failure::Unreachable(e.to_string()))?;
        let client = Client::from_channel(Channel::Tonic(channel), None)
            .await
            .map_err(|e| Failure::Unreachable(e.to_string()))?;
        self.lock().insert(at.clone(), client.clone());
        Ok(client)
    }

    /// Forgets a deleted Pod, and closes the connections to it.
    pub(crate) fn forget(&self, pod_uid: &str) {
        self.retain(|known| known != pod_uid);
    }

    /// Forgets all Pods but these.
    pub(crate) fn keep(&self, pod_uids: &std::collections::HashSet<String>) {
        self.retain(|known| pod_uids.contains(known));
    }

    fn retain(&self, kept: impl Fn(&str) -> bool) {
        self.lock().retain(|at, _| kept(&at.pod_uid));
        self.silent.retain(&kept);
        self.hashes.retain(&kept);
        self.auth.retain(&kept);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Address, Client>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn call<T, F>(
        &self,
        at: &Address,
        limit: Duration,
        work: impl FnOnce(Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let client = self.client(at).await?;
        match clock::within(limit, work(client)).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(describe_failure(&error)),
            None => {
                // A connection that went silent (the node is gone) would stay silent: the next call dials again.
                self.lock().retain(|open, _| open.pod_uid != at.pod_uid);
                Err(Failure::Silent(limit))
            }
        }
    }

    /// Reads a member's own status. Learners answer too, and so do members without a leader.
    pub(super) async fn status(&self, at: &Address) -> Result<MemberStatus, Failure> {
        let response = self.call(at, READ, |mut client| async move { client.status().await }).await?;
        let header = response.header().ok_or_else(|| Failure::Unreachable("an answer without a header".to_owned()))?;
        let answer = Answer {
            member_id: header.member_id(),
            cluster_id: header.cluster_id(),
            version: response.version().to_owned(),
            db_bytes: response.db_size(),
            used_bytes: response.raft_used_db_size(),
            term: response.raft_term(),
            applied_index: response.raft_applied_index(),
            learner: response.is_learner(),
            leader: response.leader(),
            revision: header.revision(),
        };
        Ok(MemberStatus { answer, alarms: response.errors().iter().filter_map(|text| alarm(text)).collect() })
    }

    /// Reads the membership from one member, right after a linearizable read through the same connection: without that read the
    /// list may be an old list of a member that was cut off.
    pub(crate) async fn membership(&self, at: &Address, leader: Option<u64>) -> Result<Membership, Failure> {
        let (read, listed) = self
            .call(at, READ, |mut client| async move {
                // Any key will do: one byte that neither the API server nor users write. etcd returns a count only.
                let read = client.get("\0", Some(GetOptions::new().with_count_only())).await?;
                Ok((read, client.member_list().await?))
            })
            .await?;
        let cluster_id = listed.header().map(etcd_client::ResponseHeader::cluster_id);
        let (Some(cluster_id), true) =
            (cluster_id, read.header().map(etcd_client::ResponseHeader::cluster_id) == cluster_id)
        else {
            return Err(Failure::Unreachable("two etcd clusters answered on one connection".to_owned()));
        };
        let members = listed
            .members()
            .iter()
            .map(|m| Listed {
                id: m.id(),
                name: m.name().to_owned(),
                peer_urls: m.peer_urls().to_vec(),
                learner: m.is_learner(),
            })
            .collect();
        Ok(Membership { cluster_id, leader, members, alarms: vec![] })
    }

    /// Reads the hash of a member's key space. The member reads its whole database for it.
    pub(super) async fn read_hash(&self, at: &Address) -> Result<KeyHash, Failure> {
        let response = self.call(at, HASH, |mut client| async move { client.hash_kv(0).await }).await?;
        let at_once = response.header().map_or(0, etcd_client::ResponseHeader::revision);
        // Before 3.6 an answer has no revision of the hash, only the revision at the time of the answer.
        let revision = if response.hash_revision() > 0 { response.hash_revision() } else { at_once };
        Ok(KeyHash { revision, compact_revision: response.compact_version(), hash: response.hash() })
    }

    /// Adds a learner.
    pub(crate) async fn add_learner(&self, at: &Address, peer_url: &str) -> Result<(), Failure> {
        let urls = [peer_url.to_owned()];
        let options = MemberAddOptions::new().with_is_learner();
        self.call(at, CHANGE, |mut client| async move { client.member_add(urls, Some(options)).await }).await?;
        Ok(())
    }

    /// Clears an alarm. Without a raised alarm etcd answers without an error (etcd: `alarmStore.Deactivate`).
    pub(crate) async fn disarm(&self, at: &Address, alarm: &Alarm) -> Result<(), Failure> {
        let mut options = AlarmOptions::new();
        options.with_member(alarm.member_id);
        let kind = match alarm.kind {
            AlarmKind::NoSpace => AlarmType::Nospace,
            AlarmKind::Corrupt => AlarmType::Corrupt,
        };
        let clear =
            |mut client: Client| async move { client.alarm(AlarmAction::Deactivate, kind, Some(options)).await };
        self.call(at, CHANGE, clear).await?;
        Ok(())
    }

    /// Commits one entry that changes nothing: etcd revokes a lease through the log, and no lease has the ID 0 (etcd:
    /// `lease.NoLease`). etcd answers that it did not find the lease.
    pub(crate) async fn commit_entry(&self, at: &Address) -> Result<(), Failure> {
        match self.call(at, CHANGE, |mut client| async move { client.lease_revoke(0).await }).await {
            Ok(_) => Ok(()),
            Err(Failure::Refused(why)) if why.contains("lease not found") => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Asks whether authentication is on, by a login that etcd refuses either way: the question puts no entry into the log, and
    /// `AuthStatus` would (etcd: `AuthStore.CheckPassword`).
    pub(super) async fn is_auth_on(&self, at: &Address) -> Result<bool, Failure> {
        let ask = |client: Client| async move {
            client.auth_client().authenticate(UNKNOWN_USER.to_owned(), String::new()).await
        };
        match self.call(at, READ, ask).await {
            Ok(_) => Ok(true),
            Err(Failure::Refused(why)) if why == AUTH_OFF => Ok(false),
            Err(Failure::Refused(why)) if why == WRONG_PASSWORD => Ok(true),
            Err(failure) => Err(failure),
        }
    }

    /// Turns authentication on, with the user root, who has no password: the operator logs in by its certificate. What exists
    /// already counts as made.
    pub(crate) async fn enable_auth(&self, at: &Address) -> Result<(), Failure> {
        let no_password = UserAddOptions::new().with_no_pwd();
        let add = |mut client: Client| async move { client.user_add(ROOT, "", Some(no_password)).await };
        made(self.call(at, CHANGE, add).await, USER_EXISTS)?;
        made(self.call(at, CHANGE, |mut client| async move { client.role_add(ROOT).await }).await, ROLE_EXISTS)?;
        self.call(at, CHANGE, |mut client| async move { client.user_grant_role(ROOT, ROOT).await }).await?;
        self.call(at, CHANGE, |mut client| async move { client.auth_enable().await }).await?;
        Ok(())
    }

    /// Turns authentication off. Users and roles stay.
    pub(crate) async fn disable_auth(&self, at: &Address) -> Result<(), Failure> {
        self.call(at, CHANGE, |mut client| async move { client.auth_disable().await }).await?;
        Ok(())
    }

    /// Removes a member.
    pub(crate) async fn remove_member(&self, at: &Address, member_id: u64) -> Result<(), Failure> {
        self.call(at, CHANGE, |mut client| async move { client.member_remove(member_id).await }).await?;
        Ok(())
    }

    /// Asks a leader to hand the leadership to another voter.
    pub(crate) async fn move_leader(&self, at: &Address, to: u64) -> Result<(), Failure> {
        self.call(at, CHANGE, |mut client| async move { client.move_leader(to).await }).await?;
        Ok(())
    }

    /// Has a member rewrite its file. The member serves nothing meanwhile.
    pub(crate) async fn defragment(&self, at: &Address) -> Result<(), Failure> {
        self.call(at, DEFRAGMENT, |mut client| async move { client.defragment().await }).await?;
        Ok(())
    }

    /// Changes the peer URL of a member.
    pub(crate) async fn set_peer_url(&self, at: &Address, member_id: u64, peer_url: &str) -> Result<(), Failure> {
        let urls = [peer_url.to_owned()];
        self.call(at, CHANGE, |mut client| async move { client.member_update(member_id, urls).await }).await?;
        Ok(())
    }

    /// Gives a learner its vote.
    pub(crate) async fn promote(&self, at: &Address, member_id: u64) -> Result<(), Failure> {
        self.call(at, CHANGE, |mut client| async move { client.member_promote(member_id).await }).await?;
        Ok(())
    }
}

/// Parses one alarm out of `Status.errors`, where etcd prints them (`memberID:123 alarm:NOSPACE`). The Alarm call would put an
/// entry in the cluster's log each time, even to read: a poll must not write.
fn alarm(text: &str) -> Option<Alarm> {
    let kind = AlarmKind::ALL.into_iter().find(|kind| text.contains(&format!("alarm:{}", kind.as_str())))?;
    let member_id = text.split_whitespace().find_map(|word| word.strip_prefix("memberID:")?.parse().ok()).unwrap_or(0);
    Some(Alarm { member_id, kind })
}

/// Counts an object that exists already as made.
pub(super) fn made<T>(answer: Result<T, Failure>, exists: &str) -> Result<(), Failure> {
    match answer {
        Ok(_) => Ok(()),
        Err(Failure::Refused(why)) if why == exists => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Maps a client's error to a failure.
fn describe_failure(error: &ClientError) -> Failure {
    match error {
        ClientError::GRpcStatus(status) if [USER_EMPTY, NO_PERMISSION].contains(&status.message()) => {
            Failure::LoginRequired
        }
        ClientError::GRpcStatus(status) => match status.code() {
            // tonic's codes for a broken connection, without a message of etcd.
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal
                if !status.message().starts_with("etcdserver: ") =>
            {
                Failure::Unreachable(chain(status))
            }
            _ => Failure::Refused(status.message().to_owned()),
        },
        other => Failure::Unreachable(other.to_string()),
    }
}

/// The innermost cause of an error: the outer text is only "transport error". rustls' text for a certificate holds its bytes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    match refusal::beneath(error) {
        Some(why) => refusal::describe(why, "the CA in the operator's Secret", "this member"),
        None => innermost.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_of_etcd_is_told_from_a_broken_connection() {
        let no = tonic::Status::unavailable("etcdserver: unhealthy cluster");
        assert_eq!(
            describe_failure(&ClientError::GRpcStatus(no)),
            Failure::Refused("etcdserver: unhealthy cluster".to_owned())
        );
        let no = tonic::Status::failed_precondition("etcdserver: can only promote a learner member");
        assert!(matches!(describe_failure(&ClientError::GRpcStatus(no)), Failure::Refused(_)));
        let login = tonic::Status::invalid_argument(USER_EMPTY);
        assert_eq!(describe_failure(&ClientError::GRpcStatus(login)), Failure::LoginRequired);
        let broken = tonic::Status::unavailable("tcp connect error");
        assert!(matches!(describe_failure(&ClientError::GRpcStatus(broken)), Failure::Unreachable(_)));
    }

    #[test]
    fn alarms_are_read_from_what_status_prints() {
        let raised = |member_id: u64, kind| Some(Alarm { member_id, kind });
        assert_eq!(
            alarm("memberID:10501334649042878790 alarm:NOSPACE "),
            raised(10_501_334_649_042_878_790, AlarmKind::NoSpace)
        );
        assert_eq!(alarm("memberID:7  alarm:CORRUPT"), raised(7, AlarmKind::Corrupt));
        assert_eq!(alarm("alarm:CORRUPT"), raised(0, AlarmKind::Corrupt));
        assert_eq!(alarm("etcdserver: no leader"), None);
    }

    #[tokio::test]
    async fn a_closed_port_answers_at_once_and_is_named() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        drop(closed);
        let at =
            Address { member: "m".to_owned(), pod_uid: "u".to_owned(), ip: "127.0.0.1".parse().unwrap(), tls: None };
        let pool = Pool::default();
        let mut quickest = Duration::MAX;
        // The machine may stall, but hardly three times.
        for _ in 0..3 {
            let begun = clock::instant();
            let failure = pool.status(&at).await.unwrap_err();
            assert!(matches!(failure, Failure::Unreachable(_)), "{failure}");
            quickest = quickest.min(begun.elapsed());
        }
        assert!(quickest < Duration::from_secs(1), "{quickest:?}");
        assert_eq!(pool.lock().len(), 1);
        pool.forget("u");
        assert_eq!(pool.lock().len(), 0);
    }
}
