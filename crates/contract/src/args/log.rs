//! Arguments of `agent log`.
//!
//! Decides nothing; the flags are declared in `log.rs`.

use super::super::LogRequest;
use super::Argv;

impl LogRequest {
    /// Returns the arguments after `agent log`.
    pub fn to_args(&self) -> Vec<String> {
        let Self { etcd, store, expect_store_id, namespace, cluster, cluster_uid, expect_cluster_id, .. } = self;
        let Self { from_revision, every_seconds, segment_mib, age_recipients, .. } = self;
        let Self { spool_dir, spool_mib, check_seconds, metrics_port, .. } = self;
        let argv = Argv::default()
            .and(etcd.to_args())
            .and(store.to_args())
            .option("expect-store-id", expect_store_id.as_ref())
            .flag("namespace", namespace)
            .flag("cluster", cluster)
            .option("cluster-uid", cluster_uid.as_ref())
            .option("expect-cluster-id", expect_cluster_id.as_ref())
            .option("from-revision", from_revision.map(|revision| revision.to_string()).as_ref())
            .flag("every-seconds", every_seconds)
            .flag("segment-mib", segment_mib);
        age_recipients
            .iter()
            .fold(argv, |argv, recipient| argv.flag("age-recipient", recipient))
            .path("spool-dir", spool_dir)
            .flag("spool-mib", spool_mib)
            .flag("check-seconds", check_seconds)
            .option("metrics-port", metrics_port.map(|port| port.to_string()).as_ref())
            .0
    }
}

#[cfg(test)]
mod tests {
    use proptest::option::of as option;
    use proptest::prelude::*;

    use super::*;
    use crate::args::tests::parsed;
    use crate::{EtcdFlags, StoreFlags};

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just("--json".to_owned()), Just("--".to_owned()), Just("-v".to_owned()), "[^,]{1,30}"]
    }

    proptest! {
        #[test]
        fn a_log_request_survives_the_command_line(
            (endpoints, url) in (proptest::collection::vec(text(), 1..5), text()),
            (namespace, cluster, cluster_uid) in (text(), text(), option(text())),
            (expect_store_id, expect_cluster_id) in (option(text()), option(text())),
            age_recipients in proptest::collection::vec(text(), 0..3), spool_dir in text(),
            (from_revision, every_seconds, segment_mib) in (option(2..i64::MAX), 1..=300_u32, 1..=64_u64),
            (spool_mib, check_seconds, metrics_port) in (1..u64::MAX, any::<u32>(), any::<Option<u16>>()),
        ) {
            let request = LogRequest {
                etcd: EtcdFlags { endpoints, ..EtcdFlags::default() },
                store: StoreFlags { url, ..StoreFlags::default() },
                expect_store_id, namespace, cluster, cluster_uid, expect_cluster_id, from_revision, every_seconds,
                segment_mib, age_recipients, spool_dir: spool_dir.into(), spool_mib, check_seconds, metrics_port,
            };
            prop_assert_eq!(parsed::<LogRequest>(request.to_args())?, request);
        }
    }
}
