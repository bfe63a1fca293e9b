//! Arguments of `agent restore`.
//!
//! Decides nothing; the flags are declared in `restore.rs`.

use super::super::{DEFAULT_REVISION_BUMP, Engine, RestoreRequest};
use super::Argv;

impl RestoreRequest {
    /// Returns the arguments after `agent restore`.
    pub fn to_args(&self) -> Vec<String> {
        let Self {
            store,
            key,
            at_revision,
            at_time,
            allow_auth_changed,
            expect_sha256,
            expect_store_id,
            age_identity_dirs,
            allow_unverified,
            revision_bump,
            volume,
            etcdutl,
            engine,
            identity,
            restore_uid,
            initial_cluster,
            annotations,
            refuse_auth,
            quota_backend_bytes,
            progress_port,
            json,
            deadline_seconds,
            stall_seconds,
        } = self;
        let argv = Argv::default()
            .and(store.to_args())
            .option("expect-store-id", expect_store_id.as_ref())
            .flag("key", key)
            .option("at-revision", at_revision.map(|revision| revision.to_string()).as_ref())
            .option("at-time", at_time.map(|time| time.to_string()).as_ref())
            .switch("allow-auth-changed", *allow_auth_changed)
            .option("expect-sha256", expect_sha256.as_ref());
        let argv = age_identity_dirs.iter().fold(argv, |argv, folder| argv.path("age-identity-dir", folder));
        let bump = (*revision_bump != DEFAULT_REVISION_BUMP).then(|| revision_bump.to_string());
        let engine = (*engine != Engine::default()).then(|| engine.as_str().to_owned());
        argv.switch("allow-unverified", *allow_unverified)
            .option("revision-bump", bump.as_ref())
            .path("volume", volume)
            .path("etcdutl", etcdutl)
            .option("engine", engine.as_ref())
            .and(identity.to_args())
            .flag("restore-uid", restore_uid)
            .flag("initial-cluster", initial_cluster)
            .option_path("annotations", annotations.as_deref())
            .switch("refuse-auth", *refuse_auth)
            .option("quota-backend-bytes", quota_backend_bytes.map(|bytes| bytes.to_string()).as_ref())
            .option("progress-port", progress_port.map(|port| port.to_string()).as_ref())
            .switch("json", *json)
            .option("deadline-seconds", deadline_seconds.map(|seconds| seconds.to_string()).as_ref())
            .flag("stall-seconds", stall_seconds)
            .0
    }
}
