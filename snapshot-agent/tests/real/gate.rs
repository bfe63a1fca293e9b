//! The gate in front of a real etcd: it becomes etcd on the member's own volume, and refuses every other one.

use std::fs;
use std::path::Path;

use crate::support::{CLAIM, Cli, Etcd, Running, bin, child, child_input, eventually, free_port, identity_flags};
use clap::Parser;
use snapshot_agent::contract::{DATA_DIR, ExitClass, GateRequest, MAY_START_EMPTY, Report};
use snapshot_agent::identity::Identity;
use snapshot_agent::{gate, report, wal};

/// Not a test by itself: the process in which the gate runs, since it replaces the process.
#[tokio::test]
async fn becomes_etcd() {
    let Some(args) = child_input() else { return };
    let cli = Cli::<GateRequest>::parse_from(std::iter::once("gate").chain(args.lines()));
    let Err(error) = gate::run(cli.request).await;
    std::process::exit(report::finish(&Err(error)).into());
}

struct Member {
    volume: tempfile::TempDir,
    request: GateRequest,
    url: String,
}

impl Member {
    fn new() -> Self {
        let volume = tempfile::tempdir().unwrap();
        let identity = identity_flags();
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

    fn allow(&self, claim: &str) {
        fs::write(&self.request.annotations, format!("a=\"b\"\n{MAY_START_EMPTY}=\"{claim}\"\n")).unwrap();
    }

    fn spawn(&self) -> Running {
        let log = fs::File::create(self.volume.path().join("log")).unwrap();
        let message = self.volume.path().join("termination-log");
        fs::write(&message, "").unwrap();
        let mut command = child("gate::becomes_etcd", &self.request.to_args().join("\n"));
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

    /// Starts, and expects the refusal with this verdict.
    fn refused(&self) -> String {
        let status = self.spawn().0.wait().unwrap();
        assert_eq!(status.code(), Some(i32::from(ExitClass::Refused.code())));
        let json = fs::read(self.volume.path().join("termination-log")).unwrap();
        match serde_json::from_slice(&json).unwrap() {
            Report::Gate(report) => report.verdict,
            other => panic!("{other:?}"),
        }
    }

    fn data(&self) -> std::path::PathBuf {
        self.request.volume.join(DATA_DIR)
    }

    fn starts(&self) -> u64 {
        Identity::read(&self.data()).unwrap().unwrap().start_count
    }
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_seed() {
    let mut member = Member::new();
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

    // It has served; the permission is gone. It starts again all the same, and remembers its log.
    fs::write(&member.request.annotations, "").unwrap();
    let etcd = member.spawn();
    assert_eq!(member.client().await.get("k", None).await.unwrap().kvs().len(), 1);
    assert_eq!(member.starts(), 2);
    assert_eq!(Identity::read(&member.data()).unwrap().unwrap().member_id, Some(format!("{:x}", found.member_id)));
    drop(etcd);

    // One mutation of a good volume at a time; permission or not, it is never started.
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

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_waits_for_those_before_it() {
    let first = Etcd::start().await;
    let peer = first.client().await.member_list().await.unwrap().members()[0].peer_urls()[0].clone();
    let mut member = Member::new();
    member.allow(CLAIM);
    // One that is up, and one that will be: the start comes after its first answer.
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
