//! Renders requests as argument vectors, from the operator's values to the agent's command line.
//!
//! Every flag is one element, `--name=value`, so a value that starts with a dash, holds spaces or looks like a flag stays a
//! value: no shell and no second parser is in between. A property test checks that clap parses the rendered flags to the same
//! request. This file does not judge values; their users do.

mod compact;
mod compare;
mod log;
mod removal;
mod restore;
mod verify;

use std::fmt::Display;
use std::path::Path;

use super::{
    AskMembers, DEFAULT_MIN_THROUGHPUT_KIB, EtcdFlags, GateRequest, IdentityFlags, InspectRequest, LatestRequest,
    LockMode, ProbeRequest, RecallRequest, S3Checksum, S3Sse, SaveRequest, StoreFlags,
};

/// Collects `--name=value` elements, so that every value stays a value (I28).
#[derive(Default)]
struct Argv(Vec<String>);

impl Argv {
    fn flag(mut self, name: &str, value: impl Display) -> Self {
        self.0.push(format!("--{name}={value}"));
        self
    }

    fn path(self, name: &str, value: &Path) -> Self {
        self.flag(name, value.display())
    }

    fn option(self, name: &str, value: Option<&String>) -> Self {
        match value {
            Some(value) => self.flag(name, value),
            None => self,
        }
    }

    fn option_path(self, name: &str, value: Option<&Path>) -> Self {
        match value {
            Some(value) => self.path(name, value),
            None => self,
        }
    }

    fn switch(mut self, name: &str, on: bool) -> Self {
        if on {
            self.0.push(format!("--{name}"));
        }
        self
    }

    fn and(mut self, more: Vec<String>) -> Self {
        self.0.extend(more);
        self
    }
}

impl EtcdFlags {
    /// Returns these flags as elements of an argument vector. An endpoint must not hold a comma, which separates endpoints.
    pub fn to_args(&self) -> Vec<String> {
        let Self { endpoints, cacert, cert, key, server_name, user, password_file, tls_dir, auth_dir, http2_window } =
            self;
        endpoints
            .iter()
            .fold(Argv::default(), |argv, endpoint| argv.flag("endpoints", endpoint))
            .option_path("cacert", cacert.as_deref())
            .option_path("cert", cert.as_deref())
            .option_path("key", key.as_deref())
            .option("server-name", server_name.as_ref())
            .option("user", user.as_ref())
            .option_path("password-file", password_file.as_deref())
            .option_path("tls-dir", tls_dir.as_deref())
            .option_path("auth-dir", auth_dir.as_deref())
            .option("http2-window", http2_window.map(|bytes| bytes.to_string()).as_ref())
            .0
    }
}

impl StoreFlags {
    /// Returns these flags as elements of an argument vector.
    pub fn to_args(&self) -> Vec<String> {
        let Self {
            url,
            mount,
            group_access,
            s3_endpoint,
            s3_region,
            s3_force_path_style,
            s3_ca_file,
            s3_sse,
            s3_sse_kms_key_id,
            s3_storage_class,
            s3_tag,
            s3_object_lock,
            s3_object_lock_days,
            s3_checksum,
            azure_account,
            azure_endpoint,
            azure_ca_file,
            gcs_endpoint,
            gcs_ca_file,
            credentials_dir,
        } = self;
        let argv = Argv::default()
            .flag("store", url)
            .option_path("mount", mount.as_deref())
            .switch("group-access", *group_access)
            .option("s3-endpoint", s3_endpoint.as_ref())
            .option("s3-region", s3_region.as_ref())
            .option("s3-force-path-style", s3_force_path_style.map(|path| path.to_string()).as_ref())
            .option_path("s3-ca-file", s3_ca_file.as_deref())
            .option("s3-sse", s3_sse.map(S3Sse::as_str).map(str::to_owned).as_ref())
            .option("s3-sse-kms-key-id", s3_sse_kms_key_id.as_ref())
            .option("s3-storage-class", s3_storage_class.as_ref());
        s3_tag
            .iter()
            .fold(argv, |argv, tag| argv.flag("s3-tag", tag))
            .option("s3-object-lock", s3_object_lock.map(LockMode::as_str).map(str::to_owned).as_ref())
            .option("s3-object-lock-days", s3_object_lock_days.map(|days| days.to_string()).as_ref())
            .option("s3-checksum", s3_checksum.map(S3Checksum::as_str).map(str::to_owned).as_ref())
            .option("azure-account", azure_account.as_ref())
            .option("azure-endpoint", azure_endpoint.as_ref())
            .option_path("azure-ca-file", azure_ca_file.as_deref())
            .option("gcs-endpoint", gcs_endpoint.as_ref())
            .option_path("gcs-ca-file", gcs_ca_file.as_deref())
            .option_path("credentials-dir", credentials_dir.as_deref())
            .0
    }
}

