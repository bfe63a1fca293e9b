//! `kubectl get etcd -o wide` fits a terminal: the widest sensible row of each kind, by the columns of its CRD.

use holdfast_api::condition::Reason;
use holdfast_manifests as manifests;
use serde_json::Value;

/// Columns of a terminal on a wide screen.
const SCREEN: usize = 210;
/// kubectl's space between two columns.
const GAP: usize = 3;
/// A sensible name of a cluster, a store or a namespace: `orders-prod`.
const NAME: usize = 11;

/// Characters of the widest sensible value of a column.
fn widest(path: &str) -> usize {
    let client_service = "http://-client..svc:2379".len();
    match path {
        path if path.ends_with(".status") => "Unknown".len(),
        path if path.ends_with(".reason") => Reason::ALL.iter().map(|reason| reason.as_str().len()).max().unwrap(),
        ".spec.replicas" | ".status.readyMembers" | ".status.updatedMembers" => 1,
        ".spec.version" | ".status.version" => "3.6.16".len(),
        ".status.endpoint" => client_service + 2 * NAME,
        ".spec.clusterRef.name" | ".status.store.name" => NAME,
        ".spec.joined.memberID" => 16,
        ".status.claim.name" => "data--x2z4b".len() + NAME,
        ".status.source.member" => "-x2z4b".len() + NAME,
        ".status.phase" => "SettingAside".len(),
        ".spec.timeline" => "999".len(),
        ".status.restoredRevision" => "1000000000".len(),
        ".status.outageSeconds" => "86400".len(),
        ".status.role" => "learner".len(),
        ".status.state" => "NotServing".len(),
        ".status.artifact.revision" => "1000000000".len(),
        ".status.artifact.size" => "100.0 MiB".len(),
        ".status.verification.level" | ".status.lastSuccessful.level" => "Structure".len(),
        ".spec.schedule" => "*/10 0-6 * * mon-fri".len(),
        ".status.log.rpoSeconds" | ".status.drill.lastPassed.rtoSeconds" => "86400".len(),
        ".spec.suspend" => "false".len(),
        ".status.nextTime" => "2026-01-01T12:00:00Z".len(),
        ".status.tls.earliestExpiry" => "2026-01-01T12:00:00Z".len(),
        ".status.keys" => "rw 123456789012345678901… +63".chars().count(),
        ".status.certificateNotAfter" => "2026-01-01T12:00:00Z".len(),
        ".status.type" => "azure".len(),
        ".status.uri" => "s3://orders-prod-backups-eu-central-1/etcd".len(),
        // An age: `3h20m`.
        ".metadata.creationTimestamp"
        | ".status.completedAt"
        | ".status.lastSnapshot.completedAt"
        | ".status.lastSuccessful.takenAt"
        | ".status.probe.at" => 5,
        other => panic!("{other}: say how wide the column is, or leave messages and URIs to `kubectl describe`"),
    }
}

#[test]
fn the_widest_row_of_each_kind_fits_the_screen() {
    for crd in manifests::crds().unwrap() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let kind = text(&crd["spec"]["names"]["singular"]);
        // `kubectl get etcd` writes the kind before the name, `kubectl get etcdc -o wide` does not. The name of a member or of a
        // scheduled snapshot is longer.
        let name = match kind.as_str() {
            "etcdmember" => NAME + "-x2z4b".len(),
            "etcdsnapshot" => NAME + "-20260101120000".len(),
            _ => NAME,
        };
        let (mut row, mut wide) = (vec![kind.len() + ".holdfast.dev/".len() + name], vec![name]);
        for column in crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap() {
            let width = widest(column["jsonPath"].as_str().unwrap()).max(text(&column["name"]).len());
            wide.push(width);
            if column["priority"].as_i64().unwrap_or(0) == 0 {
                row.push(width);
            }
        }
        for row in [row, wide] {
            let width = row.iter().sum::<usize>() + GAP * (row.len() - 1);
            assert!(width <= SCREEN, "{kind}: {width} columns, {row:?}");
        }
    }
}
