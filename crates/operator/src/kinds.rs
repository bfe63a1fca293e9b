//! The seven kinds with a pass: observer, plan and safety rules of each. Decides nothing.

use std::time::Duration;

use holdfast_api::snapshot::Phase;
use holdfast_api::{
    EtcdBackupStore, EtcdBackupStoreStatus, EtcdCluster, EtcdClusterStatus, EtcdMember, EtcdMemberStatus, EtcdRestore,
    EtcdRestoreStatus, EtcdSnapshot, EtcdSnapshotSchedule, EtcdSnapshotScheduleStatus, EtcdSnapshotStatus, EtcdUser,
    EtcdUserStatus,
};
use holdfast_plan::live_reads::lacks_parts;
use holdfast_plan::safety::{Broken, Checked};
use holdfast_plan::{Act, Plan, cluster, member, returns, schedule, snapshot, store, user};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use super::clock;
use super::context::Context;
use super::error::Error;
use super::etcd::Address;
use super::observe;
use super::reader::Reader;
use holdfast_kube::kinds::Cached;

/// A kind with a pass.
pub(super) trait Kind: Send + Sync + 'static {
    /// Name of the kind.
    const NAME: &'static str;
    /// Type of the object.
    type Object: Cached;
    /// Type of the object's status.
    type Status: Clone + PartialEq + Serialize + Send + Sync + 'static;
    /// Input of one pass.
    type Seen: Send + Sync;

    /// Reads the input of a pass; `None` when the object is gone.
    fn observe(
        reader: Reader<'_>,
        name: &str,
        uid: &str,
    ) -> impl Future<Output = Result<Option<Self::Seen>, Error>> + Send;
    /// Makes the plan.
    fn plan(seen: &Self::Seen, now: Timestamp) -> Plan<Self::Status>;
    /// Checks the plan against the rules of the kind.
    fn check(seen: &Self::Seen, plan: Plan<Self::Status>) -> Result<Checked<Self::Status>, Broken<Self::Status>>;
    /// The object of the pass.
    fn object(seen: &Self::Seen) -> &Self::Object;
    /// The object's status.
    fn status(object: &Self::Object) -> Option<&Self::Status>;
    /// Sets the object's status.
    fn put_status(object: &mut Self::Object, status: Self::Status);
    /// The conditions in a status.
    fn conditions(status: &Self::Status) -> &[Condition];
    /// The conditions in a status, mutable.
    fn conditions_mut(status: &mut Self::Status) -> &mut Vec<Condition>;
    /// Puts the latch that an act carries into a status; `false` where the kind has no such latch.
    fn latch(status: &mut Self::Status, act: &Act) -> bool {
        let _ = (status, act);
        false
    }
    /// Address of the etcd server that an act goes to.
    fn server(ctx: &Context, seen: &Self::Seen, act: &Act) -> Option<Address> {
        let _ = (ctx, seen, act);
        None
    }
    /// Whether the objects that guard an act still have the version of the pass
    /// ([`LiveReads::Guards`](holdfast_plan::live_reads::LiveReads)).
    fn are_guards_current(
        reader: Reader<'_>,
        seen: &Self::Seen,
        act: &Act,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        let _ = act;
        async move { reader.is_current(Self::object(seen)).await }
    }
    /// Whether the view lacks something that should be there: a cache may not hold it, and what it lacks is unknown.
    fn is_incomplete(seen: &Self::Seen, now: Timestamp) -> bool {
        let _ = (seen, now);
        false
    }
    /// Whether a status stays for ever (I18).
    fn is_final(status: &Self::Status) -> bool {
        let _ = status;
        false
    }
    /// A shorter wait than the plan's, while something that no watch tells of is about to happen.
    fn hurry(seen: &Self::Seen, now: Timestamp) -> Option<Duration> {
        let _ = (seen, now);
        None
    }
}

