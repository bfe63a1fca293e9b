//! Arguments of `agent verify`.
//!
//! Decides nothing; the flags are declared in `stored.rs`.

use super::super::{SnapshotFlags, VerifyRequest};
use super::Argv;

impl VerifyRequest {
    /// Returns the arguments after `agent verify`, for a snapshot in a store.
    pub fn to_args(&self) -> Vec<String> {
        let Self { snapshot, level, bin_dir, scratch, no_proof, write, json, deadline_seconds, .. } = self;
        let Self { latest, log, namespace, cluster, lineage, expect_store_id, kubernetes, encryption_config, .. } =
            self;
        let SnapshotFlags { file: _, store, key, identities } = snapshot;
        let argv = store.iter().fold(Argv::default(), |argv, store| argv.and(store.to_args()));
        let argv = argv.option("key", key.as_ref());
        let argv = identities.iter().fold(argv, |argv, file| argv.path("identity", file));
        argv.flag("level", level.as_str())
            .switch("latest", *latest)
            .switch("log", *log)
            .option("namespace", namespace.as_ref())
            .option("cluster", cluster.as_ref())
            .option("lineage", lineage.as_ref())
            .option("expect-store-id", expect_store_id.as_ref())
            .option_path("bin-dir", bin_dir.as_deref())
            .option_path("kubernetes", kubernetes.as_deref())
            .option_path("encryption-config", encryption_config.as_deref())
            .path("scratch", scratch)
            .switch("no-proof", *no_proof)
            .switch("write", *write)
            .switch("json", *json)
            .flag("deadline-seconds", deadline_seconds)
            .0
    }
}
