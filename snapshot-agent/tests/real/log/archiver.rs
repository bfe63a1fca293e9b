//! A log whose archiver is a process of its own, and the contents of that log as etcd has them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{Txn, TxnOp};
use holdfast_contract::{EtcdFlags, LogRequest, StoreFlags};
use holdfast_layout::{GapName, SegmentName};
use holdfast_segment::{Entry, Header, Reader};
use serde_json::Value;
use snapshot_agent::catalog::log::cover::Cover;
use snapshot_agent::format::crypt::{Decryptor, Identities};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{FAILED, LOGGED};
use crate::age::secret;
use crate::dump::dump;
use crate::support::{Etcd, child, eventually, files, noise, to_input};

/// A log, where it is stored, and the archiver that records it.
pub(super) struct Log {
    pub(super) request: LogRequest,
    /// Folder of the store's objects.
    pub(super) store: PathBuf,
    pub(super) spool: TempDir,
    pub(super) process: Option<Child>,
}

impl Log {
    pub(super) fn prepare(etcd: EtcdFlags, flags: StoreFlags, store: &Path) -> Self {
        let spool = tempfile::tempdir().unwrap();
        let request = LogRequest {
            etcd,
            store: flags,
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
            cluster_uid: Some("1a2b3c4d-0000".to_owned()),
            from_revision: Some(2),
            every_seconds: 1,
            spool_dir: spool.path().to_owned(),
            check_seconds: 2,
            ..LogRequest::default()
        };
        Self { request, store: store.to_owned(), spool, process: None }
    }

    /// Starts the archiver.
    pub(super) fn start(&mut self) {
        let output = self.spool.path().join("output");
        let mut command: Command = child("log::records", &to_input(&self.request));
        command.stdout(File::create(&output).unwrap()).stderr(Stdio::inherit());
        self.process = Some(command.spawn().unwrap());
    }

    pub(super) fn pid(&self) -> String {
        self.process.as_ref().unwrap().id().to_string()
    }

    pub(super) fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.pid()]).status().unwrap().success());
    }

    pub(super) fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Waits for the end of the archiver, and returns its line.
    pub(super) fn wait(&mut self) -> String {
        let status = self.process.take().unwrap().wait().unwrap();
        let output = fs::read_to_string(self.spool.path().join("output")).unwrap();
        assert!(status.success(), "{output}");
        let line = output.lines().find(|line| line.starts_with(LOGGED) || line.starts_with(FAILED));
        line.unwrap_or_else(|| panic!("{output}")).to_owned()
    }

    /// Ends the archiver as kubelet does.
    pub(super) fn end(&mut self) -> Value {
        self.signal("-TERM");
        let line = self.wait();
        serde_json::from_str(line.strip_prefix(LOGGED).unwrap_or_else(|| panic!("{line}"))).unwrap()
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.store.join("shop/orders/1a2b3c4d/log")
    }

    /// Paths below the log.
    pub(super) fn paths(&self) -> Vec<String> {
        if self.folder().exists() { files(&self.folder()) } else { vec![] }
    }

    pub(super) fn segments(&self) -> Vec<SegmentName> {
        self.paths().iter().filter_map(|path| SegmentName::parse(path)).collect()
    }

    pub(super) fn gaps(&self) -> Vec<GapName> {
        self.paths().iter().filter_map(|path| GapName::parse(path)).collect()
    }

    pub(super) fn cover(&self) -> Cover {
        Cover::join(self.segments(), &self.gaps())
    }

    pub(super) fn last(&self) -> i64 {
        self.segments().iter().map(|segment| segment.last).max().unwrap_or(0)
    }

    /// Waits until the store has this revision.
    pub(super) async fn has(&self, revision: i64) {
        eventually("the revision in the log", async || (self.last() >= revision).then_some(())).await;
    }

    /// Waits until the store has a segment that is newer than this moment.
    pub(super) async fn is_alive(&self) {
        let now = jiff::Timestamp::now();
        eventually("a new segment", async || self.segments().iter().any(|s| s.at > now).then_some(())).await;
    }

    pub(super) fn read(&self) -> Recorded {
        let mut recorded = Recorded::default();
        let paths = self.paths();
        let mut names: Vec<_> = paths.iter().filter_map(|path| Some((SegmentName::parse(path)?, path))).collect();
        names.sort();
        for (name, path) in names {
            recorded.add(&name, &fs::read(self.folder().join(path)).unwrap());
        }
        recorded
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _gone = process.kill();
            let _status = process.wait();
        }
    }
}

