//! Contents of a snapshot beside its keys: the agent reports them, and refuses a snapshot with users whose login is unknown before
//! a data directory exists that etcd could start on.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, MemberAddOptions};
use holdfast_contract::{
    CameAlong, Compression, DATA_DIR, Engine, ExitClass, RestoreRequest, SaveRequest, StoreFlags, Verify,
};
use serde_json::Value;
use snapshot_agent::verbs::{restore, save};
use tempfile::TempDir;

use crate::graft::ENGINES;
use crate::support::{Etcd, NOTE, bin, file_store, files, free_port, restore_request, save_request, unsealed};

/// A snapshot of an etcd that requires a login, and the same bytes as a raw file beside it.
struct WithUsers {
    mount: TempDir,
    key: String,
}

impl WithUsers {
    async fn new() -> Self {
        let mount = tempfile::tempdir().unwrap();
        let etcd = Etcd::start().await;
        etcd.fill(50, 100).await;
        let mut client = etcd.client().await;
        for ttl in [300, 3000] {
            client.lease_grant(ttl, None).await.unwrap();
        }
        client.user_add("reader", "canary-password", None).await.unwrap();
        let user = etcd.locked("canary-password", &mount.path().join("password")).await;
        let request = save_request(user, file_store(mount.path()), Compression::None);
        let saved = save::run(SaveRequest { verify: Verify::Stream, ..request }).await.unwrap();
        fs::copy(mount.path().join(&saved.key).join("snapshot.db"), mount.path().join("raw.db")).unwrap();
        Self { mount, key: saved.key }
    }

    fn store(&self) -> StoreFlags {
        file_store(self.mount.path())
    }

    fn record(&self, change: impl FnOnce(&mut Value)) {
        let path = self.mount.path().join(&self.key).join("manifest.json");
        let mut manifest = unsealed(&path);
        change(&mut manifest);
        fs::write(&path, manifest.to_string()).unwrap();
    }

