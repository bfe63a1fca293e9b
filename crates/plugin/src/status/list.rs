//! The list of all clusters: one line for each.
//!
//! PURE. Decides the columns.

use holdfast_api::EtcdCluster;
use holdfast_api::condition::{self, Type};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::facts::State;
use super::observe::state;
use super::render::describe_state;
use crate::screen::{Screen, Table, Tone, cell};
use crate::time::{between, parse};

/// One cluster of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Namespace.
    pub namespace: String,
    /// Name of the EtcdCluster.
    pub name: String,
    /// State in one word.
    pub state: State,
    /// Reason of the condition that tells most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Voters with a ready Pod.
    pub serving: i32,
    /// `spec.replicas`.
    pub wanted: i32,
    /// The lowest running version, or that of the spec.
    pub version: String,
    /// Completion of the newest complete snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_backup: Option<Timestamp>,
    /// Whether scheduled backups are fresh; absent while that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_healthy: Option<bool>,
    /// Earliest end of a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates_until: Option<Timestamp>,
}

/// Returns a row for each cluster, by namespace and name.
pub fn rows(clusters: &[EtcdCluster]) -> Vec<Row> {
    let mut rows: Vec<Row> = clusters.iter().map(row).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    rows
}

fn row(cluster: &EtcdCluster) -> Row {
    let status = cluster.status.clone().unwrap_or_default();
    let state = state(cluster, &status);
    let telling = match state {
        State::Degraded | State::Down => Some(Type::Degraded),
        State::AtRisk => Some(Type::AtRisk),
        State::Progressing | State::Forming => Some(Type::Progressing),
        _ => None,
    };
    let find = |kind| condition::find(&status.conditions, kind);
    let reason = telling.and_then(find).or_else(|| telling.and_then(|_| find(Type::Ready)));
    let healthy = find(Type::BackupHealthy).and_then(|it| match it.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    });
    Row {
        namespace: cluster.namespace().unwrap_or_default(),
        name: cluster.name_any(),
        state,
        reason: reason.map(|it| it.reason.clone()),
        serving: status.ready_members,
        wanted: cluster.spec.replicas,
        version: status.version.unwrap_or_else(|| cluster.spec.version.clone()),
        last_backup: status.last_snapshot.as_ref().and_then(|last| parse(&last.completed_at)),
        backup_healthy: healthy,
        certificates_until: status.tls.as_ref().and_then(|tls| parse(&tls.earliest_expiry)),
    }
}

/// Returns the list as text.
pub fn render(rows: &[Row], now: Timestamp, screen: Screen) -> String {
    let columns = [
        ("", 0),
        ("NAMESPACE", 10),
        ("CLUSTER", 12),
        ("STATE", 0),
        ("SERVE", 0),
        ("ETCD", 0),
        ("LAST BACKUP", 0),
        ("CERTS", 0),
        ("REASON", 10),
    ];
    let mut table = Table::new(&columns);
    for row in rows {
        let (sign, word, tone) = describe_state(row.state);
        let backup = match row.last_backup {
            Some(at) => between(at, now),
            None => "none".to_owned(),
        };
        let backup_tone = match (row.last_backup, row.backup_healthy) {
            (None, _) | (_, Some(false)) => Tone::Bad,
            (Some(_), None) => Tone::Warning,
            (Some(_), Some(true)) => Tone::Good,
        };
        table.push(vec![
            cell(tone, sign),
            cell(Tone::Faint, &row.namespace),
            cell(Tone::Strong, &row.name),
            cell(tone, word.to_lowercase()),
            format!("{}/{}", row.serving, row.wanted).into(),
            row.version.as_str().into(),
            cell(backup_tone, backup),
            row.certificates_until.map(|end| between(now, end)).unwrap_or_default().into(),
            row.reason.as_deref().unwrap_or_default().into(),
        ]);
    }
    table.lines(screen, 0)
}
