//! Arguments of `agent compact`.
//!
//! Decides nothing; the flags are declared in `compact.rs`.

use super::super::CompactRequest;
use super::Argv;

impl CompactRequest {
    /// Returns the arguments after `agent compact`.
    pub fn to_args(&self) -> Vec<String> {
        let Self { store, expect_store_id, namespace, cluster, lineage, owner_name, owner_uid, schedule_name, .. } =
            self;
        let Self { schedule_uid, pod_uid, at_revision, scratch, age_identity_dirs, age_recipients, .. } = self;
        let Self { quota_backend_bytes, compression, verify, json, deadline_seconds, .. } = self;
        let argv = Argv::default()
            .and(store.to_args())
            .option("expect-store-id", expect_store_id.as_ref())
            .flag("namespace", namespace)
            .flag("cluster", cluster)
            .option("lineage", lineage.as_ref())
            .option("owner-name", owner_name.as_ref())
            .option("owner-uid", owner_uid.as_ref())
            .option("schedule-name", schedule_name.as_ref())
            .option("schedule-uid", schedule_uid.as_ref())
            .option("pod-uid", pod_uid.as_ref())
            .option("at-revision", at_revision.map(|revision| revision.to_string()).as_ref())
            .option("quota-backend-bytes", quota_backend_bytes.map(|bytes| bytes.to_string()).as_ref())
            .path("scratch", scratch);
        let argv = age_identity_dirs.iter().fold(argv, |argv, folder| argv.path("age-identity-dir", folder));
        age_recipients
            .iter()
            .fold(argv, |argv, recipient| argv.flag("age-recipient", recipient))
            .flag("compression", compression.as_str())
            .flag("verify", verify.as_str())
            .switch("json", *json)
            .flag("deadline-seconds", deadline_seconds)
            .0
    }
}

#[cfg(test)]
mod tests {
    use proptest::option::of as option;
    use proptest::prelude::*;

    use super::*;
    use crate::args::tests::parsed;
    use crate::{Compression, StoreFlags, Verify};

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just("--json".to_owned()), Just("--".to_owned()), Just("-v".to_owned()), "\\PC{1,30}"]
    }

    proptest! {
        #[test]
        fn a_compact_request_survives_the_command_line(
            (url, namespace, cluster, scratch) in (text(), text(), text(), text()),
            (expect_store_id, lineage, pod_uid) in (option(text()), option(text()), option(text())),
            (owner_name, owner_uid, schedule) in (option(text()), option(text()), option((text(), text()))),
            identities in proptest::collection::vec(text(), 0..3),
            age_recipients in proptest::collection::vec(text(), 0..3),
            compression in prop_oneof![Just(Compression::Zstd), Just(Compression::Gzip), Just(Compression::None)],
            verify in prop_oneof![Just(Verify::Stream), Just(Verify::Stored)],
            (at_revision, quota_backend_bytes) in (option(1..i64::MAX), any::<Option<u64>>()), json: bool, deadline_seconds: u32,
        ) {
            let (schedule_name, schedule_uid) = schedule.unzip();
            let request = CompactRequest {
                store: StoreFlags { url, ..StoreFlags::default() },
                expect_store_id, namespace, cluster, lineage, owner_name, owner_uid, schedule_name, schedule_uid, pod_uid,
                at_revision, quota_backend_bytes, scratch: scratch.into(), age_identity_dirs: identities.into_iter().map(Into::into).collect(),
                age_recipients, compression, verify, json, deadline_seconds,
            };
            prop_assert_eq!(parsed::<CompactRequest>(request.to_args())?, request);
        }
    }
}