    async fn refused(&self, key: &str, engine: Engine, leaves: &[&str]) {
        let volume = tempfile::tempdir().unwrap();
        let request = restore_request(self.store(), key, volume.path());
        let error = restore::run(RestoreRequest { engine, refuse_auth: true, ..request }).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::AuthRequired, "{key}, {engine:?}: {error}");
        assert!(error.message().contains("2 users") && !error.message().contains("canary"), "{error}");
        assert_eq!(files(volume.path()), leaves, "{key}, {engine:?}");
    }

    async fn told(&self, key: &str, engine: Engine) {
        let user_names = ["reader", "root"].map(str::to_owned).to_vec();
        let expected = CameAlong {
            members: 1,
            leases: 2,
            users: 2,
            user_names,
            roles: 1,
            auth_enabled: true,
            ..CameAlong::default()
        };
        let volume = tempfile::tempdir().unwrap();
        let request = RestoreRequest { engine, ..restore_request(self.store(), key, volume.path()) };
        for already in [false, true] {
            let report = restore::run(request.clone()).await.unwrap();
            assert_eq!((report.already, report.came_along.as_ref()), (already, Some(&expected)), "{key}, {engine:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_that_nobody_can_log_in_as_are_refused_and_told_else() {
    let stored = WithUsers::new().await;
    for engine in ENGINES {
        // The manifest sufficed for the refusal.
        stored.refused(&stored.key, engine, &[]).await;
        stored.refused("raw.db", engine, &[NOTE]).await;
        stored.told(&stored.key, engine).await;
        stored.told("raw.db", engine).await;
    }
    // A manifest without the contents, because they could not be proven, and a manifest with wrong contents.
    let changes: [fn(&mut Value); 2] = [
        |manifest| manifest["contents"]["authEnabled"] = Value::Bool(false),
        |manifest| drop(manifest.as_object_mut().unwrap().remove("contents").unwrap()),
    ];
    for change in changes {
        stored.record(change);
        for engine in ENGINES {
            stored.refused(&stored.key, engine, &[NOTE]).await;
            stored.told(&stored.key, engine).await;
        }
    }
}

/// kubelet restarts a refused restore without end, and each start would download the whole snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_refused_is_not_read_again_by_the_same_attempt() {
    let stored = WithUsers::new().await;
    stored.record(|manifest| drop(manifest.as_object_mut().unwrap().remove("contents").unwrap()));
    let etcd = Etcd::start().await;
    etcd.fill(5, 10).await;
    let nobody = save::run(save_request(etcd.flags(), stored.store(), Compression::None)).await.unwrap().key;
    let (there, away) = (stored.mount.path(), stored.mount.path().with_extension("away"));
    for (engine, key) in ENGINES.into_iter().flat_map(|engine| [(engine, stored.key.as_str()), (engine, "raw.db")]) {
        let volume = tempfile::tempdir().unwrap();
        let request = restore_request(stored.store(), key, volume.path());
        let request = RestoreRequest { engine, refuse_auth: true, ..request };
        let refused = restore::run(request.clone()).await.unwrap_err();
        assert_eq!(refused.class(), ExitClass::AuthRequired, "{key}, {engine:?}: {refused}");
        let note = volume.path().join(NOTE);
        let kept = fs::read_to_string(&note).unwrap();
        assert!(kept.contains("AuthRequired") && !kept.contains("canary"), "{kept}");
        assert_eq!(fs::metadata(&note).unwrap().permissions().mode() & 0o777, 0o600);

        // The store is gone: a restore that reads it ends with another error.
        fs::rename(there, &away).unwrap();
        for _ in 0..2 {
            assert_eq!(restore::run(request.clone()).await, Err(refused.clone()), "{key}, {engine:?}");
            assert_eq!(fs::read_to_string(&note).unwrap(), kept, "an hour of the first one");
        }
        let at = |at: &str| {
            let mut kept: Value = serde_json::from_str(&kept).unwrap();
            kept["at"] = Value::String(at.to_owned());
            kept.to_string()
        };
        let mine = || request.clone();
        let asks = [
            (RestoreRequest { restore_uid: "another".to_owned(), ..mine() }, kept.clone()),
            (RestoreRequest { key: nobody.clone(), ..mine() }, kept.clone()),
            (RestoreRequest { refuse_auth: false, ..mine() }, kept.clone()),
            // Notes of more than an hour ago, of a clock that was set back, and a file that is no note.
            (mine(), at("2026-01-01T00:00:00Z")),
            (mine(), at("2999-01-01T00:00:00Z")),
            (mine(), "{".to_owned()),
        ];
        for (request, left) in asks {
            fs::create_dir_all(note.parent().unwrap()).unwrap();
            fs::write(&note, &left).unwrap();
            let error = restore::run(request).await.unwrap_err();
            assert_ne!(error.class(), ExitClass::AuthRequired, "{left}: {error}");
            assert_eq!(files(volume.path()), [] as [&str; 0], "{left}: it goes with the next attempt");
        }
        fs::rename(&away, there).unwrap();

        // A restore with a login succeeds, and so does another attempt with a snapshot without users.
        for restores in [
            RestoreRequest { refuse_auth: false, ..mine() },
            RestoreRequest { restore_uid: "another".to_owned(), key: nobody.clone(), ..mine() },
        ] {
            let volume = tempfile::tempdir().unwrap();
            let request = RestoreRequest { volume: volume.path().to_owned(), ..mine() };
            assert_eq!(restore::run(request.clone()).await, Err(refused.clone()), "{key}, {engine:?}");
            assert_eq!(files(volume.path()), [NOTE], "{key}, {engine:?}");
            let restores = RestoreRequest { volume: request.volume, ..restores };
            assert!(!restore::run(restores).await.unwrap().already);
            let names: Vec<_> = fs::read_dir(volume.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, [DATA_DIR], "{key}, {engine:?}");
        }
    }
}

/// The alarm of this member.
fn of(member: u64) -> AlarmOptions {
    let mut options = AlarmOptions::new();
    options.with_member(member);
    options
}

/// A cluster with a learner, whose member has no space left: the agent reports both, the restored cluster has no learner, and the
/// alarm stops its writes until it is cleared in the name of the former member.
#[tokio::test(flavor = "multi_thread")]
async fn a_learner_is_told_and_an_alarm_is_in_force_until_it_is_cleared() {
    let etcd = Etcd::start().await;
    etcd.fill(50, 100).await;
    let mut client = etcd.client().await;
    let learner = Some(MemberAddOptions::new().with_is_learner());
    let learner = client.member_add([format!("http://127.0.0.1:{}", free_port())], learner).await.unwrap();
    let learner = learner.member().unwrap().id();
    let source = client.status().await.unwrap().header().unwrap().member_id();
    client.alarm(AlarmAction::Activate, AlarmType::Nospace, Some(of(source))).await.unwrap();
    let mount = tempfile::tempdir().unwrap();
    let request = save_request(etcd.flags(), file_store(mount.path()), Compression::None);
    let saved = save::run(SaveRequest { verify: Verify::Stream, ..request }).await.unwrap();
    let folder = mount.path().join(&saved.key);
    fs::copy(folder.join("snapshot.db"), mount.path().join("raw.db")).unwrap();
    let manifest = folder.join("manifest.json");
    let mut earlier = unsealed(&manifest);
    assert_eq!(earlier["contents"]["learners"], 1, "{earlier}");

    let learner_ids = vec![format!("{learner:x}")];
    let raised = vec![format!("NOSPACE of member {source:x}")];
    let expected = CameAlong { members: 2, learners: 1, learner_ids, alarms: 1, raised, ..CameAlong::default() };
    for (engine, key) in ENGINES.into_iter().flat_map(|engine| [(engine, saved.key.as_str()), (engine, "raw.db")]) {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let request = RestoreRequest { engine, ..restore_request(file_store(mount.path()), key, &volume) };
        for already in [false, true] {
            let report = restore::run(request.clone()).await.unwrap();
            assert_eq!((report.already, report.came_along.as_ref()), (already, Some(&expected)), "{key}, {engine:?}");
        }
        let (member, peer) = request.initial_cluster.split_once('=').unwrap();
        let rebuilt =
            Etcd::on(folder, &volume.join(DATA_DIR), member, peer, &["--initial-cluster-state=existing"]).await;
        let mut client = rebuilt.client().await;
        let members = client.member_list().await.unwrap();
        let members: Vec<_> = members.members().iter().map(|member| (member.name(), member.is_learner())).collect();
        assert_eq!(members, [(member, false)], "{key}, {engine:?}");
        let raised = client.alarm(AlarmAction::Get, AlarmType::None, None).await.unwrap();
        let raised: Vec<_> = raised.alarms().iter().map(|alarm| (alarm.member_id(), alarm.alarm())).collect();
        assert_eq!(raised, [(source, AlarmType::Nospace)], "{key}, {engine:?}");
        let refused = client.put("new", "value", None).await.unwrap_err().to_string();
        assert!(refused.contains("space exceeded"), "{key}, {engine:?}: {refused}");
        client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(of(source))).await.unwrap();
        client.put("new", "value", None).await.unwrap();
    }
    // Without the field, as an earlier version wrote the manifest, the restore reads the learners from the bytes.
    earlier["contents"].as_object_mut().unwrap().remove("learners").unwrap();
    fs::write(&manifest, earlier.to_string()).unwrap();
    let volume = tempfile::tempdir().unwrap();
    let report = restore::run(restore_request(file_store(mount.path()), &saved.key, volume.path())).await.unwrap();
    assert_eq!(report.came_along, Some(expected));
}

