//! The report of an undelete for a person: a title and a text for each line.
//!
//! This file decides words and order. The agent and the plugin align them and name sizes, each in its own way.

use super::{Applied, KeyCount, Leases, UndeleteReport, UndeleteRequest};

/// Returns the lines. `size`: formats bytes.
pub(super) fn rows(
    report: &UndeleteReport,
    request: &UndeleteRequest,
    size: &dyn Fn(u64) -> String,
) -> Vec<(&'static str, String)> {
    let count = |found: &KeyCount| count(found, size);
    let UndeleteReport { cluster_id, compared_at, uri, revision, proof, point, live, .. } = report;
    let proof = proof.map(|proof| format!(", {proof:?}")).unwrap_or_default();
    let mut rows = vec![
        ("etcd", format!("cluster {cluster_id}, revision {compared_at}: {}", count(live))),
        ("point", format!("{uri}, revision {revision}{proof}: {}", count(point))),
    ];
    for (title, found, names) in [
        ("missing", &report.missing, &report.missing_keys),
        ("changed", &report.changed, &report.changed_keys),
        ("added", &report.added, &report.added_keys),
    ] {
        rows.push((title, count(found)));
        list(&mut rows, names, found.keys);
    }
    if report.with_lease.keys > 0 && request.leases == Leases::Skip {
        let found = count(&report.with_lease);
        rows.push((
            "leases",
            format!("{found} of these had a lease, and stay out. --leases keep or --leases drop decides otherwise"),
        ));
    }
    match &report.applied {
        Some(applied) => rows.extend(applied_rows(applied, &count)),
        None if report.missing.keys + report.changed.keys > 0 => {
            rows.push((
                "next",
                "--apply puts the missing keys back, --apply --changed the changed ones too".to_owned(),
            ));
        }
        None => {}
    }
    if request.is_of_kubernetes() {
        rows.push((
            "note",
            "these keys are objects of a Kubernetes: its controllers act on each object that goes back, as on a new one".to_owned(),
        ));
    }
    rows
}

fn applied_rows(applied: &Applied, count: &dyn Fn(&KeyCount) -> String) -> Vec<(&'static str, String)> {
    let Applied { put_back, millis, outrun, outrun_keys, leased: _, lease_ended, too_large, too_large_keys } = applied;
    let rate = put_back.keys.saturating_mul(1_000) / (*millis).max(1);
    let mut rows = vec![("put back", format!("{}, {rate} keys a second", count(put_back)))];
    if outrun.keys > 0 {
        rows.push((
            "OUTRUN",
            format!("{}: another client wrote them after the comparison, and its write stays", count(outrun)),
        ));
        list(&mut rows, outrun_keys, outrun.keys);
    }
    if lease_ended.keys > 0 {
        rows.push((
            "LEFT OUT",
            format!("{}: their lease has ended. --leases drop puts them back without it", count(lease_ended)),
        ));
    }
    if too_large.keys > 0 {
        rows.push(("TOO LARGE", format!("{}: raise etcd's --max-request-bytes, and run again", count(too_large))));
        list(&mut rows, too_large_keys, too_large.keys);
    }
    rows
}

fn count(KeyCount { keys, bytes }: &KeyCount, size: &dyn Fn(u64) -> String) -> String {
    match keys {
        0 => "no keys".to_owned(),
        1 => format!("1 key, {}", size(*bytes)),
        _ => format!("{keys} keys, {}", size(*bytes)),
    }
}

fn list(rows: &mut Vec<(&'static str, String)>, names: &[String], keys: u64) {
    rows.extend(names.iter().map(|name| ("", name.clone())));
    let more = keys.saturating_sub(names.len() as u64);
    if more > 0 {
        rows.push(("", format!("and {more} more: JSON lists all")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_and_a_run_are_printed() {
        let mut report = UndeleteReport {
            cluster_id: "cdf8".to_owned(),
            compared_at: 90,
            uri: "s3://b/k/snapshot.db.zst".to_owned(),
            revision: 70,
            proof: Some(crate::PointProof::Chained),
            point: KeyCount { keys: 3, bytes: 30 },
            live: KeyCount { keys: 1, bytes: 10 },
            missing: KeyCount { keys: 2, bytes: 20 },
            with_lease: KeyCount { keys: 1, bytes: 10 },
            missing_keys: vec!["/registry/a".to_owned()],
            ..UndeleteReport::default()
        };
        let prefix = Some("/registry/".to_owned());
        let request = UndeleteRequest { prefix, ..UndeleteRequest::default() };
        let text = |report: &UndeleteReport, request: &UndeleteRequest| {
            let rows = rows(report, request, &|bytes| format!("{bytes} B"));
            rows.iter().fold(String::new(), |all, (title, text)| format!("{all}{title:<9} {text}\n"))
        };
        assert_eq!(
            text(&report, &request),
            "etcd      cluster cdf8, revision 90: 1 key, 10 B\n\
             point     s3://b/k/snapshot.db.zst, revision 70, Chained: 3 keys, 30 B\n\
             missing   2 keys, 20 B\n          /registry/a\n          and 1 more: JSON lists all\n\
             changed   no keys\nadded     no keys\n\
             leases    1 key, 10 B of these had a lease, and stay out. --leases keep or --leases drop decides otherwise\n\
             next      --apply puts the missing keys back, --apply --changed the changed ones too\n\
             note      these keys are objects of a Kubernetes: its controllers act on each object that goes back, as on a new one\n"
        );
        let outrun = KeyCount { keys: 1, bytes: 10 };
        report.applied = Some(Applied {
            put_back: KeyCount { keys: 1, bytes: 10 },
            millis: 100,
            outrun,
            outrun_keys: vec!["/a\\x00".to_owned()],
            lease_ended: outrun,
            too_large: outrun,
            ..Applied::default()
        });
        let request = UndeleteRequest { prefix: Some("/a".to_owned()), leases: Leases::Keep, ..request };
        let text = text(&report, &request);
        assert!(text.contains("put back  1 key, 10 B, 10 keys a second\n"), "{text}");
        assert!(text.contains("OUTRUN    1 key") && text.contains("/a\\x00"), "{text}");
        assert!(text.contains("LEFT OUT") && text.contains("TOO LARGE") && !text.contains("next"), "{text}");
        assert!(!text.contains("Kubernetes") && !text.contains("stay out."), "{text}");
    }
}
