//! The gate in front of a real etcd: it becomes etcd on the member's own volume, and refuses every other volume.

use std::fs;
use std::path::Path;
use std::process::Command;

use holdfast_contract::{
    Compression, DATA_DIR, ExitClass, GateRequest, IdentityFlags, JOINED, MAY_START_EMPTY, Report, RestoreRequest,
    STARTED,
};

use crate::support::{
    CLAIM, Etcd, RESTORE, Running, bin, child, child_request, eventually, file_store, files, free_port, identity_flags,
    restore_request, save_request, to_input,
};
use snapshot_agent::gate::volume_identity::{IDENTITY_FILE, Identity};
use snapshot_agent::gate::wal;
use snapshot_agent::verbs::{gate, report, restore, save};

/// The child half: the process of the gate, which the gate replaces by etcd.
#[ignore = "the child half of a test"]
#[tokio::test]
async fn becomes_etcd() {
    let request = child_request();
    let Err(error) = gate::run(request).await;
    std::process::exit(report::finish(&Err(error)).into());
}

pub(crate) struct Member {
    volume: tempfile::TempDir,
    pub(crate) request: GateRequest,
    url: String,
}

impl Member {
    fn new() -> Self {
        Self::of(identity_flags())
    }

    pub(crate) fn of(identity: IdentityFlags) -> Self {
        let volume = tempfile::tempdir().unwrap();
        let (url, peer) = (format!("http://127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
        let data = volume.path().join("mount").join(DATA_DIR);
        let exec = vec![
            bin("etcd").display().to_string(),
            format!("--name={}", identity.member_name),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={}={peer}", identity.member_name),
            format!("--initial-cluster-token={}", identity.cluster_token),
            "--unsafe-no-fsync".to_owned(),
        ];
        fs::create_dir_all(volume.path().join("mount/lost+found")).unwrap();
        let request = GateRequest {
            volume: volume.path().join("mount"),
            identity,
            seed: true,
            annotations: volume.path().join("annotations"),
            exec,
            ..GateRequest::default()
        };
        Self { volume, request, url }
    }

    pub(crate) fn allow(&self, claim: &str) {
        self.tell(Some(claim), None);
    }

    /// Writes the operator's annotations of the Pod.
    fn tell(&self, may_start_empty: Option<&str>, started: Option<u64>) {
        let mut file = "a=\"b\"\n".to_owned();
        file.extend(may_start_empty.map(|claim| format!("{MAY_START_EMPTY}=\"{claim}\"\n")));
        file.extend(started.map(|number| format!("{STARTED}=\"{number}\"\n")));
        fs::write(&self.request.annotations, file).unwrap();
    }

    /// Runs until etcd has acknowledged this write, then kills it; returns the earlier value.
    async fn serves(&self, value: &str) -> Option<String> {
        let etcd = self.spawn();
        let mut client = self.client().await;
        let before = client.get("k", None).await.unwrap();
        client.put("k", value, None).await.unwrap();
        drop((client, etcd));
        before.kvs().first().map(|kv| kv.value_str().unwrap().to_owned())
    }

    /// A copy of the volume, like a snapshot of it.
    fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_all(&self.request.volume, copy.path());
        copy
    }

    /// Replaces the contents of the volume.
    fn mount(&self, copy: &tempfile::TempDir) {
        fs::remove_dir_all(&self.request.volume).unwrap();
        fs::create_dir(&self.request.volume).unwrap();
        copy_all(copy.path(), &self.request.volume);
    }

    fn spawn(&self) -> Running {
        let log = fs::File::create(self.volume.path().join("log")).unwrap();
        let message = self.volume.path().join("termination-log");
        fs::write(&message, "").unwrap();
        let mut command = child("gate::becomes_etcd", &to_input(&self.request));
        command.env("HOLDFAST_TERMINATION_LOG", message).stdout(log.try_clone().unwrap()).stderr(log);
        Running(command.spawn().unwrap())
    }

    async fn client(&self) -> etcd_client::Client {
        let connect = async || {
            let mut client = etcd_client::Client::connect([&self.url], None).await.ok()?;
            client.get("x", None).await.ok()?;
            Some(client)
        };
        eventually("etcd's first answer", connect).await
    }

    /// Starts, and returns the verdict of the refusal. Checks that the volume is unchanged.
    pub(crate) fn refused(&self) -> String {
        let before = (files(&self.request.volume), self.identity());
        let verdict = self.verdict();
        assert_eq!((files(&self.request.volume), self.identity()), before, "{verdict}: it touched the volume");
        verdict
    }

    fn verdict(&self) -> String {
        let status = self.spawn().0.wait().unwrap();
        assert_eq!(status.code(), Some(71));
        let json = fs::read(self.volume.path().join("termination-log")).unwrap();
        match serde_json::from_slice(&json).unwrap() {
            Report::Gate(report) => report.verdict,
            other => panic!("{other:?}"),
        }
    }

    fn data(&self) -> std::path::PathBuf {
        self.request.volume.join(DATA_DIR)
    }

    fn identity(&self) -> Option<Identity> {
        Identity::read(&self.data()).unwrap()
    }

    fn starts(&self) -> u64 {
        self.identity().unwrap().start_count
    }
}

fn copy_all(from: &Path, to: &Path) {
    let from = format!("{}/.", from.display());
    assert!(Command::new("cp").args(["-a", &from]).arg(to).status().unwrap().success());
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_seed() {
    let mut member = Member::new();
    assert_eq!(member.refused(), "UnreadableAnnotations", "there is no such file");
    member.tell(None, None);
    assert_eq!(member.refused(), "EmptyVolume", "nobody has allowed it");
    assert!(!member.data().exists());
    member.allow("another-claim");
    assert_eq!(member.refused(), "EmptyVolume");

    member.allow(CLAIM);
    let etcd = member.spawn();
    let mut client = member.client().await;
    client.put("k", "v", None).await.unwrap();
    let status = client.status().await.unwrap();
    assert_eq!(member.starts(), 1);
    assert_eq!(mode(&member.data()), 0o700);
    let header = status.header().unwrap();
    let found = wal::metadata_of(&member.data().join("member/wal")).unwrap().unwrap();
    assert_eq!((found.cluster_id, found.member_id), (header.cluster_id(), header.member_id()), "etcd's own words");
    drop((client, etcd));

    // The member has served, and the operator has removed the permission. etcd still starts again, and finds its log.
    fs::write(&member.request.annotations, "").unwrap();
    let etcd = member.spawn();
    assert_eq!(member.client().await.get("k", None).await.unwrap().kvs().len(), 1);
    assert_eq!(member.starts(), 2);
    assert_eq!(Identity::read(&member.data()).unwrap().unwrap().member_id, Some(format!("{:x}", found.member_id)));
    drop(etcd);

    // One mutation of a good volume at a time: the gate never starts it, with or without the permission.
    member.allow(CLAIM);
    let good = member.request.clone();
    member.request.identity.claim_uid = "other".to_owned();
    assert_eq!(member.refused(), "WrongClaim");
    member.request = GateRequest { restore_uid: Some("r".to_owned()), ..good.clone() };
    assert_eq!(member.refused(), "WrongRestore");
    member.request = good;
    let log = member.data().join("member/wal");
    let first =
        fs::read_dir(&log).unwrap().map(|e| e.unwrap().path()).find(|p| p.extension().unwrap() == "wal").unwrap();
    let bytes = fs::read(&first).unwrap();
    fs::write(&first, &bytes[..30]).unwrap();
    assert_eq!(member.refused(), "UnreadableWal");
    fs::remove_file(&first).unwrap();
    assert_eq!(member.refused(), "EmptiedVolume");
    fs::remove_dir_all(member.data().join("member")).unwrap();
    assert_eq!(member.refused(), "EmptiedVolume");
    assert_eq!(member.starts(), 2, "refusals are not counted");
    fs::remove_file(member.data().join("holdfast-identity.json")).unwrap();
    fs::write(member.data().join("x"), "").unwrap();
    assert_eq!(member.refused(), "ForeignVolume");
}

/// The identity file gets the log's IDs at the second start; until then only the operator knows them, from etcd.
#[tokio::test(flavor = "multi_thread")]
async fn another_members_data_under_its_identity_is_refused_from_the_first_write_on() {
    let own = Member::new();
    let other = Member::of(IdentityFlags { cluster_token: "another".to_owned(), ..identity_flags() });
    let mut joined = vec![];
    for member in [&own, &other] {
        member.allow(CLAIM);
        let etcd = member.spawn();
        let status = member.client().await.status().await.unwrap();
        let header = status.header().unwrap();
        joined.push(format!("{:x}/{:x}", header.cluster_id(), header.member_id()));
        drop(etcd);
        assert_eq!(member.identity().unwrap().member_id, None, "it does not know yet");
    }
    assert_ne!(joined[0], joined[1]);
    let says = |joined: &str| fs::write(&own.request.annotations, format!("{JOINED}=\"{joined}\"\n")).unwrap();
    let (data, aside) = (own.data().join("member"), own.volume.path().join("aside"));
    fs::rename(&data, &aside).unwrap();
    fs::rename(other.data().join("member"), &data).unwrap();
    says(&joined[0]);
    assert_eq!(own.refused(), "WrongWal");
    says("c1");
    assert_eq!(own.refused(), "UnreadableAnnotations");
    fs::remove_dir_all(&data).unwrap();
    fs::write(&own.request.annotations, format!("{JOINED}=\"{}\"\n{MAY_START_EMPTY}=\"{CLAIM}\"\n", joined[0]))
        .unwrap();
    assert_eq!(own.refused(), "EmptiedVolume", "it has joined: what still permits an empty start is late");
    fs::rename(&aside, &data).unwrap();
    says(&joined[0]);
    let etcd = own.spawn();
    own.client().await;
    drop(etcd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_waits_for_those_before_it() {
    let first = Etcd::start().await;
    let peer = first.client().await.member_list().await.unwrap().members()[0].peer_urls()[0].clone();
    let mut member = Member::new();
    member.allow(CLAIM);
    // One peer is up, and one starts late: etcd starts after the late peer's first answer.
    let late = free_port();
    member.request.after = vec![peer, format!("http://127.0.0.1:{late}")];
    let etcd = member.spawn();
    let identity_written = async || member.data().join("holdfast-identity.json").exists().then_some(());
    eventually("the identity", identity_written).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!member.data().join("member").exists(), "it did not wait");
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", late)).await.unwrap();
    let answer = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        let _request = stream.read(&mut [0; 1024]).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await.unwrap();
    });
    member.client().await;
    answer.await.unwrap();
    drop(etcd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_lost_something_is_never_started() {
    let mut member = Member::new();
    member.request.start = 1;
    member.allow(CLAIM);
    assert_eq!(member.serves("1").await, None);
    // The operator has seen the member serve; the permission may still be there when etcd dies.
    member.tell(Some(CLAIM), Some(1));
    let fresh = member.copy();
    // Before the log's IDs are on the volume, and after.
    for latched in [false, true] {
        let good = member.copy();
        assert_eq!(member.identity().unwrap().member_id.is_some(), latched);
        for emptied in ["", "data", "data/member", "data/member/wal", "data/member/snap"] {
            for claim in [None, Some(CLAIM)] {
                member.tell(claim, Some(1));
                let folder = member.request.volume.join(emptied);
                fs::remove_dir_all(&folder).unwrap();
                fs::create_dir_all(&folder).unwrap();
                assert_eq!(member.refused(), "EmptiedVolume", "{emptied:?} emptied, permitted: {claim:?}");
                member.mount(&good);
            }
        }
        // Only the container restarts, on its own volume: it continues.
        assert_eq!(member.serves("2").await.as_deref(), Some(if latched { "2" } else { "1" }));
    }
    assert_eq!((member.identity().unwrap().pod_start, member.starts()), (1, 3));

    // The next Pod serves; then the volume is rolled back to an earlier copy.
    member.request.start = 2;
    assert_eq!(member.serves("3").await.as_deref(), Some("2"));
    assert_eq!(member.identity().unwrap().pod_start, 2);
    let newest = member.copy();
    member.tell(None, Some(2));
    for start in [2, 3] {
        member.request.start = start;
        member.mount(&fresh);
        assert_eq!(member.refused(), "OlderVolume", "under Pod {start}");
    }
    // An unreadable number does not count as a missing number.
    member.mount(&newest);
    fs::write(&member.request.annotations, format!("{STARTED}=\"two\"\n")).unwrap();
    assert_eq!(member.refused(), "UnreadableAnnotations");
    member.tell(None, Some(2));
    assert_eq!(member.serves("4").await.as_deref(), Some("3"), "nothing was lost");
    assert_eq!(member.identity().unwrap().pod_start, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_somebody_else_is_never_started() {
    let ours = identity_flags();
    let named = |member: &str, uid: &str, claim: &str, token: &str| IdentityFlags {
        member_name: member.to_owned(),
        member_uid: uid.to_owned(),
        claim_uid: claim.to_owned(),
        cluster_token: token.to_owned(),
    };
    let serving = async |identity: IdentityFlags| {
        let mut member = Member::of(identity);
        member.request.start = 1;
        member.allow(&member.request.identity.claim_uid);
        member.serves("theirs").await;
        // The log's IDs are on the volume from the second start on.
        member.serves("theirs").await;
        member
    };
    let own = serving(ours.clone()).await;
    let newest = own.copy();
    for (what, identity, verdict) in [
        ("another member", named("orders-zzzzz", "u2", "c2", &ours.cluster_token), "WrongMember"),
        ("another cluster", named("stock-abcde", "u3", "c3", "token-9"), "WrongCluster"),
        ("another incarnation", named(&ours.member_name, "u4", "c4", "token-2"), "WrongCluster"),
        ("the same name made anew", named(&ours.member_name, "u5", "c5", &ours.cluster_token), "WrongMember"),
        ("another claim", named(&ours.member_name, &ours.member_uid, "c6", &ours.cluster_token), "WrongClaim"),
    ] {
        let theirs = serving(identity).await.copy();
        for (claim, started) in [(None, None), (None, Some(1)), (Some(CLAIM), None), (Some(CLAIM), Some(1))] {
            own.tell(claim, started);
            own.mount(&theirs);
            assert_eq!(own.refused(), verdict, "{what}, {claim:?}, {started:?}");
            // Under the member's own identity file too.
            fs::copy(newest.path().join(DATA_DIR).join(IDENTITY_FILE), own.data().join(IDENTITY_FILE)).unwrap();
            assert_eq!(own.refused(), "WrongWal", "{what}, {claim:?}, {started:?}");
        }
    }
    own.tell(None, Some(1));
    own.mount(&newest);
    assert_eq!(own.serves("ours").await.as_deref(), Some("theirs"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_that_was_restored_and_lost_its_volume_is_not_restored_again() {
    let etcd = Etcd::start().await;
    etcd.client().await.put("k", "saved", None).await.unwrap();
    let store = tempfile::tempdir().unwrap();
    let request = save_request(etcd.flags(), file_store(store.path()), Compression::Zstd);
    let saved = save::run(request).await.unwrap();

    let mut member = Member::new();
    member.request.start = 1;
    member.request.restore_uid = Some(RESTORE.to_owned());
    member.allow(CLAIM);
    assert_eq!(member.refused(), "RestoreIncomplete", "the permission is the restore's alone");
    let refill = RestoreRequest {
        annotations: Some(member.request.annotations.clone()),
        ..restore_request(file_store(store.path()), &saved.key, &member.request.volume)
    };
    restore::run(refill.clone()).await.unwrap();
    let restored = member.copy();
    assert_eq!(member.serves("1").await.as_deref(), Some("saved"));

    // The member has served. Its volume is emptied and all its containers run again, with the permission still there.
    member.tell(Some(CLAIM), Some(1));
    fs::remove_dir_all(&member.request.volume).unwrap();
    fs::create_dir(&member.request.volume).unwrap();
    let error = restore::run(refill.clone()).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Refused, "{error}");
    assert_eq!(fs::read_dir(&member.request.volume).unwrap().count(), 0, "not even a staging folder");
    assert_eq!(member.refused(), "EmptiedVolume");
    // The operator's annotations cannot be read.
    fs::remove_file(&member.request.annotations).unwrap();
    assert_eq!(restore::run(refill.clone()).await.unwrap_err().class(), ExitClass::Refused);
    assert_eq!(fs::read_dir(&member.request.volume).unwrap().count(), 0);

    // The restore takes a copy from between restore and first start for complete; the gate refuses it.
    member.tell(Some(CLAIM), Some(1));
    member.mount(&restored);
    let before = files(&member.request.volume);
    assert!(restore::run(refill).await.unwrap().already);
    assert_eq!(files(&member.request.volume), before);
    assert_eq!(member.refused(), "OlderVolume");
    // Without its database the log alone would restore everything except the restored data.
    member.tell(None, None);
    fs::remove_file(member.data().join("member/snap/db")).unwrap();
    assert_eq!(member.refused(), "EmptiedVolume");
}
