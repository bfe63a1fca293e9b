//! `restore in-place CLUSTER`: an existing cluster goes back to a snapshot or to a point in time, under its names and certificates.
//!
//! Decides the `EtcdRestore`: its name, timeline and safety snapshot, and whether another return comes first. `plan.rs` decides the
//! figures of `--plan`. The operator decides the steps of the return, and reports them in the object's status.

use clap::Args;
use holdfast_api::condition::{self, Type};
use holdfast_api::name::{self, LocalRef};
use holdfast_api::snapshot::{EtcdSnapshot, SnapshotTemplate};
use holdfast_api::store::Destination;
use holdfast_api::timeline::{FIRST, PhaseStart, ReturnPhase};
use holdfast_api::{EtcdCluster, EtcdRestore, EtcdRestoreSpec};
use holdfast_io::clock;
use holdfast_io::table::align_columns;
use holdfast_kube::requests;
use kube::ResourceExt as _;
use kube::api::{ObjectMeta, PostParams};

use super::plan::{InPlace, LastReturn, Plan};
use super::{Source, choose, data, is_of_present_etcd, present_etcd, schedules, snapshots, text, yaml};
use crate::access::{Access, MANAGER, Only, Session, refused};
use crate::end::{DONE, print, wrong_use};
use crate::progress::Live;
use crate::screen::Output;
use crate::time::{grouped, parse};
use crate::wait::{Look, Wait};
use holdfast_manifests::names::object;

/// Flags of `restore in-place`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct InPlaceFlags {
    /// Source.
    #[command(flatten)]
    pub source: Source,
    /// `EtcdBackupStore` of the safety snapshot: the last one of the present data, saved before members are set aside. Its form is that
    /// of the snapshot to restore. Default: the store of the snapshot to restore.
    #[arg(long, value_name = "NAME", value_parser = object)]
    pub safety_store: Option<String>,
    /// Save no safety snapshot, for this reason, which stays in the status. The outage is shorter by the save.
    #[arg(long, value_name = "REASON", conflicts_with = "safety_store")]
    pub skip_safety_snapshot: Option<String>,
    /// Print what comes back and what is lost, and the YAML of the `EtcdRestore`. Changes nothing.
    #[arg(long, conflicts_with_all = ["dry_run", "wait"])]
    pub plan: bool,
    /// Let the API server check the `EtcdRestore`, and create nothing.
    #[arg(long, conflicts_with = "wait")]
    pub dry_run: bool,
    /// Wait.
    #[command(flatten)]
    pub wait: Wait,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
    /// Output of --plan.
    #[command(flatten)]
    pub output: Output,
}

/// Creates the `EtcdRestore`, or prints the plan.
pub async fn run(flags: InPlaceFlags) -> anyhow::Result<u8> {
    if flags.output.output.is_some() && !flags.plan {
        return Err(wrong_use("-o is the form of the plan: add --plan"));
    }
    check_named(&flags).map_err(wrong_use)?;
    let session = flags.access.open().await?;
    let cluster = session.named::<EtcdCluster>(&flags.source.cluster).await?;
    let restores = session.list::<EtcdRestore>(Only::default()).await?;
    if let Some(other) = find_other(&cluster, &restores) {
        anyhow::bail!(other);
    }
    let snapshots = snapshots(&session, &flags.source).await?;
    let snapshot = choose(&snapshots, &flags.source).map_err(wrong_use)?;
    let wanted = wanted(&cluster, &restores, snapshot, &flags).map_err(wrong_use)?;
    if !flags.plan {
        return create(&session, &flags, &cluster, &wanted).await;
    }
    let point = flags.source.at.point();
    let schedules = schedules(&session, &flags.source).await?;
    let plan = plan(&wanted, &restores, (snapshot, &snapshots), clock::now());
    let plan = if is_of_present_etcd(present_etcd(&cluster).as_deref(), snapshot) {
        plan.with_log(snapshot, &snapshots, (&schedules, point.as_ref()), cluster.metadata.uid.as_deref())
    } else {
        plan
    };
    print(&match flags.output.encoded(&plan)? {
        Some(text) => text,
        None => text(&plan, &yaml("EtcdRestore", &wanted.metadata, &wanted.spec)?, flags.output.screen())?,
    })?;
    Ok(DONE)
}

/// Refuses a return to data that the command does not name: the newest snapshot may be the safety snapshot of an earlier attempt, which
/// holds what the user wants to leave.
fn check_named(flags: &InPlaceFlags) -> Result<(), String> {
    let Source { cluster, snapshot, at, .. } = &flags.source;
    if flags.plan || snapshot.is_some() || at.point().is_some() {
        return Ok(());
    }
    Err(format!(
        "name the data to return to: --snapshot NAME (kubectl holdfast snapshot list {cluster}), --at-time or --at-revision; --plan \
         shows what comes back"
    ))
}