impl IdentityFlags {
    /// Returns these flags as elements of an argument vector.
    pub fn to_args(&self) -> Vec<String> {
        let Self { cluster_token, member_name, member_uid, claim_uid } = self;
        Argv::default()
            .flag("cluster-token", cluster_token)
            .flag("member-name", member_name)
            .flag("member-uid", member_uid)
            .flag("claim-uid", claim_uid)
            .0
    }
}

impl SaveRequest {
    /// Returns the arguments after `agent save`.
    pub fn to_args(&self) -> Vec<String> {
        let Self {
            etcd,
            store,
            expect_store_id,
            namespace,
            cluster,
            cluster_uid,
            cluster_spec,
            restored_from,
            expect_cluster_id,
            owner_name,
            owner_uid,
            schedule_name,
            schedule_uid,
            pod_uid,
            compression,
            ask_members,
            verify,
            dry_run,
            no_quorum,
            age_recipients,
            spool_dir,
            spool_mib,
            min_throughput_kib,
            delay_seconds,
            progress_port,
            json,
            deadline_seconds,
        } = self;
        let argv = Argv::default()
            .and(etcd.to_args())
            .and(store.to_args())
            .option("expect-store-id", expect_store_id.as_ref())
            .flag("namespace", namespace)
            .flag("cluster", cluster)
            .option("cluster-uid", cluster_uid.as_ref())
            .option("cluster-spec", cluster_spec.as_ref())
            .option("restored-from", restored_from.as_ref())
            .option("expect-cluster-id", expect_cluster_id.as_ref())
            .option("owner-name", owner_name.as_ref())
            .option("owner-uid", owner_uid.as_ref())
            .option("schedule-name", schedule_name.as_ref())
            .option("schedule-uid", schedule_uid.as_ref())
            .option("pod-uid", pod_uid.as_ref())
            .flag("compression", compression.as_str())
            .option("ask-members", (*ask_members != AskMembers::Auto).then(|| ask_members.as_str().to_owned()).as_ref())
            .flag("verify", verify.as_str())
            .switch("dry-run", *dry_run)
            .switch("no-quorum", *no_quorum);
        let least = (*min_throughput_kib != DEFAULT_MIN_THROUGHPUT_KIB).then(|| min_throughput_kib.to_string());
        let argv = age_recipients.iter().fold(argv, |argv, recipient| argv.flag("age-recipient", recipient));
        argv.option_path("spool-dir", spool_dir.as_deref())
            .option("spool-mib", spool_mib.map(|mib| mib.to_string()).as_ref())
            .option("min-throughput-kib", least.as_ref())
            .option("delay-seconds", (*delay_seconds > 0).then(|| delay_seconds.to_string()).as_ref())
            .option("progress-port", progress_port.map(|port| port.to_string()).as_ref())
            .switch("json", *json)
            .flag("deadline-seconds", deadline_seconds)
            .0
    }
}

