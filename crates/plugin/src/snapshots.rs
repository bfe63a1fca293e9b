//! `snapshot list|hold|release`: the EtcdSnapshots, and whether retention may remove one.
//!
//! Decides the columns. `crates/plugin/src/snapshot.rs` is `snapshot create`.

use clap::{Args, Subcommand};
use holdfast_api::EtcdSnapshot;
use holdfast_io::clock;
use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::json;

use super::access::{Access, Only};
use super::end::{DONE, print};
use super::screen::{Output, Screen, Table, Tone, cell};
use super::status::facts::Snapshot;
use super::status::observe::snapshot;
use super::time::{between, grouped, size};
use holdfast_manifests::names::object;

/// Verbs of `snapshot` beside `create`.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum SnapshotVerb {
    /// List the `EtcdSnapshot`s of a namespace or of one cluster, newest first.
    List(Box<ListFlags>),
    /// Keep the stored snapshot, whatever the retention of its schedule says.
    Hold(Box<HoldFlags>),
    /// Give a held snapshot back to the retention of its schedule.
    Release(Box<HoldFlags>),
}

/// Flags of `snapshot list`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ListFlags {
    /// `EtcdCluster`. Default: every cluster of the namespace.
    #[arg(value_parser = object)]
    pub cluster: Option<String>,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
    /// Output.
    #[command(flatten)]
    pub output: Output,
}

/// Flags of `snapshot hold` and `snapshot release`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct HoldFlags {
    /// `EtcdSnapshot`.
    #[arg(value_parser = object)]
    pub snapshot: String,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    /// Name of the EtcdCluster; absent for an etcd that Holdfast does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    /// Whether the snapshot is held.
    held: bool,
    #[serde(flatten)]
    snapshot: Snapshot,
}

/// Carries out a verb.
pub async fn run(verb: SnapshotVerb) -> anyhow::Result<u8> {
    match verb {
        SnapshotVerb::List(flags) => list(*flags).await,
        SnapshotVerb::Hold(flags) => hold(*flags, true).await,
        SnapshotVerb::Release(flags) => hold(*flags, false).await,
    }
}

async fn list(flags: ListFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let fields = flags.cluster.as_ref().map(|cluster| format!("spec.clusterRef.name={cluster}"));
    let objects = session.list::<EtcdSnapshot>(Only { fields: fields.as_deref(), ..Only::default() }).await?;
    let mut rows: Vec<Row> = objects.iter().map(row).collect();
    rows.sort_by(|a, b| (b.snapshot.at, &a.snapshot.name).cmp(&(a.snapshot.at, &b.snapshot.name)));
    let text = flags.output.encoded(&rows)?.unwrap_or_else(|| {
        if rows.is_empty() { "There is no EtcdSnapshot.\n".to_owned() } else { render(&rows, flags.output.screen()) }
    });
    print(&text)?;
    Ok(DONE)
}

fn row(object: &EtcdSnapshot) -> Row {
    Row {
        cluster: object.spec.cluster_ref.as_ref().map(|cluster| cluster.name.clone()),
        held: object.spec.hold,
        snapshot: snapshot(object),
    }
}

fn render(rows: &[Row], screen: Screen) -> String {
    let now = clock::now();
    let columns = [
        ("SNAPSHOT", 16),
        ("CLUSTER", 10),
        ("PHASE", 0),
        ("AGE", 0),
        ("VERIFIED", 0),
        ("REVISION", 0),
        ("SIZE", 0),
        ("STORE", 8),
        ("HELD", 0),
    ];
    let mut table = Table::new(&columns);
    for Row { cluster, held, snapshot } in rows {
        let tone = match snapshot.phase.as_str() {
            "Complete" => Tone::Good,
            "Failed" => Tone::Bad,
            _ => Tone::Moving,
        };
        table.push(vec![
            cell(Tone::Strong, &snapshot.name),
            cluster.as_deref().unwrap_or_default().into(),
            cell(tone, &snapshot.phase),
            snapshot.at.map(|at| between(at, now)).unwrap_or_default().into(),
            snapshot.level.as_deref().unwrap_or_default().into(),
            snapshot.revision.map(grouped).unwrap_or_default().into(),
            snapshot.db_bytes.map(size).unwrap_or_default().into(),
            snapshot.store.as_deref().unwrap_or_default().into(),
            cell(Tone::Warning, if *held { "held" } else { "" }),
        ]);
    }
    table.lines(screen, 0)
}

async fn hold(flags: HoldFlags, hold: bool) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let changed = session.merge::<EtcdSnapshot>(&flags.snapshot, json!({"spec": {"hold": hold}})).await?;
    let word = if hold { "held" } else { "released" };
    print(&format!("etcdsnapshot.holdfast.dev/{} {word}\n", changed.name_any()))?;
    Ok(DONE)
}