/// `EtcdCluster`.
#[derive(Debug)]
pub(super) struct Clusters;
/// `EtcdMember`.
#[derive(Debug)]
pub(super) struct Members;
/// `EtcdSnapshot`.
#[derive(Debug)]
pub(super) struct Snapshots;
/// `EtcdBackupStore`.
#[derive(Debug)]
pub(super) struct BackupStores;

/// `EtcdSnapshotSchedule`.
#[derive(Debug)]
pub(super) struct Schedules;

/// `EtcdUser`.
#[derive(Debug)]
pub(super) struct Users;

/// `EtcdRestore`.
#[derive(Debug)]
pub(super) struct Restores;

impl Kind for Restores {
    const NAME: &'static str = "EtcdRestore";
    type Object = EtcdRestore;
    type Status = EtcdRestoreStatus;
    type Seen = returns::Observed;

    async fn observe(reader: Reader<'_>, name: &str, uid: &str) -> Result<Option<Self::Seen>, Error> {
        Box::pin(observe::restore::observe(reader, name, uid)).await
    }
    fn plan(seen: &Self::Seen, now: Timestamp) -> Plan<Self::Status> {
        returns::plan(seen, now)
    }
    fn check(_seen: &Self::Seen, plan: Plan<Self::Status>) -> Result<Checked<Self::Status>, Broken<Self::Status>> {
        Checked::reports(plan)
    }
    fn is_final(status: &Self::Status) -> bool {
        status.phase.is_final()
    }
    fn object(seen: &Self::Seen) -> &EtcdRestore {
        &seen.restore
    }
    fn status(object: &EtcdRestore) -> Option<&Self::Status> {
        object.status.as_ref()
    }
    fn put_status(object: &mut EtcdRestore, status: Self::Status) {
        object.status = Some(status);
    }
    fn conditions(status: &Self::Status) -> &[Condition] {
        &status.conditions
    }
    fn conditions_mut(status: &mut Self::Status) -> &mut Vec<Condition> {
        &mut status.conditions
    }
}

impl Kind for Clusters {
    const NAME: &'static str = "EtcdCluster";
    type Object = EtcdCluster;
    type Status = EtcdClusterStatus;
    type Seen = cluster::Observed;

    async fn observe(reader: Reader<'_>, name: &str, uid: &str) -> Result<Option<Self::Seen>, Error> {
        Box::pin(observe::cluster::observe(reader, name, uid)).await
    }
    fn plan(seen: &Self::Seen, now: Timestamp) -> Plan<Self::Status> {
        cluster::plan(seen, now)
    }
    fn check(seen: &Self::Seen, plan: Plan<Self::Status>) -> Result<Checked<Self::Status>, Broken<Self::Status>> {
        Checked::cluster(seen, plan)
    }
    fn object(seen: &Self::Seen) -> &EtcdCluster {
        &seen.cluster
    }
    fn status(object: &EtcdCluster) -> Option<&Self::Status> {
        object.status.as_ref()
    }
    fn put_status(object: &mut EtcdCluster, status: Self::Status) {
        object.status = Some(status);
    }
    fn conditions(status: &Self::Status) -> &[Condition] {
        &status.conditions
    }
    fn conditions_mut(status: &mut Self::Status) -> &mut Vec<Condition> {
        &mut status.conditions
    }
    fn latch(status: &mut Self::Status, act: &Act) -> bool {
        let Act::Latch(latches) = act else { return false };
        status.latches = (**latches).clone();
        true
    }
    fn server(ctx: &Context, seen: &Self::Seen, act: &Act) -> Option<Address> {
        observe::cluster::server(ctx, seen, act)
    }
    fn is_incomplete(seen: &Self::Seen, now: Timestamp) -> bool {
        let lacks =
            |member: &cluster::Member| lacks_parts(&member.object, member.pod.is_some(), member.claim.is_some(), now);
        seen.peer_service.is_none() || seen.client_service.is_none() || seen.members.iter().any(lacks)
    }
    async fn are_guards_current(reader: Reader<'_>, seen: &Self::Seen, act: &Act) -> Result<bool, Error> {
        let named = |name: &str| seen.members.iter().find(|member| member.name() == name);
        let member = match act.member_by_name() {
            Some(name) => match named(name) {
                Some(member) => Some(&member.object),
                None => return Ok(false),
            },
            None => None,
        };
        let (cluster, member) = futures::try_join!(reader.is_current(&seen.cluster), async {
            match member {
                Some(member) => reader.is_current(member).await,
                None => Ok(true),
            }
        })?;
        Ok(cluster && member)
    }
    fn hurry(seen: &Self::Seen, now: Timestamp) -> Option<Duration> {
        observe::cluster::hurry(seen, now)
    }
}

