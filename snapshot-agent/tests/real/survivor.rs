//! A majority is lost for good: what the survey reads on the volumes that are left, and what a restore makes of one.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{
    DATA_DIR, Engine, ExitClass, LogEnd, RestoreRequest, RestoredReport, StoreFlags, SurveyReport, SurveyRequest,
    SurvivorReport,
};
use sha2::{Digest as _, Sha256};
use snapshot_agent::verbs::{restore, survey};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::members::leader;
use crate::support::{Etcd, Running, etcd_of, eventually, files, free_port, in_place_of, noise, restore_request};

/// Number of tasks that write.
const WRITERS: usize = 6;

/// Time of the writes before the members are killed.
const WRITES: Duration = Duration::from_secs(4);

const BUMP: u64 = 1_000_000_000;

/// A write that etcd has acknowledged: the key is written once.
type Acknowledged = Arc<Mutex<BTreeMap<i64, (String, Vec<u8>)>>>;

/// Writes until told otherwise; keeps what was acknowledged.
fn writers(members: &[Etcd], ends: &Arc<AtomicBool>, acknowledged: &Acknowledged) -> Vec<tokio::task::JoinHandle<()>> {
    let urls: Vec<String> = members.iter().map(|member| member.url.clone()).collect();
    let write = |writer: usize| {
        let (url, ends, acknowledged) = (urls[writer % urls.len()].clone(), Arc::clone(ends), Arc::clone(acknowledged));
        tokio::spawn(async move {
            let Ok(mut client) = etcd_client::Client::connect([url], None).await else { return };
            for number in 0_u64.. {
                let (key, value) = (format!("w{writer}/{number}"), noise(number, 200 + writer * 300));
                let written =
                    tokio::time::timeout(Duration::from_secs(5), client.put(key.as_str(), value.clone(), None));
                match written.await {
                    Ok(Ok(answer)) => {
                        let revision = answer.header().unwrap().revision();
                        acknowledged.lock().unwrap().insert(revision, (key, value));
                    }
                    _ if ends.load(Ordering::Relaxed) => return,
                    _ => {}
                }
                if ends.load(Ordering::Relaxed) {
                    return;
                }
            }
        })
    };
    (0..WRITERS).map(write).collect()
}

/// Path, length and sha256 of every file.
fn tree(folder: &Path) -> Vec<(String, u64, String)> {
    let mut all: Vec<_> = files(folder)
        .into_iter()
        .map(|path| {
            let bytes = fs::read(folder.join(&path)).unwrap();
            (path, bytes.len() as u64, hex::encode(Sha256::digest(&bytes)))
        })
        .collect();
    all.sort();
    all
}

async fn surveyed(volume: &Path) -> SurveyReport {
    survey::run(SurveyRequest { volume: volume.to_owned(), json: true }).await.unwrap()
}

fn request(line: &str, from: &Path, volume: &Path) -> RestoreRequest {
    RestoreRequest {
        from_volume: Some(from.to_owned()),
        etcd: Some(etcd_of(line)),
        etcdutl: etcd_of(line).with_file_name("etcdutl"),
        revision_bump: BUMP,
        ..restore_request(StoreFlags::default(), "", volume)
    }
}

/// A restored volume.
struct Returned {
    folder: TempDir,
    request: RestoreRequest,
    report: RestoredReport,
}

impl Returned {
    async fn of(line: &str, from: &Path, change: impl FnOnce(&mut RestoreRequest)) -> Result<Self> {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let mut request = request(line, from, &volume);
        change(&mut request);
        let before = tree(from);
        let ended = restore::run(request.clone()).await;
        assert_eq!(tree(from), before, "the survivor's volume is never written");
        if let Err(error) = &ended {
            let left = files(&volume);
            assert!(left.iter().all(|file| file.ends_with("refused.json")), "{left:?}: {error}");
        }
        Ok(Self { folder, request, report: ended? })
    }

    fn survivor(&self) -> &SurvivorReport {
        self.report.survivor.as_ref().unwrap()
    }

    /// Starts etcd on the data.
    async fn started(self, line: &str) -> Etcd {
        let (member, peer) = self.request.initial_cluster.split_once('=').unwrap();
        let data = self.request.volume.join(DATA_DIR);
        Etcd::on_line(line, self.folder, &data, member, peer, &["--initial-cluster-state=existing"]).await
    }
}

async fn get(etcd: &Etcd, key: &str) -> Option<Vec<u8>> {
    let answer = etcd.client().await.get(key, None).await.unwrap();
    answer.kvs().first().map(|kv| kv.value().to_vec())
}