/// Returns the EtcdRestores of a cluster.
fn of_cluster<'a>(restores: &'a [EtcdRestore], cluster: &str) -> Vec<&'a EtcdRestore> {
    restores.iter().filter(|restore| restore.spec.cluster_ref.name == cluster).collect()
}

/// Returns the name of the EtcdRestore that makes this timeline of a cluster.
pub(crate) fn name_of(cluster: &str, timeline: u32) -> String {
    format!("{cluster}-timeline-{timeline}")
}

/// Finds an EtcdRestore that makes this timeline of a cluster, and has not ended.
pub(crate) fn find_open<'a>(restores: &'a [EtcdRestore], cluster: &str, timeline: u32) -> Option<&'a EtcdRestore> {
    let due = of_cluster(restores, cluster).into_iter().filter(|it| it.spec.timeline == timeline);
    due.into_iter().find(|it| !phase(it).is_final())
}

/// Returns the present timeline of a cluster.
pub(crate) fn timeline(cluster: &EtcdCluster) -> u32 {
    cluster.status.as_ref().and_then(|status| status.timeline).unwrap_or(FIRST)
}

fn phase(restore: &EtcdRestore) -> ReturnPhase {
    restore.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

/// Returns a command to paste about an EtcdRestore.
fn kubectl(verb: &str, restore: &str, namespace: Option<String>) -> String {
    let namespace = namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    format!("kubectl {verb} etcdrestore {restore}{namespace}")
}

/// Returns the sentence about a return that is under way or comes first, with the command that follows it.
fn find_other(cluster: &EtcdCluster, restores: &[EtcdRestore]) -> Option<String> {
    let named = cluster.name_any();
    let latched = cluster.status.as_ref().and_then(|status| status.latches.returning.as_ref());
    let under_way = latched.filter(|latched| !latched.phase().is_final()).map(|latched| {
        let since = latched.since().map(|since| format!(" since {since}")).unwrap_or_default();
        (latched.name.clone(), latched.phase(), since)
    });
    let next = timeline(cluster) + 1;
    let comes_first = || find_open(restores, &named, next).map(|it| (it.name_any(), phase(it), String::new()));
    let (name, phase, since) = under_way.or_else(comes_first)?;
    Some(format!(
        "EtcdCluster {named} has EtcdRestore {name} under way: {phase:?}{since}. Wait for its end: {}",
        kubectl("get", &name, cluster.namespace()) + " -w"
    ))
}

/// Makes the `EtcdRestore` of the next timeline.
fn wanted(
    cluster: &EtcdCluster,
    restores: &[EtcdRestore],
    snapshot: &EtcdSnapshot,
    flags: &InPlaceFlags,
) -> Result<EtcdRestore, String> {
    let named = cluster.name_any();
    if cluster.spec.storage.in_memory() {
        return Err(format!(
            "EtcdCluster {named} has spec.storage.medium Memory, and only a cluster on disk goes back in place: restore the \
             snapshot into a new cluster with kubectl holdfast restore create {named}"
        ));
    }
    let next = timeline(cluster) + 1;
    let name = name_of(&named, next);
    if let Some(other) = restores.iter().find(|restore| restore.name_any() == name) {
        let ready = other.status.as_ref().and_then(|status| condition::find(&status.conditions, Type::Ready));
        let why = ready.map(|ready| format!(" ({})", ready.message)).unwrap_or_default();
        return Err(format!(
            "EtcdRestore {name} exists, and its phase stays {:?}{why}. Correct the cause, and delete the object: {}",
            phase(other),
            kubectl("delete", &name, cluster.namespace())
        ));
    }
    let spec = EtcdRestoreSpec {
        cluster_ref: LocalRef { name: named },
        timeline: next,
        from: Some(data(snapshot, &flags.source)?),
        safety_snapshot: safety_snapshot(snapshot, flags)?,
        skip_safety_snapshot: flags.skip_safety_snapshot.clone(),
        ..EtcdRestoreSpec::default()
    };
    let namespace = cluster.namespace();
    Ok(EtcdRestore {
        metadata: ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() },
        spec,
        status: None,
    })
}

/// Makes the template of the safety snapshot: that of the snapshot to restore, with its encryption and the settings of its agent.
fn safety_snapshot(snapshot: &EtcdSnapshot, flags: &InPlaceFlags) -> Result<Option<SnapshotTemplate>, String> {
    if flags.skip_safety_snapshot.is_some() {
        return Ok(None);
    }
    let mut template = snapshot.spec.template.clone();
    if let Some(name) = flags.safety_store.clone() {
        template.destination = Destination { store_ref: Some(LocalRef { name }), ..Destination::default() };
    }
    if template.destination.store_ref.is_none() {
        return Err(format!(
            "EtcdSnapshot {} names no EtcdBackupStore to which the safety snapshot of the present data could go: name one with \
             --safety-store, or with --skip-safety-snapshot the reason for which none is needed",
            snapshot.name_any()
        ));
    }
    Ok(Some(template))
}