/// A healthy member's snapshot carries the alarm of a corrupt member. After the restore the alarm stops all writes, in the name
/// of no member. Reads succeed, so that the operator sees the alarm, and it can be cleared.
#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_alarm_of_another_member_is_in_force_until_it_is_cleared() {
    const OTHER: u64 = 0xbad;
    let etcd = Etcd::start().await;
    etcd.fill(50, 100).await;
    let mut client = etcd.client().await;
    client.alarm(AlarmAction::Activate, AlarmType::Corrupt, Some(of(OTHER))).await.unwrap();
    let mount = tempfile::tempdir().unwrap();
    let request = save_request(etcd.flags(), file_store(mount.path()), Compression::None);
    let saved = save::run(SaveRequest { verify: Verify::Stream, ..request }).await.unwrap();

    for engine in ENGINES {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let request = restore_request(file_store(mount.path()), &saved.key, &volume);
        let request = RestoreRequest { engine, ..request };
        let report = restore::run(request.clone()).await.unwrap();
        let raised = vec!["CORRUPT of member bad".to_owned()];
        let expected = CameAlong { members: 1, alarms: 1, raised, ..CameAlong::default() };
        assert_eq!(report.came_along, Some(expected), "{engine:?}");
        let (member, peer) = request.initial_cluster.split_once('=').unwrap();
        let rebuilt =
            Etcd::on(folder, &volume.join(DATA_DIR), member, peer, &["--initial-cluster-state=existing"]).await;
        let mut client = rebuilt.client().await;
        client.get("\0", None).await.unwrap();
        let told = client.status().await.unwrap().errors().join("; ");
        assert!(told.contains("alarm:CORRUPT") && told.contains(&format!("memberID:{OTHER}")), "{engine:?}: {told}");
        let refused = client.put("new", "value", None).await.unwrap_err().to_string();
        assert!(refused.contains("corrupt"), "{engine:?}: {refused}");
        client.alarm(AlarmAction::Deactivate, AlarmType::Corrupt, Some(of(OTHER))).await.unwrap();
        client.put("new", "value", None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_ends_with_its_time_and_leaves_nothing() {
    let etcd = Etcd::start().await;
    etcd.fill(5, 10).await;
    let mount = tempfile::tempdir().unwrap();
    let saved = save::run(save_request(etcd.flags(), file_store(mount.path()), Compression::Zstd)).await.unwrap();
    let slow = mount.path().join("etcdutl");
    let real = bin("etcdutl");
    let script =
        format!("#!/bin/sh\ncase $1 in version) exec {} version;; *) exec /bin/sleep 60;; esac\n", real.display());
    fs::write(&slow, script).unwrap();
    fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
    for engine in ENGINES {
        let volume = tempfile::tempdir().unwrap();
        let request = RestoreRequest { engine, ..restore_request(file_store(mount.path()), &saved.key, volume.path()) };
        let limited = RestoreRequest { etcdutl: slow.clone(), deadline_seconds: Some(3), ..request.clone() };
        let error = restore::run(limited).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Deadline, "{error}");
        assert!(error.message().contains("deadlineSeconds"), "{error}");
        assert_eq!(files(volume.path()), [] as [&str; 0], "{engine:?}");
        assert!(!restore::run(request).await.unwrap().already);
    }
}