impl InspectRequest {
    /// Returns the arguments after `agent inspect`.
    pub fn to_args(&self) -> Vec<String> {
        let Self { store, expect_store_id, namespace, cluster, cluster_uid, owner_uid, deadline_seconds } = self;
        Argv::default()
            .and(store.to_args())
            .option("expect-store-id", expect_store_id.as_ref())
            .flag("namespace", namespace)
            .flag("cluster", cluster)
            .option("cluster-uid", cluster_uid.as_ref())
            .flag("owner-uid", owner_uid)
            .flag("deadline-seconds", deadline_seconds)
            .0
    }
}

impl LatestRequest {
    /// Returns the arguments after `agent latest`.
    pub fn to_args(&self) -> Vec<String> {
        let Self { store, namespace, cluster, lineage, expect_store_id, deadline_seconds } = self;
        Argv::default()
            .and(store.to_args())
            .option("expect-store-id", expect_store_id.as_ref())
            .flag("namespace", namespace)
            .flag("cluster", cluster)
            .option("lineage", lineage.as_ref())
            .flag("deadline-seconds", deadline_seconds)
            .0
    }
}

impl RecallRequest {
    /// Returns the arguments after `agent recall`.
    pub fn to_args(&self) -> Vec<String> {
        let Self { store, expect_store_id, namespace, cluster, schedule_uid, after, until, deadline_seconds } = self;
        Argv::default()
            .and(store.to_args())
            .option("expect-store-id", expect_store_id.as_ref())
            .flag("namespace", namespace)
            .flag("cluster", cluster)
            .flag("schedule-uid", schedule_uid)
            .flag("after", after)
            .flag("until", until)
            .flag("deadline-seconds", deadline_seconds)
            .0
    }
}

impl ProbeRequest {
    /// Returns the arguments after `agent probe`.
    pub fn to_args(&self) -> Vec<String> {
        let Self { store, read_credentials_dir, expect_store_id, accept_store_id, json, deadline_seconds } = self;
        Argv::default()
            .and(store.to_args())
            .option_path("read-credentials-dir", read_credentials_dir.as_deref())
            .option("expect-store-id", expect_store_id.as_ref())
            .option("accept-store-id", accept_store_id.as_ref())
            .switch("json", *json)
            .flag("deadline-seconds", deadline_seconds)
            .0
    }
}

