//! Real etcd servers in temporary folders, on loopback; dropping the handle ends the server.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_in_result, clippy::cast_possible_truncation, reason = "tests end by panicking")]

pub(crate) mod bolt;
pub(crate) mod roles;
pub(crate) mod seed;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_bbolt::scan::{HashKv, NoHashKv, Options, Proven, Reader, Scan, ScanError};
use serde_json::{Value, json};

pub(crate) const BUDGET: usize = 96 << 20;

/// Every minor of etcd: its newest patch, and about the oldest patch that is safe to run.
pub(crate) const LINES: [&str; 6] = ["3.5", "3.5.27", "3.6", "3.6.11", "3.7", "3.7.1"];

/// The minor of a line of releases.
pub(crate) fn minor(line: &str) -> &str {
    line.match_indices('.').nth(1).map_or(line, |(end, _)| &line[..end])
}

/// The folder with etcd and etcdutl of a line of releases: `3.5` or `3.5.27`.
pub(crate) fn folder(line: &str) -> PathBuf {
    let variable = format!("HOLDFAST_ETCD_{}", line.replace('.', "_"));
    let folder = std::env::var_os(&variable).map(PathBuf::from);
    folder.unwrap_or_else(|| panic!("{variable} is not set: eval \"$(tests/testbed/testbed env)\" sets it"))
}

pub(crate) fn run(program: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).env("ETCDCTL_API", "3").output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(format!("{} {args:?}: {}", program.display(), String::from_utf8_lossy(&output.stderr)))
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let n = chunk.iter().fold(0_u32, |n, byte| n << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let letter = LETTERS[(n >> (18 - 6 * i) & 63) as usize];
            out.push(if i > chunk.len() { '=' } else { letter as char });
        }
    }
    out
}

/// A small generator: the same numbers each time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % below
    }
}

