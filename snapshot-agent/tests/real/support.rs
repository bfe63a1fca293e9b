//! A real etcd and a real S3 server for the tests of this folder.

mod small;

use futures::stream::StreamExt as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use holdfast_contract::{Compression, EtcdFlags, IdentityFlags, RestoreRequest, SaveRequest, StoreFlags};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) use crate::ports::free as free_port;
pub(crate) use small::Small;

pub(crate) const CLAIM: &str = "c1a1-0000";
pub(crate) const RESTORE: &str = "7e57-0000";

/// The folder with etcd, etcdctl, etcdutl and versitygw.
pub(crate) fn bin(name: &str) -> PathBuf {
    let folder = std::env::var_os("HOLDFAST_TEST_BIN").unwrap_or_else(|| {
        panic!(
            "HOLDFAST_TEST_BIN is not set. These tests run against a real etcd and a real S3 server: `make test` \
             builds them and sets it, or set it to a folder with etcd, etcdctl, etcdutl and versitygw"
        )
    });
    let path = PathBuf::from(folder).join(name);
    assert!(path.exists(), "{} is missing: `make test` builds it", path.display());
    path
}

/// A child process; dropping it kills it.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

/// The etcd of another line than the newest in `HOLDFAST_TEST_BIN`.
pub(crate) fn etcd_of(line: &str) -> PathBuf {
    let name = format!("HOLDFAST_ETCD_{}", line.replace('.', "_"));
    let folder = std::env::var_os(&name).unwrap_or_else(|| panic!("{name} is not set: `make test` sets it"));
    PathBuf::from(folder).join("etcd")
}

pub(crate) fn start(program: &str, args: &[String], log: &Path) -> Running {
    start_at(&bin(program), args, log)
}

fn start_at(program: &Path, args: &[String], log: &Path) -> Running {
    let log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Running(command.spawn().unwrap())
}

/// Set in a child of this program: the input of the child half of a test.
const CHILD: &str = "HOLDFAST_TEST_CHILD";

/// The input of this process, which runs the child half of a test and which [`child`] started.
pub(crate) fn child_input() -> String {
    std::env::var(CHILD).expect("this is the child half of a test; the test starts it")
}

/// A command that runs this program with only this child half. A child half is an ignored test, so no other run includes it.
pub(crate) fn child(test: &str, input: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(CHILD, input).stdin(Stdio::null());
    command
}

/// Runs a child half until its end.
pub(crate) fn run_child(test: &str, input: &str) -> Output {
    finish_child(child(test, input))
}

/// Waits for the end of a child half. The exit code alone proves nothing: a name that matches no test gives 0 too.
pub(crate) fn finish_child(mut command: Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && stdout.contains("test result: ok. 1 passed"), "{command:?}: {stdout}{stderr}");
    output
}

/// A request as the input of a child half.
pub(crate) fn to_input(request: &impl serde::Serialize) -> String {
    serde_json::to_string(request).unwrap()
}

/// The request of this process, which runs the child half of a test.
pub(crate) fn child_request<T: serde::de::DeserializeOwned>() -> T {
    serde_json::from_str(&child_input()).unwrap()
}

/// Rows of a table that run at a time: each has a server of its own, and a busy machine leaves more of them without an answer for
/// longer than the agent waits.
const ROWS_AT_ONCE: usize = 5;

/// Runs the rows of a table, a few at a time.
pub(crate) async fn run_rows(rows: impl IntoIterator<Item = impl Future<Output = ()>>) {
    futures::stream::iter(rows).buffer_unordered(ROWS_AT_ONCE).collect::<Vec<()>>().await;
}

/// Time that a busy machine may take for an expected event.
const PATIENCE: Duration = Duration::from_mins(3);

/// Waits for an expected event.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "{what} did not come true in {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Name of a member without a vote.
const LEARNER: &str = "learner";

/// A stopped member; dropping this continues it.
pub(crate) struct Paused(String);

impl Drop for Paused {
    fn drop(&mut self) {
        let _continued = Command::new("kill").args(["-CONT", &self.0]).status();
    }
}

/// One etcd member.
pub(crate) struct Etcd {
    pub(crate) url: String,
    peer: String,
    program: PathBuf,
    args: Vec<String>,
    data: PathBuf,
    process: Running,
    folder: TempDir,
}