/// Kills all members at once.
fn kill(members: &mut [Etcd]) {
    std::thread::scope(|scope| {
        for member in members {
            scope.spawn(|| member.kill());
        }
    });
}

/// The place of a member's last entry: the highest one has the most.
fn place(found: &SurveyReport) -> (Option<u64>, Option<u64>) {
    (found.last_term, found.last_index)
}

/// Kills a cluster under writes, and returns to each member's data.
async fn every_acknowledged_write_comes_back(line: &str, more: &[&str]) {
    let mut members = Etcd::three_by(etcd_of(line), "127.0.0.1", more).await;
    let (ends, acknowledged) = (Arc::new(AtomicBool::new(false)), Acknowledged::default());
    let writing = writers(&members, &ends, &acknowledged);
    tokio::time::sleep(WRITES).await;
    kill(&mut members);
    ends.store(true, Ordering::Relaxed);
    for writer in writing {
        writer.await.unwrap();
    }
    let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    let mut found = Vec::new();
    for member in &members {
        found.push(surveyed(member.data()).await);
    }
    let best = (0..3).max_by_key(|at| place(&found[*at])).unwrap();
    for (at, (member, found)) in members.iter().zip(&found).enumerate() {
        let begun = Instant::now();
        assert_eq!((found.members, found.auth_enabled), (Some(3), Some(false)), "{found:?}");
        assert!(found.log_damage.is_none() && found.database_damage.is_none(), "{found:?}");
        let engine = if at == best { Engine::Graft } else { Engine::Etcdutl };
        let returned = Returned::of(line, member.data(), |request| request.engine = engine).await.unwrap();
        let took = begun.elapsed();
        let (report, survivor) = (returned.report.clone(), returned.survivor().clone());
        assert_eq!((report.engine, &report.fell_back), (Some(engine), &None));
        assert_eq!(Some(&survivor.member_id), found.member_id.as_ref());
        assert_eq!(Some(survivor.last_index), found.last_index);
        assert_eq!(survivor.commit_index, found.commit_index);
        assert!(survivor.hash_kv.is_some() && survivor.hash_confirmed, "{survivor:?}");
        let revision = report.revision.unwrap();
        assert!(Some(revision) >= found.revision, "{revision}: {found:?}");
        // The same request again finds the volume complete.
        let again = restore::run(returned.request.clone()).await.unwrap();
        assert_eq!((again.already, again.survivor.as_deref()), (true, Some(&survivor)));
        let etcd = returned.started(line).await;
        let mut client = etcd.client().await;
        let list = client.member_list().await.unwrap();
        assert_eq!(list.members().len(), 1, "{list:?}");
        assert_ne!(format!("{:x}", list.header().unwrap().cluster_id()), survivor.cluster_id);
        let bumped = client.get("w0/0", None).await.unwrap().header().unwrap().revision();
        assert!(bumped >= revision + i64::try_from(BUMP).unwrap(), "{bumped}, {revision}");
        let mut held = 0;
        for (written, (key, value)) in &acknowledged {
            if at == best || *written <= revision {
                assert_eq!(
                    get(&etcd, key).await.as_ref(),
                    Some(value),
                    "{line}, {key} of revision {written} at {revision}"
                );
                held += 1;
            }
        }
        println!(
            "{line}: member {at}{}: {held} of {} acknowledged writes, revision {revision}, {} entries beyond the commit index, \
             log {} KiB, database {} KiB, {:.1} s",
            if at == best { " (best)" } else { "" },
            acknowledged.len(),
            survivor.beyond_commit,
            found.log_bytes.unwrap() >> 10,
            found.db_bytes.unwrap() >> 10,
            took.as_secs_f32()
        );
        assert!(acknowledged.len() > 100, "{}", acknowledged.len());
        // etcd ends a watch from before the restore: the client lists again.
        let compacted = client.get("w0/0", Some(etcd_client::GetOptions::new().with_revision(revision))).await;
        assert!(compacted.is_err_and(|error| error.to_string().contains("compacted")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_5_every_acknowledged_write_comes_back() {
    every_acknowledged_write_comes_back("3.5", &["--snapshot-count=500"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_6_every_acknowledged_write_comes_back() {
    every_acknowledged_write_comes_back("3.6", &["--snapshot-count=500"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_3_7_every_acknowledged_write_comes_back() {
    every_acknowledged_write_comes_back("3.7", &["--snapshot-count=500"]).await;
}

/// Two members join without a vote at the same moment, which etcd permits with `--max-learners`, and get their votes.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_joined_at_once_are_in_the_log() {
    for line in ["3.6", "3.7"] {
        let peers = [0, 1, 2].map(|_| format!("http://127.0.0.1:{}", free_port()));
        let all = |to: usize| {
            let members: Vec<_> = peers[..to].iter().enumerate().map(|(at, peer)| format!("m{at}={peer}")).collect();
            format!("--initial-cluster={}", members.join(","))
        };
        let start = async |at: usize, more: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            let data = folder.path().join("data");
            Etcd::on_line(line, folder, &data, &format!("m{at}"), &peers[at], more).await
        };
        let first = start(0, &[&all(1), "--max-learners=9"]).await;
        first.fill(50, 100).await;
        let mut client = first.client().await;
        let mut ids = vec![];
        for peer in &peers[1..] {
            let options = etcd_client::MemberAddOptions::new().with_is_learner();
            let added = eventually("a member more", async || {
                first.client().await.member_add([peer], Some(options.clone())).await.ok()
            });
            ids.push(added.await.member().unwrap().id());
        }
        let more = [all(3), "--max-learners=9".to_owned(), "--initial-cluster-state=existing".to_owned()];
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let joins = futures::future::join(start(1, &more), start(2, &more));
        let promotes = async {
            for id in &ids {
                eventually("a vote", async || first.client().await.member_promote(*id).await.ok()).await;
            }
        };
        let ((second, third), ()) = futures::future::join(joins, promotes).await;
        client.put("last", "kept", None).await.unwrap();
        eventually("the last write", async || {
            let value = second.client().await.get("last", None).await.ok()?;
            (value.count() == 1).then_some(())
        })
        .await;
        let mut members = [first, second, third];
        kill(&mut members);
        let returned = Returned::of(line, members[1].data(), |_| {}).await.unwrap();
        let etcd = returned.started(line).await;
        assert_eq!(get(&etcd, "last").await.as_deref(), Some(&b"kept"[..]), "{line}");
    }
}

/// Copies a folder.
fn copied(from: &Path, to: &Path) {
    for file in files(from) {
        fs::create_dir_all(to.join(&file).parent().unwrap()).unwrap();
        fs::copy(from.join(&file), to.join(&file)).unwrap();
    }
}

/// Starts etcd's own way out of a lost quorum on a data directory, without the agent.
fn forced(line: &str, data: &Path) -> (Running, String) {
    let (client, peer) = (format!("http://127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
    let mut command = Command::new(etcd_of(line));
    command.arg(format!("--data-dir={}", data.display())).arg("--force-new-cluster").arg("--log-level=error");
    command.arg(format!("--listen-client-urls={client}")).arg(format!("--advertise-client-urls={client}"));
    command.arg(format!("--listen-peer-urls={peer}")).arg("--unsafe-no-fsync").stdin(Stdio::null());
    (Running(command.spawn().unwrap()), client)
}

/// The leader's last write is in its log, and no other member answered: the entry is not known as committed.
async fn an_entry_that_is_not_known_as_committed_is_kept(line: &str) {
    let mut members = Etcd::three_by(etcd_of(line), "127.0.0.1", &[]).await;
    members[0].fill(20, 100).await;
    let leads = leader(&members).await;
    let paused: Vec<_> = (0..3).filter(|at| *at != leads).map(|at| members[at].paused()).collect();
    let mut client = members[leads].client().await;
    let write = tokio::spawn(async move { client.put("in flight", "kept", None).await });
    let log = members[leads].data().join("member/wal");
    eventually("the entry in the leader's log", async || {
        let holds = |path: &String| {
            fs::read(log.join(path)).is_ok_and(|bytes| bytes.windows(9).any(|word| word == b"in flight"))
        };
        files(&log).iter().any(holds).then_some(())
    })
    .await;
    members[leads].kill();
    drop(paused);
    assert!(write.await.unwrap().is_err(), "etcd has not acknowledged the write");
    kill(&mut members);
    let data = members[leads].data();
    let found = surveyed(data).await;
    assert!(found.last_index > found.commit_index, "{found:?}");

    let copy = tempfile::tempdir().unwrap();
    copied(data, copy.path());
    let (_etcd, url) = forced(line, copy.path());
    let forced = eventually("etcd alone", async || {
        let mut client = etcd_client::Client::connect([&url], None).await.ok()?;
        client.get("in flight", None).await.ok()
    })
    .await;
    assert!(forced.kvs().is_empty(), "etcd alone drops the entry");

    let returned = Returned::of(line, data, |_| ()).await.unwrap();
    assert!(returned.survivor().beyond_commit >= 1, "{:?}", returned.survivor());
    let etcd = returned.started(line).await;
    assert_eq!(get(&etcd, "in flight").await.as_deref(), Some(&b"kept"[..]), "{line}");
    assert_eq!(get(&etcd, "k19").await, Some(noise(19, 100)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_not_known_as_committed_is_kept_by_every_line() {
    for line in ["3.5", "3.6", "3.7"] {
        an_entry_that_is_not_known_as_committed_is_kept(line).await;
    }
}

/// One stopped member with some writes.
async fn stopped(line: &str) -> Etcd {
    let mut etcd = Etcd::of(line).await;
    etcd.fill(50, 3000).await;
    // etcd commits its database every tenth of a second.
    tokio::time::sleep(Duration::from_millis(500)).await;
    etcd.kill();
    etcd
}

async fn refused(line: &str, from: &Path, change: impl FnOnce(&mut RestoreRequest)) -> Error {
    Returned::of(line, from, change).await.err().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_end_is_cut_off_and_damage_before_it_is_refused() {
    let etcd = stopped("3.6").await;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join(DATA_DIR);
    copied(etcd.data(), &data);
    let wal = files(&data.join("member/wal")).into_iter().find(|name| name.strip_suffix(".wal").is_some()).unwrap();
    let wal = data.join("member/wal").join(wal);
    let whole = surveyed(folder.path()).await;
    assert_eq!(whole.log_end, Some(LogEnd::Whole));
    let end = usize::try_from(whole.log_bytes.unwrap()).unwrap();
    let bytes = fs::read(&wal).unwrap();
    // The last records are cut off, and the database has them: a disk that lied about a sync.
    let mut torn = bytes.clone();
    torn[end - 1000..].fill(0);
    fs::write(&wal, &torn).unwrap();
    let found = surveyed(folder.path()).await;
    assert!(found.log_end == Some(LogEnd::Torn) && found.last_index < whole.last_index, "{found:?}");
    assert!(found.last_index < found.consistent_index, "{found:?}");
    let error = refused("3.6", folder.path(), |_| ()).await;
    assert!(error.class() == ExitClass::Corrupt && error.message().contains("a part of the log is lost"), "{error}");
    // A record of 4 KiB of which one sector has reached the disk.
    let mut torn = bytes.clone();
    torn[end..end + 12].copy_from_slice(&[0, 0x10, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    fs::write(&wal, &torn).unwrap();
    let returned = Returned::of("3.6", folder.path(), |_| ()).await.unwrap();
    assert_eq!(returned.survivor().log_end, LogEnd::Torn);
    assert_eq!(Some(returned.survivor().last_index), whole.last_index);
    assert_eq!(get(&returned.started("3.6").await, "k49").await, Some(noise(49, 3000)));
    // A flipped bit of a value.
    let mut broken = bytes.clone();
    broken[end / 2] ^= 1;
    fs::write(&wal, &broken).unwrap();
    let found = surveyed(folder.path()).await;
    assert!(found.log_damage.is_some() && found.last_index.is_none() && found.term.is_none(), "{found:?}");
    assert!(found.member_id.is_some() && found.revision.is_some());
    let error = refused("3.6", folder.path(), |_| ()).await;
    assert!(error.class() == ExitClass::Corrupt && error.message().contains("changed nothing"), "{error}");
    // A log without its end, and a database that knows more.
    fs::write(&wal, &bytes[..bytes.len().min(2000)]).unwrap();
    let error = refused("3.6", folder.path(), |_| ()).await;
    assert_eq!(error.class(), ExitClass::Corrupt, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_etcd_is_left_alone_and_a_stuck_one_ends_at_the_deadline() {
    let mut etcd = Etcd::of("3.6").await;
    etcd.fill(5, 100).await;
    let volume = etcd.data().to_owned();
    let error = survey::run(SurveyRequest { volume: volume.clone(), json: false }).await.unwrap_err();
    assert!(error.class() == ExitClass::Refused && error.message().contains("an etcd runs on"), "{error}");
    let other = tempfile::tempdir().unwrap();
    let error = restore::run(request("3.6", &volume, other.path())).await.unwrap_err();
    assert!(error.class() == ExitClass::Refused && error.message().contains("an etcd runs on"), "{error}");
    etcd.kill();
    let both = |request: &mut RestoreRequest| "a/b/c/d".clone_into(&mut request.key);
    let error = restore::run({
        let mut request = request("3.6", &volume, other.path());
        both(&mut request);
        request
    })
    .await
    .unwrap_err();
    assert!(error.class() == ExitClass::Config && error.message().contains("--from-volume"), "{error}");
    // An etcd that never answers.
    let stuck = in_place_of(&etcd_of("3.6"), &other.path().join("etcd"), "exec /bin/sleep 60");
    let begun = Instant::now();
    let error = refused("3.6", &volume, |request| {
        request.etcd = Some(stuck.clone());
        request.deadline_seconds = Some(3);
    })
    .await;
    assert!(error.class() == ExitClass::Deadline && begun.elapsed() < Duration::from_secs(30), "{error}");
    let ends = in_place_of(&etcd_of("3.6"), &other.path().join("etcd"), "echo panic: it had a bad day >&2; exit 2");
    let error = refused("3.6", &volume, |request| request.etcd = Some(ends)).await;
    assert!(error.class() == ExitClass::Transient && error.message().contains("a bad day"), "{error}");
    let error = refused("3.6", &volume, |request| request.etcd = Some(etcd_of("3.7"))).await;
    assert!(error.class() == ExitClass::Config && error.message().contains("the same minor version"), "{error}");
    let error = refused("3.6", &volume, |request| request.quota_backend_bytes = Some(4096)).await;
    assert!(error.class() == ExitClass::Config && error.message().contains("quota"), "{error}");
    let etcd = Returned::of("3.6", &volume, |_| ()).await.unwrap().started("3.6").await;
    assert_eq!(get(&etcd, "k4").await, Some(noise(4, 100)));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_authentication_on_no_login_is_needed() {
    for line in ["3.5", "3.6", "3.7"] {
        let mut etcd = Etcd::of(line).await;
        etcd.fill(20, 100).await;
        let secret = tempfile::NamedTempFile::new().unwrap();
        let flags = etcd.locked("canary-of-root", secret.path()).await;
        etcd.kill();
        let found = surveyed(etcd.data()).await;
        let error = refused(line, etcd.data(), |request| request.refuse_auth = true).await;
        assert_eq!(error.class(), ExitClass::AuthRequired, "{error}");
        let returned = Returned::of(line, etcd.data(), |_| ()).await.unwrap();
        let survivor = returned.survivor();
        assert!(survivor.hash_kv.is_some() && !survivor.hash_confirmed, "{survivor:?}");
        assert_eq!(Some(survivor.last_index), found.last_index);
        assert!(returned.report.came_along.as_ref().unwrap().auth_enabled, "{line}");
        assert_eq!(returned.report.revision, Some(21), "{line}");
        drop(flags);
    }
}

/// This machine's own address on its network, if it has one. No packet is sent.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then(|| address.to_string())
}

/// The etcd of the replay has the ID of a member that others may still know: a lost member that is alive after all must not
/// hear from it.
#[tokio::test(flavor = "multi_thread")]
async fn the_replay_reaches_no_member_of_the_lost_cluster() {
    let Some(host) = own_address() else { return };
    let mut members = Etcd::three_by(etcd_of("3.6"), &host, &[]).await;
    members[0].fill(20, 100).await;
    let peers: Vec<SocketAddr> =
        members.iter().skip(1).map(|member| member.peer().trim_start_matches("http://").parse().unwrap()).collect();
    kill(&mut members);
    let calls = Arc::new(AtomicBool::new(false));
    for peer in peers {
        let listener = eventually("the port of a lost member", async || TcpListener::bind(peer).await.ok()).await;
        let calls = Arc::clone(&calls);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                calls.store(true, Ordering::Relaxed);
            }
        });
    }
    let returned = Returned::of("3.6", members[0].data(), |_| ()).await.unwrap();
    assert_eq!(returned.report.revision, Some(21));
    assert!(!calls.load(Ordering::Relaxed), "the replay has called a lost member");
    // Without the proxy that does not exist, etcd does call.
    let copy = tempfile::tempdir().unwrap();
    copied(members[0].data(), copy.path());
    let (_etcd, _) = forced("3.6", copy.path());
    eventually("a call of etcd alone", async || calls.load(Ordering::Relaxed).then_some(())).await;
}

/// Path of a data directory for the measurement by hand.
const DATA: &str = "HOLDFAST_TEST_SURVIVOR";

/// Measures a survey and a restore: of the data directory in the variable, with the etcd in `HOLDFAST_ETCD_3_6`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement by hand"]
async fn measure() {
    let from = PathBuf::from(std::env::var_os(DATA).expect("name a data directory"));
    let begun = Instant::now();
    println!("{:?}", surveyed(&from).await);
    println!("survey: {:?}", begun.elapsed());
    let begun = Instant::now();
    let returned = Returned::of("3.6", &from, |_| ()).await.unwrap();
    println!("restore: {:?}: {:?}", begun.elapsed(), returned.report);
}