/// The contents of a log.
#[derive(Default)]
pub(super) struct Recorded {
    /// By etcd's own keys of its bucket `key`.
    pub(super) records: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) leases: BTreeMap<i64, i64>,
    pub(super) samples: Vec<(i64, i64)>,
    pub(super) headers: Vec<Header>,
    pub(super) auth_changes: Vec<i64>,
}

impl Recorded {
    fn add(&mut self, name: &SegmentName, stored: &[u8]) {
        let opened: Box<dyn std::io::Read> = if name.encrypted {
            let folder = secret(&[0]);
            Box::new(Decryptor::new(&Identities::read(&[folder.path()]).unwrap(), stored).unwrap())
        } else {
            Box::new(stored)
        };
        let mut reader = Reader::new(zstd::stream::read::Decoder::new(opened).unwrap()).unwrap();
        let header = *reader.header();
        assert_eq!((header.first, header.last), (name.first, name.last));
        assert_eq!(header.last_at / 1000, name.at.as_second());
        self.headers.push(header);
        while let Some(entry) = reader.next().unwrap() {
            match entry {
                Entry::Record(record) => {
                    let mut key = record.main.to_be_bytes().to_vec();
                    key.push(b'_');
                    key.extend(record.sub.to_be_bytes());
                    if record.tombstone {
                        key.push(b't');
                    }
                    let before = self.records.insert(key, record.value.to_vec());
                    assert!(before.is_none_or(|before| before == record.value), "two writers differ");
                }
                Entry::Lease { id, ttl } => {
                    self.leases.insert(id, ttl);
                }
                Entry::Sample { revision, at } => self.samples.push((revision, at)),
                Entry::AuthChanged { revision } => self.auth_changes.push(revision),
            }
        }
    }
}

/// The records of etcd's own database after this revision.
pub(super) fn stored_by_etcd(etcd: &mut Etcd, after: i64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    // A clean end writes what etcd holds back.
    etcd.ends_by("-TERM");
    let mut records = dump(&etcd.database()).remove(&b"key"[..]).unwrap();
    records.retain(|key, _| i64::from_be_bytes(*key.first_chunk().unwrap()) > after);
    records
}

pub(super) fn assert_same(recorded: &BTreeMap<Vec<u8>, Vec<u8>>, stored: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let keys = |records: &BTreeMap<Vec<u8>, Vec<u8>>| records.keys().cloned().collect::<BTreeSet<_>>();
    let (ours, theirs) = (keys(recorded), keys(stored));
    let missing: Vec<_> = theirs.difference(&ours).take(3).collect();
    let more: Vec<_> = ours.difference(&theirs).take(3).collect();
    assert!(missing.is_empty() && more.is_empty(), "missing {missing:?}, too many {more:?}");
    for (key, value) in stored {
        assert_eq!(recorded[key], *value, "{key:?}");
    }
}

/// Writes without a pause until it is stopped: puts, transactions with several changes, deletions, puts that come back. Returns
/// the last revision.
pub(super) fn write(etcd: &Etcd, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<i64> {
    let url = etcd.url.clone();
    tokio::spawn(async move {
        let mut client = etcd_client::Client::connect([url], None).await.unwrap();
        let mut last = 0;
        let mut number = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let key = |of: u64| format!("w/{}", of % 50);
            let answer = match number % 7 {
                0 => client.delete(key(number), None).await.map(|a| a.header().unwrap().revision()),
                3 => {
                    let ops =
                        (0..3).map(|i| TxnOp::put(key(number + i), noise(number + i, 40), None)).collect::<Vec<_>>();
                    client.txn(Txn::new().and_then(ops)).await.map(|a| a.header().unwrap().revision())
                }
                _ => client.put(key(number), noise(number, 100), None).await.map(|a| a.header().unwrap().revision()),
            };
            // A member that is gone, in tests that end members.
            match answer {
                Ok(revision) => last = last.max(revision),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        last
    })
}

pub(super) fn stopping() -> (Arc<AtomicBool>, impl FnOnce()) {
    let stop = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&stop);
    (stop, move || set.store(true, Ordering::Relaxed))
}

pub(super) async fn metrics(port: u16) -> String {
    page(port, "/metrics").await
}

pub(super) async fn page(port: u16, path: &str) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    text
}