impl Etcd {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        Self::on(folder, &data, "default", "http://127.0.0.1:0", &[]).await
    }

    /// Starts a member of another line.
    pub(crate) async fn of(line: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        Self::run(etcd_of(line), folder, &data, "default", "http://127.0.0.1:0", &[]).await
    }

    /// Starts a member on this data directory.
    pub(crate) async fn on(folder: TempDir, data: &Path, name: &str, peer: &str, more: &[&str]) -> Self {
        Self::run(bin("etcd"), folder, data, name, peer, more).await
    }

    /// Starts a member of another line on this data directory.
    pub(crate) async fn on_line(
        line: &str,
        folder: TempDir,
        data: &Path,
        name: &str,
        peer: &str,
        more: &[&str],
    ) -> Self {
        Self::run(etcd_of(line), folder, data, name, peer, more).await
    }

    async fn run(program: PathBuf, folder: TempDir, data: &Path, name: &str, peer: &str, more: &[&str]) -> Self {
        Self::serving("127.0.0.1", program, folder, data, name, peer, more).await
    }

    /// Starts a member by this program, at the address of another host.
    pub(crate) async fn by(
        program: PathBuf,
        folder: TempDir,
        host: &str,
        name: &str,
        peer: &str,
        more: &[&str],
    ) -> Self {
        let data = folder.path().join("data");
        Self::serving(host, program, folder, &data, name, peer, more).await
    }

    async fn serving(
        host: &str,
        program: PathBuf,
        folder: TempDir,
        data: &Path,
        name: &str,
        peer: &str,
        more: &[&str],
    ) -> Self {
        let url = format!("http://{host}:{}", free_port());
        let listen = if peer.ends_with(":0") { format!("http://127.0.0.1:{}", free_port()) } else { peer.to_owned() };
        let mut args = vec![
            format!("--name={name}"),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={listen}"),
            format!("--initial-advertise-peer-urls={listen}"),
            format!("--initial-cluster={name}={listen}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        let process = start_at(&program, &args, &folder.path().join("etcd.log"));
        let etcd = Self { url, peer: listen, program, args, data: data.to_owned(), process, folder };
        // A learner serves no reads to wait for.
        if name != LEARNER {
            etcd.ready().await;
        }
        etcd
    }

    /// Starts a member that joins this cluster without a vote, by the program of its first member.
    pub(crate) async fn learner(of: &[Self]) -> Self {
        let peer = format!("http://127.0.0.1:{}", free_port());
        let options = etcd_client::MemberAddOptions::new().with_is_learner();
        // etcd requires all its members to be connected for some seconds before it accepts another one.
        eventually("a member more", async || {
            of[0].client().await.member_add([&peer], Some(options.clone())).await.ok()
        })
        .await;
        let all: Vec<_> = of.iter().enumerate().map(|(i, member)| format!("m{i}={}", member.peer)).collect();
        let all = format!("--initial-cluster={},{LEARNER}={peer}", all.join(","));
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let more = [all.as_str(), "--initial-cluster-state=existing"];
        let learner = Self::run(of[0].program.clone(), folder, &data, LEARNER, &peer, &more).await;
        eventually("the learner's own word", async || {
            learner.client().await.status().await.ok().filter(etcd_client::StatusResponse::is_learner)
        })
        .await;
        learner
    }

    /// Kills the member; its data stay.
    pub(crate) fn kill(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    /// Ends the member with this signal, and waits for its end.
    pub(crate) fn ends_by(&mut self, signal: &str) {
        let pid = self.process.0.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        self.process.0.wait().unwrap();
    }

    /// Stops the member, with its connections open, until the returned value is dropped.
    pub(crate) fn paused(&self) -> Paused {
        let pid = self.process.0.id().to_string();
        assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
        Paused(pid)
    }

    /// Whether the member leads.
    pub(crate) async fn leads(&self) -> bool {
        let status = self.client().await.status().await.unwrap();
        status.leader() == status.header().unwrap().member_id()
    }

    /// Number of open read transactions of its database: each keeps the pages of all keys that are deleted meanwhile.
    pub(crate) async fn open_reads(&self) -> u64 {
        const NAME: &str = "etcd_mvcc_db_open_read_transactions ";
        let mut least = u64::MAX;
        // etcd's own transactions come and go; etcd counts all of them at a commit (a tenth of a second).
        for _ in 0..4 {
            self.client().await.put("counted", "", None).await.unwrap();
            tokio::time::sleep(Duration::from_millis(250)).await;
            let text = self.metrics().await;
            let value = text.lines().find_map(|line| line.strip_prefix(NAME));
            let value = value.unwrap_or_else(|| panic!("no {NAME}in {text}"));
            least = least.min(value.trim().parse().unwrap());
        }
        least
    }

    /// Number of calls of this name that the member received.
    pub(crate) async fn calls(&self, name: &str) -> u64 {
        let start = format!("grpc_server_started_total{{grpc_method=\"{name}\",");
        let text = self.metrics().await;
        let line = text.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("no {start} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    async fn metrics(&self) -> String {
        let mut connection = TcpStream::connect(self.url.trim_start_matches("http://")).await.unwrap();
        connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).await.unwrap();
        text
    }

    /// Ends the member, changes its data directory, and starts it again.
    pub(crate) async fn again(&mut self, meanwhile: impl FnOnce(&Path)) {
        self.kill();
        meanwhile(&self.data);
        self.process = start_at(&self.program, &self.args, &self.folder.path().join("etcd.log"));
        self.ready().await;
    }

    /// Ends the member, changes its data directory, and starts this program on it.
    pub(crate) async fn again_by(&mut self, program: PathBuf, meanwhile: impl FnOnce(&Path)) {
        self.ends_by("-TERM");
        self.program = program;
        self.again(meanwhile).await;
    }

    /// Starts three members of one cluster.
    pub(crate) async fn three() -> Vec<Self> {
        Self::three_by(bin("etcd"), "127.0.0.1", &[]).await
    }

    /// Starts three members of one cluster by this program, with these flags more; their peers are at this address.
    pub(crate) async fn three_by(program: PathBuf, host: &str, more: &[&str]) -> Vec<Self> {
        let peers: Vec<_> = (0..3).map(|i| (format!("m{i}"), format!("http://{host}:{}", free_port()))).collect();
        let all: Vec<_> = peers.iter().map(|(name, peer)| format!("{name}={peer}")).collect();
        let all = format!("--initial-cluster={}", all.join(","));
        let more: Vec<_> = [all.as_str()].into_iter().chain(more.iter().copied()).collect();
        let starts = peers.iter().map(async |(name, peer)| {
            let folder = tempfile::tempdir().unwrap();
            let data = folder.path().join("data");
            Self::run(program.clone(), folder, &data, name, peer, &more).await
        });
        futures::future::join_all(starts).await
    }

    /// Its peer URL.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Path of its database.
    pub(crate) fn database(&self) -> PathBuf {
        self.data.join("member/snap/db")
    }

    /// The member's log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("etcd.log")).unwrap()
    }

    pub(crate) async fn ready(&self) {
        let until = Instant::now() + PATIENCE;
        while let Err(error) = self.client().await.get("x", None).await {
            assert!(Instant::now() < until, "etcd gives no answer: {error}; its log:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn client(&self) -> etcd_client::Client {
        etcd_client::Client::connect([&self.url], None).await.unwrap()
    }

    /// Writes keys `k0..`, each with a value of this many bytes that does not compress to nothing.
    pub(crate) async fn fill(&self, keys: u64, bytes: usize) {
        let mut client = self.client().await;
        for key in 0..keys {
            client.put(format!("k{key}"), noise(key, bytes), None).await.unwrap();
        }
    }

    /// Every key and value.
    pub(crate) async fn content(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut client = self.client().await;
        let all = etcd_client::GetOptions::new().with_all_keys().with_keys_only();
        let keys = client.get("", Some(all)).await.unwrap();
        let mut content = Vec::new();
        for key in keys.kvs() {
            // One by one: the client accepts answers of at most 4 MiB.
            let answer = client.get(key.key(), None).await.unwrap();
            content.extend(answer.kvs().iter().map(|kv| (kv.key().to_vec(), kv.value().to_vec())));
        }
        content
    }

    /// Enables authentication; root may do everything. Writes root's password into this file.
    pub(crate) async fn locked(&self, password: &str, file: &Path) -> EtcdFlags {
        let mut client = self.client().await;
        client.user_add("root", password, None).await.unwrap();
        client.role_add("root").await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        client.auth_enable().await.unwrap();
        fs::write(file, password).unwrap();
        EtcdFlags { user: Some("root".to_owned()), password_file: Some(file.to_owned()), ..self.flags() }
    }

    pub(crate) fn flags(&self) -> EtcdFlags {
        EtcdFlags { endpoints: vec![self.url.clone()], ..EtcdFlags::default() }
    }
}

/// Bytes that look random and are the same every time.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// An S3 server over a folder, with one bucket `bkt`.
pub(crate) struct S3 {
    pub(crate) address: String,
    pub(crate) folder: TempDir,
    args: Vec<String>,
    process: Running,
}

/// Access key and secret of the server's owner, who may do everything.
const KEYS: [&str; 2] = ["key", "secret"];

impl S3 {
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// Starts the server with more flags.
    pub(crate) async fn with(more: &[String]) -> Self {
        Self::serving(KEYS, more, |_| vec![]).await
    }

    /// Starts the server with these keys of its owner.
    pub(crate) async fn keyed(keys: [&str; 2]) -> Self {
        Self::serving(keys, &[], |_| vec![]).await
    }

    /// Starts a server that keeps older versions.
    pub(crate) async fn versioned() -> Self {
        let versions =
            |folder: &Path| vec!["--versioning-dir".to_owned(), folder.join("versions").display().to_string()];
        Self::serving(KEYS, &[], versions).await
    }

    async fn serving([access, secret]: [&str; 2], more: &[String], backend: impl Fn(&Path) -> Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["buckets/bkt", "credentials", "versions"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("credentials/accessKeyID"), format!("{access}\n")).unwrap();
        fs::write(folder.path().join("credentials/secretAccessKey"), format!("{secret}\n")).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let buckets = folder.path().join("buckets").display().to_string();
        let args = ["--access", access, "--secret", secret, "--keep-alive", "--quiet", "--port", &address];
        let backend = [vec!["posix".to_owned()], backend(folder.path()), vec![buckets]].concat();
        let args = [&args.map(str::to_owned)[..], more, &backend].concat();
        let process = start("versitygw", &args, &folder.path().join("versitygw.log"));
        let s3 = Self { address, folder, args, process };
        s3.ready().await;
        s3
    }

    async fn ready(&self) {
        eventually("versitygw's port", async || TcpStream::connect(&self.address).await.ok()).await;
    }

    /// Restarts the server at the same address, with its present files.
    pub(crate) async fn again(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
        self.process = start("versitygw", &self.args, &self.folder.path().join("versitygw.log"));
        self.ready().await;
    }

    pub(crate) fn flags(&self) -> StoreFlags {
        StoreFlags {
            mount: None,
            url: "s3://bkt/pre/fix".to_owned(),
            s3_endpoint: Some(format!("http://{}", self.address)),
            s3_force_path_style: Some(true),
            credentials_dir: Some(self.folder.path().join("credentials")),
            ..StoreFlags::default()
        }
    }

    /// Flags of the same bucket, reached by another URL.
    pub(crate) fn through(&self, url: String) -> StoreFlags {
        StoreFlags { s3_endpoint: Some(url), ..self.flags() }
    }

    /// Path of this object on the server.
    pub(crate) fn file(&self, key: &str, name: &str) -> PathBuf {
        self.folder.path().join("buckets/bkt/pre/fix").join(key).join(name)
    }

    /// Path of the bucket on the server.
    pub(crate) fn bucket(&self) -> PathBuf {
        self.folder.path().join("buckets/bkt")
    }

    /// Every file in the bucket, parts of unfinished uploads included.
    pub(crate) fn files(&self) -> Vec<String> {
        files(&self.bucket())
    }
}

pub(crate) fn file_store(folder: &Path) -> StoreFlags {
    StoreFlags { url: format!("file://{}", folder.display()), ..StoreFlags::default() }
}

/// A manifest without its own sha256, as an earlier version wrote it: a test can change its fields.
pub(crate) fn unsealed(manifest: &Path) -> Value {
    let mut read: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    read.as_object_mut().unwrap().remove("manifestSha256");
    read
}

/// Every file below a folder, by its path in it.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(here) = folders.pop() {
        let entries = match fs::read_dir(&here) {
            Ok(entries) => entries,
            // Deleted after its parent was read.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && here != folder => continue,
            Err(error) => panic!("{}: {error}", here.display()),
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn save_request(etcd: EtcdFlags, store: StoreFlags, compression: Compression) -> SaveRequest {
    SaveRequest {
        etcd,
        store,
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        cluster_uid: Some("1a2b3c4d-0000".to_owned()),
        owner_name: Some("nightly".to_owned()),
        owner_uid: Some("99887766-0000".to_owned()),
        compression,
        deadline_seconds: 600,
        ..SaveRequest::default()
    }
}

pub(crate) fn identity_flags() -> IdentityFlags {
    IdentityFlags {
        cluster_token: "token-1".to_owned(),
        member_name: "orders-abcde".to_owned(),
        member_uid: "3e3b-0000".to_owned(),
        claim_uid: CLAIM.to_owned(),
    }
}

pub(crate) fn restore_request(store: StoreFlags, key: &str, volume: &Path) -> RestoreRequest {
    let identity = identity_flags();
    RestoreRequest {
        store,
        key: key.to_owned(),
        volume: volume.to_owned(),
        etcdutl: bin("etcdutl"),
        initial_cluster: format!("{}=http://127.0.0.1:{}", identity.member_name, free_port()),
        identity,
        restore_uid: RESTORE.to_owned(),
        stall_seconds: 120,
        ..RestoreRequest::default()
    }
}

/// File with the reason of a refusal, for the next start of the restore.
pub(crate) const NOTE: &str = ".holdfast-staging/refused.json";

/// A program at this path that prints the version of the real one, and otherwise runs this script; the shell has the real program
/// in `$real`, and finds no program by its name alone.
pub(crate) fn in_place_of(real: &Path, at: &Path, does: &str) -> PathBuf {
    let real = real.display();
    let script = format!("#!/bin/sh\nreal={real}\ncase $1 in *version) exec $real \"$@\";; esac\n{does}\n");
    fs::write(at, script).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
    at.to_owned()
}