impl Kind for Members {
    const NAME: &'static str = "EtcdMember";
    type Object = EtcdMember;
    type Status = EtcdMemberStatus;
    type Seen = member::Observed;

    async fn observe(reader: Reader<'_>, name: &str, uid: &str) -> Result<Option<Self::Seen>, Error> {
        Box::pin(observe::member::observe(reader, name, uid)).await
    }
    fn plan(seen: &Self::Seen, now: Timestamp) -> Plan<Self::Status> {
        member::plan(seen, now)
    }
    fn check(seen: &Self::Seen, plan: Plan<Self::Status>) -> Result<Checked<Self::Status>, Broken<Self::Status>> {
        Checked::member(seen, plan)
    }
    fn is_incomplete(seen: &Self::Seen, now: Timestamp) -> bool {
        lacks_parts(&seen.member, seen.pod.is_some(), seen.claim.is_some(), now)
    }
    fn object(seen: &Self::Seen) -> &EtcdMember {
        &seen.member
    }
    fn status(object: &EtcdMember) -> Option<&Self::Status> {
        object.status.as_ref()
    }
    fn put_status(object: &mut EtcdMember, status: Self::Status) {
        object.status = Some(status);
    }
    fn conditions(status: &Self::Status) -> &[Condition] {
        &status.conditions
    }
    fn conditions_mut(status: &mut Self::Status) -> &mut Vec<Condition> {
        &mut status.conditions
    }
}

impl Kind for Snapshots {
    const NAME: &'static str = "EtcdSnapshot";
    type Object = EtcdSnapshot;
    type Status = EtcdSnapshotStatus;
    type Seen = snapshot::Observed;

    async fn observe(reader: Reader<'_>, name: &str, uid: &str) -> Result<Option<Self::Seen>, Error> {
        observe::snapshot::observe(reader, name, uid).await
    }
    fn plan(seen: &Self::Seen, now: Timestamp) -> Plan<Self::Status> {
        snapshot::plan(seen, now)
    }
    fn check(seen: &Self::Seen, plan: Plan<Self::Status>) -> Result<Checked<Self::Status>, Broken<Self::Status>> {
        Checked::snapshot(seen, plan, clock::now())
    }
    fn is_final(status: &Self::Status) -> bool {
        matches!(status.phase, Phase::Complete | Phase::Failed)
    }
    fn latch(status: &mut Self::Status, act: &Act) -> bool {
        let Act::LatchRemoval(removal) = act else { return false };
        status.removal = Some(removal.clone());
        true
    }
    fn object(seen: &Self::Seen) -> &EtcdSnapshot {
        &seen.snapshot
    }
    fn status(object: &EtcdSnapshot) -> Option<&Self::Status> {
        object.status.as_ref()
    }
    fn put_status(object: &mut EtcdSnapshot, status: Self::Status) {
        object.status = Some(status);
    }
    fn conditions(status: &Self::Status) -> &[Condition] {
        &status.conditions
    }
    fn conditions_mut(status: &mut Self::Status) -> &mut Vec<Condition> {
        &mut status.conditions
    }
}

impl Kind for BackupStores {
    const NAME: &'static str = "EtcdBackupStore";
    type Object = EtcdBackupStore;
    type Status = EtcdBackupStoreStatus;
    type Seen = store::Observed;