impl GateRequest {
    /// Returns the arguments after `gate`. `--exec` comes last: every argument after it belongs to etcd.
    pub fn to_args(&self) -> Vec<String> {
        let Self { volume, identity, seed, restore_uid, annotations, start, after, exec } = self;
        let argv = Argv::default()
            .path("volume", volume)
            .and(identity.to_args())
            .switch("seed", *seed)
            .option("restore-uid", restore_uid.as_ref())
            .path("annotations", annotations);
        // 0 means no number; Pods from before the count keep their arguments.
        let argv = if *start == 0 { argv } else { argv.flag("start", start) };
        let argv = after.iter().fold(argv, |argv, url| argv.flag("after", url));
        if exec.is_empty() {
            return argv.0;
        }
        argv.and(vec!["--exec".to_owned()]).and(exec.clone()).0
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::{Args, Parser};
    use proptest::option::of as option;
    use proptest::prelude::*;

    use super::*;
    use crate::ProofLevel;
    use crate::{Compression, Verify};
    use crate::{Engine, RestoreRequest, SnapshotFlags, VerifyRequest};

    #[derive(Parser)]
    struct Cli<T: Args> {
        #[command(flatten)]
        request: T,
    }

    /// Reads the arguments as the command line does.
    pub(super) fn parsed<T: Args>(args: Vec<String>) -> Result<T, TestCaseError> {
        Cli::<T>::try_parse_from(std::iter::once("holdfast".to_owned()).chain(args))
            .map(|cli| cli.request)
            .map_err(|e| TestCaseError::fail(e.to_string()))
    }

    /// Texts that a tenant could write into a field, flags and shell words first.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("--exec".to_owned()),
            Just("--seed".to_owned()),
            Just("--".to_owned()),
            Just("-v".to_owned()),
            Just("a b;$(reboot)'\"\n".to_owned()),
            Just(String::new()),
            "\\PC{0,40}",
        ]
    }

    /// clap accepts no empty path.
    fn path() -> impl Strategy<Value = PathBuf> {
        text().prop_filter_map("paths are not empty", |t| (!t.is_empty()).then(|| PathBuf::from(t)))
    }

    prop_compose! {
        fn store()(
            url in text(), s3_endpoint in option(text()), s3_region in option(text()),
            s3_force_path_style in option(any::<bool>()), s3_ca_file in option(path()), credentials_dir in option(path()),
            mount in option(path()), group_access: bool, s3_tag in proptest::collection::vec(text(), 0..4),
            (s3_sse, s3_sse_kms_key_id, s3_storage_class, s3_checksum) in (
                option(prop_oneof![Just(S3Sse::Aes256), Just(S3Sse::AwsKms), Just(S3Sse::Customer)]), option(text()), option(text()),
                option(prop_oneof![
                    Just(S3Checksum::WhenRequired), Just(S3Checksum::Crc64nvme), Just(S3Checksum::Sha256),
                ])),
            lock in option((prop_oneof![Just(LockMode::Governance), Just(LockMode::Compliance)], any::<u32>())),
            (azure_account, azure_endpoint, azure_ca_file, gcs_endpoint, gcs_ca_file) in (
                option(text()), option(text()), option(path()), option(text()), option(path())),
        ) -> StoreFlags {
            let (s3_object_lock, s3_object_lock_days) = lock.unzip();
            StoreFlags {
                url, mount, group_access, s3_endpoint, s3_region, s3_force_path_style, s3_ca_file, s3_sse, s3_sse_kms_key_id,
                s3_storage_class, s3_tag, s3_object_lock, s3_object_lock_days, s3_checksum, azure_account, azure_endpoint, azure_ca_file, gcs_endpoint,
                gcs_ca_file, credentials_dir,
            }
        }
    }

    prop_compose! {
        fn etcd()(
            endpoints in proptest::collection::vec(text().prop_map(|t| t.replace(',', "")), 1..5),
            cacert in proptest::option::of(path()), cert in proptest::option::of(path()),
            key in proptest::option::of(path()), server_name in proptest::option::of(text()),
            user in proptest::option::of(text()), password_file in proptest::option::of(path()),
            tls_dir in proptest::option::of(path()), auth_dir in proptest::option::of(path()),
            http2_window in proptest::option::of(65_535..=0x7fff_ffff_u32),
        ) -> EtcdFlags {
            EtcdFlags {
                endpoints, cacert, cert, key, server_name, user, password_file, tls_dir, auth_dir, http2_window,
            }
        }
    }

    prop_compose! {
        fn identity()(cluster_token in text(), member_name in text(), member_uid in text(), claim_uid in text())
            -> IdentityFlags {
            IdentityFlags { cluster_token, member_name, member_uid, claim_uid }
        }
    }

    prop_compose! {
        fn save()(
            etcd in etcd(), store in store(), namespace in text(), cluster in text(),
            (cluster_uid, expect_cluster_id, owner_name, owner_uid, pod_uid) in (
                proptest::option::of(text()), proptest::option::of(text()), proptest::option::of(text()),
                proptest::option::of(text()), proptest::option::of(text())),
            (cluster_spec, expect_store_id, restored_from) in (option(text()), option(text()), option(text())),
            (schedule, delay_seconds, progress_port) in (option((option(text()), text())), any::<u32>(), any::<Option<u16>>()),
            compression in prop_oneof![Just(Compression::Zstd), Just(Compression::Gzip), Just(Compression::None)],
            ask_members in prop_oneof![Just(AskMembers::Auto), Just(AskMembers::Always), Just(AskMembers::Never)],
            verify in prop_oneof![Just(Verify::Stream), Just(Verify::Stored)], (dry_run, alone) in any::<(bool, bool)>(), json: bool,
            age_recipients in proptest::collection::vec(text(), 0..3), spool in proptest::option::of((path(), any::<u64>())),
            min_throughput_kib: u64, deadline_seconds: u32,
        ) -> SaveRequest {
            let (spool_dir, spool_mib) = spool.unzip();
            // By hand, without a requesting object.
            let no_quorum = alone && owner_uid.is_none();
            let (schedule_name, schedule_uid) = schedule.unzip();
            let schedule_name = schedule_name.flatten();
            SaveRequest {
                etcd, store, expect_store_id, namespace, cluster, cluster_uid, cluster_spec, restored_from,
                expect_cluster_id, owner_name,
                owner_uid, schedule_name, schedule_uid, pod_uid, compression, ask_members, verify, dry_run, no_quorum, age_recipients, spool_dir, spool_mib,
                min_throughput_kib, delay_seconds, progress_port, json, deadline_seconds,
            }
        }
    }

    prop_compose! {
        fn recall()(
            store in store(), expect_store_id in option(text()), namespace in text(), cluster in text(),
            schedule_uid in text(), times in any::<(u32, u32)>(), deadline_seconds: u32,
        ) -> RecallRequest {
            let at = |second: u32| jiff::Timestamp::from_second(second.into()).unwrap();
            let (after, until) = (at(times.0), at(times.1));
            RecallRequest { store, expect_store_id, namespace, cluster, schedule_uid, after, until, deadline_seconds }
        }
    }

    prop_compose! {
        fn inspect()(
            store in store(), expect_store_id in option(text()), namespace in text(), cluster in text(),
            cluster_uid in proptest::option::of(text()), owner_uid in text(), deadline_seconds: u32,
        ) -> InspectRequest {
            InspectRequest { store, expect_store_id, namespace, cluster, cluster_uid, owner_uid, deadline_seconds }
        }
    }

    prop_compose! {
        fn latest()(
            store in store(), namespace in text(), cluster in text(), lineage in option(text()),
            expect_store_id in option(text()), deadline_seconds: u32,
        ) -> LatestRequest {
            LatestRequest { store, namespace, cluster, lineage, expect_store_id, deadline_seconds }
        }
    }

    prop_compose! {
        fn probe()(
            store in store(), read_credentials_dir in option(path()), ids in option((text(), option(text()))), json: bool,
            deadline_seconds: u32,
        ) -> ProbeRequest {
            let (expect_store_id, accept_store_id) = ids.unzip();
            let accept_store_id = accept_store_id.flatten();
            ProbeRequest { store, read_credentials_dir, expect_store_id, accept_store_id, json, deadline_seconds }
        }
    }

    prop_compose! {
        fn restore()(
            store in store(), (key, expect_sha256, expect_store_id) in (text(), option(text()), option(text())), volume in path(),
            etcdutl in path(), graft: bool, identity in identity(), (restore_uid, revision_bump, allow_unverified) in (text(), 0..=1_000_000_000_000_u64, any::<bool>()), initial_cluster in text(),
            annotations in proptest::option::of(path()), age_identity_dirs in proptest::collection::vec(path(), 0..3),
            stall_seconds: u32, (refuse_auth, quota_backend_bytes, progress_port, json) in any::<(bool, Option<u64>, Option<u16>, bool)>(),
            deadline_seconds in proptest::option::of(1..=u32::MAX),
            (point, allow_auth_changed) in (option((1..=i64::MAX, 0..4_000_000_000_i64, any::<bool>())), any::<bool>()),
        ) -> RestoreRequest {
            let at_revision = point.filter(|(.., by_time)| !by_time).map(|(revision, ..)| revision);
            let by_time = point.filter(|(.., by_time)| *by_time);
            let at_time = by_time.map(|(_, millis, _)| jiff::Timestamp::from_millisecond(millis).unwrap());
            let engine = if graft { Engine::Graft } else { Engine::Etcdutl };
            RestoreRequest {
                store, key, at_revision, at_time, allow_auth_changed, expect_sha256, expect_store_id, age_identity_dirs,
                allow_unverified, revision_bump, volume, etcdutl, engine, identity, restore_uid, initial_cluster, annotations,
                refuse_auth, quota_backend_bytes, progress_port, json, deadline_seconds, stall_seconds,
            }
        }
    }

    prop_compose! {
        fn verify()(
            store in store(), key in text(), identities in proptest::collection::vec(path(), 0..3), drill: bool,
            bin_dir in proptest::option::of(path()), scratch in path(), (no_proof, write, json, deadline_seconds) in any::<(bool, bool, bool, u32)>(),
            newest in option((text(), text(), option(text()), option(text()))),
            (kubernetes, encrypted) in (proptest::option::of(path()), proptest::option::of(path())),
        ) -> VerifyRequest {
            let level = if drill { ProofLevel::Drill } else { ProofLevel::Stored };
            let key = newest.is_none().then_some(key);
            let latest = newest.is_some();
            let (namespace, cluster, lineage, expect_store_id) = match newest {
                Some((namespace, cluster, lineage, id)) => (Some(namespace), Some(cluster), lineage, id),
                None => (None, None, None, None),
            };
            let snapshot = SnapshotFlags { file: None, store: Some(store), key, identities };
            let write = write && no_proof;
            let encryption_config = encrypted.filter(|_| kubernetes.is_some());
            VerifyRequest {
                snapshot, level, latest, log: false, namespace, cluster, lineage, expect_store_id, bin_dir, kubernetes, encryption_config,
                scratch, no_proof, write, json, deadline_seconds,
            }
        }
    }

    prop_compose! {
        fn gate()(
            volume in path(), identity in identity(), seed: bool, restore_uid in proptest::option::of(text()),
            annotations in path(), start in prop_oneof![Just(0), any::<u64>()],
            after in proptest::collection::vec(text().prop_map(|t| t.replace(',', "")), 0..4),
            exec in proptest::collection::vec(text(), 0..6),
        ) -> GateRequest {
            GateRequest { volume, identity, seed, restore_uid, annotations, start, after, exec }
        }
    }

    proptest! {
        #[test]
        fn a_save_request_survives_the_command_line(request in save()) {
            prop_assert_eq!(parsed::<SaveRequest>(request.to_args())?, request);
        }

        #[test]
        fn an_inspect_request_survives_the_command_line(request in inspect()) {
            prop_assert_eq!(parsed::<InspectRequest>(request.to_args())?, request);
        }

        #[test]
        fn a_request_for_the_latest_survives_the_command_line(request in latest()) {
            prop_assert_eq!(parsed::<LatestRequest>(request.to_args())?, request);
        }

        #[test]
        fn a_recall_round_trips(request in recall()) {
            prop_assert_eq!(parsed::<RecallRequest>(request.to_args())?, request);
        }

        #[test]
        fn a_probe_request_survives_the_command_line(request in probe()) {
            prop_assert_eq!(parsed::<ProbeRequest>(request.to_args())?, request);
        }

        #[test]
        fn a_restore_request_survives_the_command_line(request in restore()) {
            prop_assert_eq!(parsed::<RestoreRequest>(request.to_args())?, request);
        }

        #[test]
        fn a_verify_request_survives_the_command_line(request in verify()) {
            prop_assert_eq!(parsed::<VerifyRequest>(request.to_args())?, request);
        }

        #[test]
        fn a_gate_request_survives_the_command_line(request in gate()) {
            prop_assert_eq!(parsed::<GateRequest>(request.to_args())?, request);
        }
    }
}