pub(crate) struct Server {
    pub(crate) bin: PathBuf,
    pub(crate) line: String,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) user: Option<String>,
    data: PathBuf,
    args: Vec<String>,
    port: u16,
    peer: u16,
    child: Option<Child>,
    snapshots: usize,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Server {
    pub(crate) fn start(line: &str, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let mut server = Self {
            bin: folder(line),
            line: line.to_owned(),
            data,
            dir,
            user: None,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            port: crate::ports::free(),
            peer: crate::ports::free(),
            child: None,
            snapshots: 0,
        };
        server.launch();
        server
    }

    /// Starts a server on a prepared data directory, for the member `m1` with this peer port.
    pub(crate) fn on(line: &str, data: &Path, peer: u16, user: Option<&str>, args: &[&str]) -> Self {
        let mut server = Self {
            bin: folder(line),
            line: line.to_owned(),
            data: data.to_owned(),
            dir: tempfile::tempdir().unwrap(),
            user: user.map(str::to_owned),
            args: args.iter().chain([&"--initial-cluster-state=existing"]).map(|arg| (*arg).to_owned()).collect(),
            port: crate::ports::free(),
            peer,
            child: None,
            snapshots: 0,
        };
        server.launch();
        server
    }

    pub(crate) fn launch(&mut self) {
        let client = format!("http://127.0.0.1:{}", self.port);
        let peer = format!("http://127.0.0.1:{}", self.peer);
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let child = Command::new(self.bin.join("etcd"))
            .args([
                "--name=m1",
                "--unsafe-no-fsync",
                "--log-level=warn",
                "--max-txn-ops=20000",
                "--max-request-bytes=8000000",
            ])
            .arg(format!("--data-dir={}", self.data.display()))
            .args([format!("--listen-client-urls={client}"), format!("--advertise-client-urls={client}")])
            .args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")])
            .arg(format!("--initial-cluster=m1={peer}"))
            .args(&self.args)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let began = Instant::now();
        let ready = |server: &Self| match server.user {
            // Its status requires a login, and its health fails while an alarm stands.
            Some(_) => server.tries(&["get", "x"]).is_ok(),
            None => server
                .try_post("/v3/maintenance/status", &json!({}))
                .is_some_and(|status| status["leader"].as_str().is_some_and(|leader| leader != "0")),
        };
        while !ready(self) {
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap();
            assert!(began.elapsed() < Duration::from_mins(1), "etcd does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts the ended server again, with other flags; the last of two equal flags counts.
    pub(crate) fn again(mut server: Self, args: &[&str]) -> Self {
        server.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        server.launch();
        server
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let began = Instant::now();
            while child.try_wait().unwrap().is_none() {
                if began.elapsed() > Duration::from_secs(5) {
                    child.kill().unwrap();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Posts to etcd's JSON gateway; `None` for a refusal.
    pub(crate) fn try_post(&self, path: &str, body: &Value) -> Option<Value> {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let head =
            format!("POST {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.contains(" 200 ").then(|| serde_json::from_str(body).unwrap())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.try_post(path, body)
            .unwrap_or_else(|| panic!("{path} {}", body.to_string().chars().take(200).collect::<String>()))
    }

    fn revision(answer: &Value) -> i64 {
        answer["header"]["revision"].as_str().unwrap_or("0").parse().unwrap()
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> i64 {
        Self::revision(&self.post("/v3/kv/put", &json!({"key": base64(key), "value": base64(value)})))
    }

    pub(crate) fn delete(&self, key: &[u8]) -> i64 {
        Self::revision(&self.post("/v3/kv/deleterange", &json!({"key": base64(key)})))
    }

    pub(crate) fn delete_all(&self) -> i64 {
        Self::revision(&self.post("/v3/kv/deleterange", &json!({"key": "AA==", "range_end": "AA=="})))
    }

    pub(crate) fn txn(&self, ops: &[Value]) -> i64 {
        Self::revision(&self.post("/v3/kv/txn", &json!({"success": ops})))
    }

    pub(crate) fn put_op(key: &[u8], value: &[u8]) -> Value {
        json!({"requestPut": {"key": base64(key), "value": base64(value)}})
    }

    /// Requests a compaction, and waits until it is done.
    pub(crate) fn compact(&self, revision: i64) {
        self.post("/v3/kv/compaction", &json!({"revision": revision.to_string(), "physical": true}));
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("--endpoints=127.0.0.1:{}", self.port)
    }

    pub(crate) fn ctl(&self, args: &[&str]) -> String {
        self.tries(args).unwrap()
    }

    /// Runs etcdctl; `Err` for a failure.
    pub(crate) fn tries(&self, args: &[&str]) -> Result<String, String> {
        let endpoint = self.endpoint();
        // A busy machine may be slow; a login has the timeout of the dial.
        let mut all = vec![endpoint.as_str(), "--command-timeout=60s", "--dial-timeout=60s"];
        let user = self.user.as_ref().map(|user| format!("--user={user}"));
        all.extend(user.as_deref());
        all.extend(args);
        // etcdctl of the newest patch: not every older patch has one.
        run(&folder(minor(&self.line)).join("etcdctl"), &all)
    }

    /// The server's HashKV at a revision (0: the newest).
    pub(crate) fn hash_kv(&self, revision: i64) -> HashKv {
        let answer = self.ctl(&["endpoint", "hashkv", "-w", "json", &format!("--rev={revision}")]);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let answer = &answer[0]["HashKV"];
        let newest = answer["header"]["revision"].as_i64().unwrap();
        HashKv {
            hash: u32::try_from(answer["hash"].as_u64().unwrap()).unwrap(),
            revision: answer["hash_revision"].as_i64().unwrap_or(if revision == 0 { newest } else { revision }),
            compact_revision: answer["compact_revision"].as_i64().unwrap_or(0),
        }
    }

    /// Saves a snapshot: its file (with the trailer) and its bytes (without).
    pub(crate) fn save(&mut self) -> (PathBuf, Vec<u8>) {
        self.snapshots += 1;
        let path = self.dir.path().join(format!("{}.snap", self.snapshots));
        self.ctl(&["snapshot", "save", path.to_str().unwrap()]);
        let mut bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() % 512, 32);
        bytes.truncate(bytes.len() - 32);
        (path, bytes)
    }

    /// Saves a snapshot and compares the scan's facts with those of the server and etcdutl.
    pub(crate) fn check(&mut self) -> Checked {
        let (path, bytes) = self.save();
        let proven = both_ways(&bytes);
        let hash = proven.hash_kv.unwrap();
        compare_with_etcdutl(&path, &proven, &self.bin);
        let mut compared = false;
        for revision in [0, hash.revision] {
            let live = self.hash_kv(revision);
            if live.compact_revision == hash.compact_revision {
                assert_eq!(live, hash, "etcd {}", self.line);
                compared = true;
            }
        }
        Checked { path, bytes, proven, compared }
    }

    pub(crate) fn restore(&mut self, snapshot: &Path, bump: u64) {
        self.stop();
        let (peer, data) =
            (format!("http://127.0.0.1:{}", self.peer), self.dir.path().join(format!("restored{}", self.snapshots)));
        let mut args = vec![
            "snapshot".to_owned(),
            "restore".to_owned(),
            snapshot.display().to_string(),
            "--name=m1".to_owned(),
            format!("--initial-cluster=m1={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--data-dir={}", data.display()),
        ];
        if bump > 0 {
            args.extend([format!("--bump-revision={bump}"), "--mark-compacted".to_owned()]);
        }
        run(&self.bin.join("etcdutl"), &args.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        self.data = data;
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.data.join("member/snap/db")
    }
}

pub(crate) struct Checked {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    pub(crate) proven: Proven,
    /// Whether the server's HashKV was comparable.
    pub(crate) compared: bool,
}

pub(crate) fn scan(bytes: &[u8], compact: Option<i64>, piece: usize) -> Result<Proven, ScanError> {
    scan_within(bytes, compact, piece, BUDGET)
}

pub(crate) fn scan_within(
    bytes: &[u8],
    compact: Option<i64>,
    piece: usize,
    budget_bytes: usize,
) -> Result<Proven, ScanError> {
    let mut scan = Scan::new(Options { compact_revision: compact, budget_bytes });
    bytes.chunks(piece.max(1)).for_each(|piece| scan.push(piece));
    scan.finish()
}

pub(crate) fn reader(bytes: &[u8]) -> Reader<&[u8]> {
    Reader::open(bytes, bytes.len() as u64, BUDGET).unwrap()
}

/// Scans a stream in several cuttings, and by random access: all results must be equal.
pub(crate) fn both_ways(bytes: &[u8]) -> Proven {
    let mut reader = reader(bytes);
    let compact = reader.compact_revision().unwrap();
    let proven = scan(bytes, Some(compact), 32 << 10).unwrap();
    for piece in [bytes.len(), 4096, 4096 * 3 + 1, 999_999] {
        assert_eq!(scan(bytes, Some(compact), piece).as_ref(), Ok(&proven), "pieces of {piece}");
    }
    assert_eq!(reader.prove(None).as_ref(), Ok(&proven));
    let (mut records, mut live) = (0, 0);
    reader.records(|_| records += 1).unwrap();
    reader.live(proven.revision, |_| live += 1).unwrap();
    assert_eq!((records, Some(live)), (proven.revisions, proven.keys));
    let again = reader.hash_kv(proven.revision, compact).unwrap();
    match proven.hash_kv {
        Ok(hash) => assert_eq!(again, hash),
        Err(why) => assert!(matches!(why, NoHashKv::Unfinished { .. }), "{why}"),
    }
    if compact >= 0 {
        let moved = scan(bytes, Some(compact - 1), 1 << 20).unwrap();
        assert_eq!(moved.hash_kv, Err(NoHashKv::Moved { asked: compact - 1, found: compact }));
        assert_eq!(moved, Proven { hash_kv: moved.hash_kv, ..proven.clone() });
    }
    assert_eq!(scan(bytes, None, 1 << 20).as_ref(), Ok(&proven), "without being told the compact revision");
    proven
}

pub(crate) fn compare_with_etcdutl(path: &Path, proven: &Proven, bin: &Path) {
    let bytes = std::fs::read(path).unwrap();
    let mut reader = reader(&bytes[..bytes.len() - 32]);
    let (mut last, mut bumps) = (0, 0);
    reader
        .records(|record| {
            last = record.main;
            bumps = if record.key.is_empty() { 1 } else { bumps };
        })
        .unwrap();
    let status = |bin: &Path| -> Value {
        let status = run(&bin.join("etcdutl"), &["snapshot", "status", path.to_str().unwrap(), "-w", "json"]).unwrap();
        serde_json::from_str(&status).unwrap()
    };
    // etcdutl 3.5 has no hashkv, and counts the entries of all buckets as keys.
    let old = LINES.iter().any(|line| minor(line) == "3.5" && bin == folder(line));
    assert_eq!(status(bin)["revision"].as_i64(), Some(last));
    let bin = if old { folder("3.6") } else { bin.to_owned() };
    let status = status(&bin);
    // etcdutl counts the empty key of a revision bump.
    assert_eq!(status["totalKey"].as_u64(), proven.keys.map(|keys| keys + bumps));
    assert_eq!(status["revision"].as_i64(), Some(last));
    assert_eq!(status["totalSize"].as_u64(), Some(proven.pages * u64::from(proven.page_size)));
    assert_eq!(status["version"].as_str().unwrap_or_default(), proven.storage_version.as_deref().unwrap_or_default());
    // etcdutl opens the file for writing.
    let copy = path.with_extension("copy");
    std::fs::write(&copy, &bytes[..bytes.len() - 32]).unwrap();
    let hash = match run(&bin.join("etcdutl"), &["hashkv", copy.to_str().unwrap(), "-w", "json"]) {
        // Where a key has a lease.
        Err(error) if error.contains("no lessor to attach lease") => return,
        hash => hash.unwrap(),
    };
    let hash: Value = serde_json::from_str(&hash).unwrap();
    std::fs::remove_file(copy).unwrap();
    let HashKv { hash: ours, revision, compact_revision } = proven.hash_kv.unwrap();
    assert_eq!(hash["hashRevision"].as_i64(), Some(revision));
    assert_eq!(hash["compactRevision"].as_i64(), Some(compact_revision));
    assert_eq!(hash["hash"].as_u64(), Some(u64::from(ours)));
}
