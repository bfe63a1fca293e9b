//! The source of a restore, and its point in time.
//!
//! Decides the rules that CEL cannot express, and those that an object of an earlier version may break. Whether a time is in the
//! future is decided in `cluster/restore.rs`, which knows the time.

use holdfast_api::restore::{Restore, RestorePoint};

use super::{Refusal, refuse};

/// Refuses a restore without exactly one source, and a point in time that no log can continue.
pub(super) fn check(restore: &Restore) -> Result<(), Refusal> {
    const ONE_STORE: &str = "needs exactly one of storeRef, s3, azure, gcs and pvc";
    match (&restore.snapshot_ref, &restore.source, &restore.latest) {
        (Some(_), None, None) => {}
        (None, Some(source), None) if source.names_a_store() => {}
        (None, None, Some(latest)) if latest.names_a_store() => {}
        (None, Some(_), None) => return refuse("spec.bootstrap.restore.source", ONE_STORE),
        (None, None, Some(_)) => return refuse("spec.bootstrap.restore.latest", ONE_STORE),
        _ => return refuse("spec.bootstrap.restore", "needs exactly one of snapshotRef, source and latest"),
    }
    let Some(at) = &restore.at else { return Ok(()) };
    check_point("spec.bootstrap.restore.at", at)?;
    if restore.allow_unverified {
        return refuse(
            "spec.bootstrap.restore.allowUnverified",
            "a log continues no unverified snapshot. Remove allowUnverified, or remove at",
        );
    }
    let file = restore.source.as_ref().map(|source| &source.key).filter(|key| is_file(key));
    if let Some(key) = file {
        return refuse(
            "spec.bootstrap.restore.source.key",
            format!("{key} is a file, which no log continues. Name a snapshot's folder or its lineage, or remove at"),
        );
    }
    Ok(())
}

/// Refuses a point that is no revision and no time.
pub(super) fn check_point(field: &'static str, at: &RestorePoint) -> Result<(), Refusal> {
    at.parse().map(drop).or_else(|why| refuse(field, why))
}

/// Whether the key names a file: names of folders have no dot.
fn is_file(key: &str) -> bool {
    key.trim_end_matches('/').rsplit('/').next().is_some_and(|last| last.contains('.'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_point_needs_a_time_or_a_revision_and_a_snapshot_that_a_log_continues() {
        let key = "ns/a/0/20260101T000000Z-00000001-x";
        let source = |key: &str| json!({"source": {"pvc": {"claimName": "backups"}, "key": key}});
        let with = |mut restore: serde_json::Value, at: serde_json::Value| {
            restore["at"] = at;
            restore
        };
        let time = json!({"time": "2026-11-28T12:42:07+02:00"});
        let mut unverified = with(source(key), time.clone());
        unverified["allowUnverified"] = json!(true);
        for (restore, says) in [
            (with(source(key), time.clone()), None),
            (with(source("ns/a/0"), json!({"revision": 1})), None),
            (with(json!({"latest": {"storeRef": {"name": "vault"}}}), time.clone()), None),
            (
                with(json!({"snapshotRef": {"name": "nightly-1"}}), json!({"revision": 1, "allowAuthChanged": true})),
                None,
            ),
            (with(source(key), json!({})), Some("restore.at: needs exactly one")),
            (with(source(key), json!({"revision": 1, "time": "2026-11-28T12:42:07Z"})), Some("needs exactly one")),
            (with(source(key), json!({"revision": 0})), Some("revision 0 is not above 0")),
            (
                with(source(key), json!({"time": "2026-02-30T12:42:07Z"})),
                Some("\"2026-02-30T12:42:07Z\" is not a time"),
            ),
            (unverified, Some("allowUnverified: a log continues no unverified snapshot")),
            (with(source("old/member.db"), time.clone()), Some("old/member.db is a file")),
            (with(source(&format!("{key}/snapshot.db.zst")), time), Some("is a file, which no log continues")),
        ] {
            let parsed: Restore = serde_json::from_value(restore.clone()).unwrap();
            let told = check(&parsed).map_err(|refusal| refusal.to_string());
            match says {
                None => assert_eq!(told, Ok(()), "{restore}"),
                Some(says) => assert!(told.as_ref().is_err_and(|told| told.contains(says)), "{restore}: {told:?}"),
            }
        }
    }
}