    async fn observe(reader: Reader<'_>, name: &str, uid: &str) -> Result<Option<Self::Seen>, Error> {
        observe::backup_store::observe(reader, name, uid).await
    }
    fn plan(seen: &Self::Seen, now: Timestamp) -> Plan<Self::Status> {
        store::plan(seen, now)
    }
    fn check(_: &Self::Seen, plan: Plan<Self::Status>) -> Result<Checked<Self::Status>, Broken<Self::Status>> {
        Checked::starts_jobs(plan)
    }
    fn object(seen: &Self::Seen) -> &EtcdBackupStore {
        &seen.store
    }
    fn status(object: &EtcdBackupStore) -> Option<&Self::Status> {
        object.status.as_ref()
    }
    fn put_status(object: &mut EtcdBackupStore, status: Self::Status) {
        object.status = Some(status);
    }
    fn conditions(status: &Self::Status) -> &[Condition] {
        &status.conditions
    }
    fn conditions_mut(status: &mut Self::Status) -> &mut Vec<Condition> {
        &mut status.conditions
    }
}

impl Kind for Schedules {
    const NAME: &'static str = "EtcdSnapshotSchedule";
    type Object = EtcdSnapshotSchedule;
    type Status = EtcdSnapshotScheduleStatus;
    type Seen = schedule::Observed;

    async fn observe(reader: Reader<'_>, name: &str, uid: &str) -> Result<Option<Self::Seen>, Error> {
        observe::schedule::observe(reader, name, uid).await
    }
    fn plan(seen: &Self::Seen, now: Timestamp) -> Plan<Self::Status> {
        schedule::plan(seen, now)
    }
    fn check(seen: &Self::Seen, plan: Plan<Self::Status>) -> Result<Checked<Self::Status>, Broken<Self::Status>> {
        Checked::schedule(seen, plan)
    }
    fn latch(status: &mut Self::Status, act: &Act) -> bool {
        let Act::LatchPrune(run) = act else { return false };
        status.prune_run = Some((**run).clone());
        true
    }
    fn object(seen: &Self::Seen) -> &EtcdSnapshotSchedule {
        &seen.schedule
    }
    fn status(object: &EtcdSnapshotSchedule) -> Option<&Self::Status> {
        object.status.as_ref()
    }
    fn put_status(object: &mut EtcdSnapshotSchedule, status: Self::Status) {
        object.status = Some(status);
    }
    fn conditions(status: &Self::Status) -> &[Condition] {
        &status.conditions
    }
    fn conditions_mut(status: &mut Self::Status) -> &mut Vec<Condition> {
        &mut status.conditions
    }
}

impl Kind for Users {
    const NAME: &'static str = "EtcdUser";
    type Object = EtcdUser;
    type Status = EtcdUserStatus;
    type Seen = user::Observed;

    async fn observe(reader: Reader<'_>, name: &str, uid: &str) -> Result<Option<Self::Seen>, Error> {
        observe::user::observe(reader, name, uid).await
    }
    fn plan(seen: &Self::Seen, now: Timestamp) -> Plan<Self::Status> {
        user::plan(seen, now)
    }
    fn check(seen: &Self::Seen, plan: Plan<Self::Status>) -> Result<Checked<Self::Status>, Broken<Self::Status>> {
        Checked::user(seen, plan)
    }
    fn server(ctx: &Context, seen: &Self::Seen, _act: &Act) -> Option<Address> {
        observe::user::server_of(ctx, seen)
    }
    fn object(seen: &Self::Seen) -> &EtcdUser {
        &seen.user
    }
    fn status(object: &EtcdUser) -> Option<&Self::Status> {
        object.status.as_ref()
    }
    fn put_status(object: &mut EtcdUser, status: Self::Status) {
        object.status = Some(status);
    }
    fn conditions(status: &Self::Status) -> &[Condition] {
        &status.conditions
    }
    fn conditions_mut(status: &mut Self::Status) -> &mut Vec<Condition> {
        &mut status.conditions
    }
}