fn plan(
    wanted: &EtcdRestore,
    restores: &[EtcdRestore],
    (snapshot, snapshots): (&EtcdSnapshot, &[EtcdSnapshot]),
    now: jiff::Timestamp,
) -> Plan {
    let spec = &wanted.spec;
    let named = &spec.cluster_ref.name;
    let store = spec.safety_snapshot.as_ref().and_then(|template| template.destination.store_ref.clone());
    let in_place = InPlace {
        restore: wanted.name_any(),
        timeline: spec.timeline,
        safety_store: store.map(|store| store.name),
        skip_safety_snapshot: spec.skip_safety_snapshot.clone(),
        keep_earlier_seconds: spec.keep_earlier(),
        last: LastReturn::find(&of_cluster(restores, named)),
    };
    let point = spec.from.as_ref().and_then(|from| from.at.as_ref());
    let plan = Plan::for_restore(snapshot, snapshots, &[], (named, point), now);
    Plan { in_place: Some(in_place), ..plan }
}

async fn create(
    session: &Session,
    flags: &InPlaceFlags,
    cluster: &EtcdCluster,
    wanted: &EtcdRestore,
) -> anyhow::Result<u8> {
    let name = wanted.name_any();
    let params = PostParams { dry_run: flags.dry_run, field_manager: Some(MANAGER.to_owned()) };
    let made = requests::create(&session.client, &session.namespace, &params, wanted).await;
    let made: EtcdRestore = made.map_err(|error| refused(&error, &format!("creating EtcdRestore {name}")))?;
    let note = if flags.dry_run { " (dry run)" } else { "" };
    print(&format!("etcdrestore.holdfast.dev/{name} created{note}\n"))?;
    let data = wanted.spec.from.as_ref();
    let from = data.and_then(|data| data.snapshot_ref.as_ref()).map(|snapshot| snapshot.name.as_str());
    let from = from.unwrap_or_default();
    let point =
        data.and_then(|data| data.at.as_ref()).map(|point| format!(" and the log up to {point}")).unwrap_or_default();
    print(&format!("{} goes back to EtcdSnapshot {from}{point}\n", cluster.name_any()))?;
    let mut last = None;
    let check = async || {
        let found = session.get::<EtcdRestore>(&name).await?;
        let deleted = || Look::Failed(format!("EtcdRestore {name} was deleted"));
        let state = found.as_ref().map_or_else(deleted, state);
        last = found;
        Ok(state)
    };
    let safety = name::safety_snapshot(&cluster.name_any(), &made.uid().unwrap_or_default());
    let live = || Live::of_return(session, &cluster.uid().unwrap_or_default(), &safety);
    let code = flags.wait.until_with(live, check).await?;
    if let Some(ended) = last.filter(|last| phase(last) == ReturnPhase::Complete) {
        print(&summary(&ended))?;
    }
    Ok(code)
}

/// Whether the return has ended.
fn state(restore: &EtcdRestore) -> Look {
    let status = restore.status.clone().unwrap_or_default();
    let words = match condition::find(&status.conditions, Type::Ready) {
        Some(ready) => format!("{:?} {}: {}", status.phase, ready.reason, ready.message),
        None => "no operator has seen the EtcdRestore yet".to_owned(),
    };
    match status.phase {
        ReturnPhase::Complete => Look::Done,
        ReturnPhase::Failed => Look::Failed(format!(
            "{words}. Correct the cause (runbooks/ReturnFailed.md), and delete the EtcdRestore before you repeat the command: {}",
            kubectl("delete", &restore.name_any(), restore.namespace())
        )),
        ReturnPhase::Skipped => Look::Failed(words),
        _ => Look::Waits(words),
    }
}

/// Returns the result of a complete return: revisions, the parts of its time, and the places of the earlier data.
fn summary(restore: &EtcdRestore) -> String {
    let status = restore.status.clone().unwrap_or_default();
    let seconds = |pair: &[PhaseStart]| {
        let [from, to] = pair else { return None };
        let seconds = parse(&to.at)?.duration_since(parse(&from.at)?).as_secs_f64();
        Some(format!("{:?} {seconds:.1} s", from.phase))
    };
    let phases: Vec<String> = status.phases.windows(2).filter_map(seconds).collect();
    let revisions = status.restored_revision.zip(status.first_revision);
    let kept = status.earlier_kept_until.map(|until| format!("{} until {until}", status.earlier_members.join(", ")));
    let rows = [
        ("timeline", Some(restore.spec.timeline.to_string())),
        ("data", revisions.map(|(data, first)| format!("revision {} as {}", grouped(data), grouped(first)))),
        ("phases", Some(phases.join(", "))),
        ("outage", status.outage_seconds.map(|outage| format!("{outage} s without a member for clients"))),
        ("safety", status.safety_snapshot.map(|snapshot| format!("EtcdSnapshot {snapshot}"))),
        ("set aside", kept),
    ];
    let rows = rows.into_iter().filter_map(|(title, words)| Some([title.to_owned(), words?]));
    align_columns(&rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
