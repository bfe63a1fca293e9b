//! The member of a real cluster that a save reads, and faults of that member meanwhile.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, MemberAddOptions};
use holdfast_contract::error::Result;
use holdfast_contract::{
    Compression, DATA_DIR, EtcdFlags, ExitClass, LatestRequest, Level, ListRequest, ProofLevel, SaveRequest,
    SavedReport, SnapshotFlags, StoreFlags, VerifyRequest,
};
use holdfast_layout::manifest::Manifest;
use snapshot_agent::verbs::verify::Verified;
use snapshot_agent::verbs::{latest, list, restore, save, verify};

use crate::balancer::Balancer;
use crate::narrow::{Slow, Way};
use crate::support::{Etcd, eventually, file_store, files, free_port, restore_request, save_request};

pub(crate) fn all(members: &[Etcd]) -> EtcdFlags {
    EtcdFlags { endpoints: members.iter().map(|member| member.url.clone()).collect(), ..EtcdFlags::default() }
}

/// Makes a save under a key of its own.
async fn saved(etcd: EtcdFlags, mount: &Path) -> Result<SavedReport> {
    save::run(save_request(etcd, file_store(mount), Compression::Zstd)).await
}

/// Checks that a save holds the acknowledged writes, and is soon done; returns the number of the member that it read.
pub(crate) async fn saves_all_of_it(what: &str, etcd: EtcdFlags, acknowledged: i64) -> (usize, SavedReport) {
    let mount = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let saved = saved(etcd, mount.path()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    println!("{what}: {} was read, {:.1} s", saved.member, begun.elapsed().as_secs_f32());
    assert!(begun.elapsed() < Duration::from_secs(90), "{what}: {:?}", begun.elapsed());
    assert!(saved.revision >= Some(acknowledged), "{what}: {:?} of {acknowledged}", saved.revision);
    let verification = saved.verification.as_ref().unwrap();
    assert_eq!(verification.level, Level::HashKV, "{what}: {verification:?}");
    sound(&file_store(mount.path()), &saved).await;
    (saved.member[1..].parse().unwrap(), saved)
}

/// Reads the stored snapshot back and proves it again.
async fn sound(store: &StoreFlags, saved: &SavedReport) -> String {
    let snapshot =
        SnapshotFlags { store: Some(store.clone()), key: Some(saved.key.clone()), ..SnapshotFlags::default() };
    let request = VerifyRequest {
        snapshot,
        level: ProofLevel::Stored,
        no_proof: true,
        deadline_seconds: 60,
        ..VerifyRequest::default()
    };
    match verify::run(request).await.unwrap() {
        Verified::Stored(found) => Verified::Stored(found).lines(),
        other => panic!("{other:?}"),
    }
}

/// Writes a key, whichever member leads by then; returns its revision.
async fn written(members: &[Etcd]) -> i64 {
    eventually("a write", async || {
        let answer = members[0].client().await.put("acknowledged", "", None).await.ok()?;
        Some(answer.header()?.revision())
    })
    .await
}

/// Waits until this member has a write that others acknowledged.
async fn has(member: &Etcd, acknowledged: i64) {
    eventually("it has caught up", async || {
        let options = etcd_client::GetOptions::new().with_serializable();
        let got = member.client().await.get("acknowledged", Some(options)).await.ok()?;
        (got.header()?.revision() >= acknowledged).then_some(())
    })
    .await;
}

pub(crate) async fn leader(members: &[Etcd]) -> usize {
    eventually("a leader", async || {
        for (i, member) in members.iter().enumerate() {
            if member.leads().await {
                return Some(i);
            }
        }
        None
    })
    .await
}

/// Makes this member the leader, whatever elections happen meanwhile.
pub(crate) async fn lead(members: &[Etcd], number: usize) {
    let target = id(&members[number]).await;
    eventually("the new leader", async || {
        let leads = leader(members).await;
        if leads != number {
            // The member may have lost the leadership, and answer with an error.
            let _asked = members[leads].client().await.move_leader(target).await;
        }
        (leads == number).then_some(())
    })
    .await;
}

pub(crate) async fn id(member: &Etcd) -> u64 {
    member.client().await.status().await.unwrap().header().unwrap().member_id()
}

/// Its connections stay open, and no call returns.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_stands_still_is_not_waited_for() {
    let members = Etcd::three().await;
    members[0].fill(30, 10_000).await;
    let (leads, first, report) = eventually("a save under one leader", async || {
        let leads = leader(&members).await;
        let (first, report) = saves_all_of_it("all well", all(&members), written(&members).await).await;
        (leader(&members).await == leads).then_some((leads, first, report))
    })
    .await;
    assert_ne!(first, leads, "there are followers");
    assert_eq!(report.verification.unwrap().agreed_by.len(), 2);

    // The member that a save reads first.
    let acknowledged = written(&members).await;
    let still = members[first].paused();
    let (second, report) = saves_all_of_it("a follower stands still", all(&members), acknowledged).await;
    assert_ne!(second, first);
    assert_eq!(report.verification.unwrap().agreed_by.len(), 2, "the other two voters agree");
    drop(still);
    members[first].ready().await;

    // The leader: the others name it until they have elected another leader.
    let leads = leader(&members).await;
    let acknowledged = written(&members).await;
    let still = members[leads].paused();
    let (third, _) = saves_all_of_it("the leader stands still", all(&members), acknowledged).await;
    assert_ne!(third, leads);

    // With two of three stopped no member can confirm the acknowledged writes: no backup, rather than an old one.
    let also = members[third].paused();
    let mount = tempfile::tempdir().unwrap();
    let error = saved(all(&members), mount.path()).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Transient, "{error}");
    assert_eq!(files(mount.path()), [] as [&str; 0]);
    drop((still, also));
    for member in &members {
        member.ready().await;
    }
    saves_all_of_it("all well again", all(&members), written(&members).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_vote_or_has_an_alarm_is_not_read_from() {
    let members = Etcd::three().await;
    members[0].fill(30, 10_000).await;
    let leads = leader(&members).await;
    let learner = Etcd::learner(&members).await;
    let acknowledged = written(&members).await;
    has(&learner, acknowledged).await;
    // A save prefers a follower to the leader.
    let beside_the_leader = vec![learner.url.clone(), members[leads].url.clone()];
    let flags = EtcdFlags { endpoints: beside_the_leader, ..EtcdFlags::default() };
    let (chosen, report) = saves_all_of_it("a learner and the leader", flags, acknowledged).await;
    assert_eq!(chosen, leads);
    assert_eq!(report.verification.unwrap().agreed_by, [format!("m{leads}")], "nor does a learner's word count");
    let mount = tempfile::tempdir().unwrap();
    let error = saved(learner.flags(), mount.path()).await.unwrap_err();
    assert!(error.message().contains("is a learner"), "{error}");

    let (first, _) = saves_all_of_it("no alarm", all(&members), acknowledged).await;
    let mut options = AlarmOptions::new();
    options.with_member(id(&members[first]).await);
    let alarm = members[leads].client().await.alarm(AlarmAction::Activate, AlarmType::Corrupt, Some(options)).await;
    alarm.unwrap();
    let (second, _) = saves_all_of_it("a follower has a CORRUPT alarm", all(&members), acknowledged).await;
    assert_ne!(second, first);
    let error = saved(members[first].flags(), mount.path()).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Corrupt, "{error}");
    assert!(error.message().contains("CORRUPT alarm"), "{error}");
    assert_eq!(files(mount.path()), [] as [&str; 0]);
}

/// Makes a save from this member alone, and acts while its stream is open.
async fn while_it_streams(what: &str, source: &Etcd, act: impl AsyncFnOnce()) -> SavedReport {
    let saved = while_it_streams_beside(what, source, vec![], act).await;
    let verification = saved.verification.as_ref().unwrap();
    assert_eq!(verification.level, Level::HashKV, "{what}: {verification:?}");
    saved
}

/// Makes the save with other endpoints too, none of which it reads from.
async fn while_it_streams_beside(
    what: &str,
    source: &Etcd,
    others: Vec<String>,
    act: impl AsyncFnOnce(),
) -> SavedReport {
    let slow = Slow::before(&source.url, Way::Down, 32 << 10).await;
    let (at_rest, mount) = (source.open_reads().await, tempfile::tempdir().unwrap());
    let acknowledged = source.client().await.get("k0", None).await.unwrap().header().unwrap().revision();
    let endpoints = [vec![slow.url()], others].concat();
    let flags = EtcdFlags { endpoints, ..EtcdFlags::default() };
    let request = save_request(flags, file_store(mount.path()), Compression::Zstd);
    let saving = tokio::spawn(save::run(request));
    eventually("the stream", async || (slow.passed() > 1 << 20).then_some(())).await;
    // etcd counts read transactions when it commits, which a busy machine delays.
    eventually("the stream's own read transaction", async || (source.open_reads().await > at_rest).then_some(())).await;
    act().await;
    assert!(slow.passed() < KEYS << 18, "{what}: most of it is with etcd still");
    slow.hurry();
    let saved = saving.await.unwrap().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(saved.revision, Some(acknowledged), "{what}: the snapshot is of its beginning");
    let verification = saved.verification.as_ref().unwrap();
    println!("{what}: {verification:?}");
    sound(&file_store(mount.path()), &saved).await;
    eventually("etcd is let go", async || (source.open_reads().await <= at_rest).then_some(())).await;
    saved
}

/// Number of keys that exceeds the buffers between etcd and the agent: 4 MiB of windows and the system's buffers.
const KEYS: u64 = 64;

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_to_a_member_while_it_streams_is_not_in_the_snapshot() {
    let members = Etcd::three().await;
    members[0].fill(KEYS, 1 << 20).await;
    let leads = leader(&members).await;
    let follower = (leads + 1) % 3;

    // To another member, away from the member that is read.
    let moved = async || {
        lead(&members, follower).await;
        written(&members).await;
    };
    let report = while_it_streams("the leader is another", &members[leads], moved).await;
    assert_eq!(report.keys, Some(KEYS + 1), "what was written meanwhile is not in it");

    // Added and not started: the member lists it, the file does not.
    let added = async || {
        let peer = format!("http://127.0.0.1:{}", free_port());
        let learner = MemberAddOptions::new().with_is_learner();
        members[follower].client().await.member_add([peer], Some(learner)).await.unwrap();
        written(&members).await;
    };
    let report = while_it_streams("a member more", &members[leads], added).await;
    let differences = report.verification.unwrap().differences;
    assert!(differences.len() == 1 && differences[0].contains("(learner)"), "{differences:?}");

    // etcd writes a new file, and waits with the exchange for the readers of the old one.
    let mut client = members[leads].client().await;
    let defragmented = std::sync::Mutex::new(None);
    let begun = async || {
        let running = tokio::spawn(async move { client.defragment().await });
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!running.is_finished(), "it waits");
        *defragmented.lock().unwrap() = Some(running);
    };
    while_it_streams("it is defragmented", &members[leads], begun).await;
    let ended = defragmented.lock().unwrap().take().unwrap();
    ended.await.unwrap().unwrap();
    members[leads].ready().await;

    // The member has compacted the snapshot's own revision by the time of the comparison.
    let compacted = async || {
        let newest = written(&members).await;
        members[leads].client().await.compact(newest, None).await.unwrap();
    };
    let report = while_it_streams_beside("the member is compacted", &members[leads], vec![], compacted).await;
    let verification = report.verification.unwrap();
    assert_eq!(verification.level, Level::Structure, "{verification:?}");
    assert!(verification.reason.as_ref().unwrap().contains("compacted"), "{verification:?}");
}

/// Two endpoints may lead to the same member: a second answer of the source is no confirmation by another member.
#[tokio::test(flavor = "multi_thread")]
async fn one_member_behind_two_endpoints_has_one_voice() {
    let members = Etcd::three().await;
    members[0].fill(KEYS, 1 << 20).await;
    let leads = leader(&members).await;
    let (source, balancer) = (&members[(leads + 1) % 3], Balancer::before(&members[leads].url).await);
    let acknowledged = written(&members).await;
    has(source, acknowledged).await;
    let turned = async || balancer.turn_to(&source.url);
    let report = while_it_streams_beside("an endpoint is turned", source, vec![balancer.url()], turned).await;
    let verification = report.verification.unwrap();
    assert_eq!((verification.level, verification.agreed_by), (Level::HashKV, vec![report.member]));
    let reason = verification.agreed_by_reason.unwrap();
    assert!(reason.contains("leads to member"), "{reason}");
}

/// However the member goes, half a stream is no snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_goes_while_it_streams_leaves_nothing() {
    for signal in ["-KILL", "-TERM"] {
        let mut etcd = Etcd::start().await;
        etcd.fill(KEYS, 1 << 20).await;
        let (slow, mount) = (Slow::before(&etcd.url, Way::Down, 32 << 10).await, tempfile::tempdir().unwrap());
        let flags = EtcdFlags { endpoints: vec![slow.url()], ..EtcdFlags::default() };
        let saving = tokio::spawn(save::run(save_request(flags, file_store(mount.path()), Compression::Zstd)));
        eventually("the stream", async || (slow.passed() > 1 << 20).then_some(())).await;
        etcd.ends_by(signal);
        assert!(slow.passed() < KEYS << 18, "{signal}: most of it was with etcd still");
        slow.hurry();
        let error = saving.await.unwrap().unwrap_err();
        assert_eq!(error.class(), ExitClass::Transient, "{signal}: {error}");
        assert_eq!(files(mount.path()), [] as [&str; 0], "{signal}");
    }
}

/// Two of three are gone for good: the data of the last member are saved at a person's request, and marked as such.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_without_a_quorum_is_saved_by_hand_and_marked() {
    let mut members = Etcd::three().await;
    members[0].fill(30, 10_000).await;
    let mount = tempfile::tempdir().unwrap();
    let store = file_store(mount.path());
    let asked = |no_quorum: bool| {
        let mut request = save_request(all(&members), store.clone(), Compression::Zstd);
        // No object owns this save.
        (request.owner_name, request.owner_uid, request.no_quorum) = (None, None, no_quorum);
        request
    };
    let (by_default, by_hand) = (asked(false), asked(true));
    let acknowledged = written(&members).await;
    let with_a_quorum = save::run(by_hand.clone()).await.unwrap();
    assert!(!with_a_quorum.without_quorum, "where there is one it changes nothing");
    assert!(with_a_quorum.revision >= Some(acknowledged));
    // The last member has every write before the others go.
    has(&members[2], acknowledged).await;
    let kept = files(mount.path());
    members[0].kill();
    members[1].kill();

    let error = save::run(by_default.clone()).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Transient, "{error}");
    let remedy = eventually("it knows that nobody leads", async || {
        let error = save::run(by_default.clone()).await.unwrap_err();
        error.message().contains("knows no leader").then_some(error)
    })
    .await;
    assert!(remedy.message().contains("--no-quorum"), "{remedy}");
    assert_eq!(files(mount.path()), kept, "nothing was stored");

    // etcd accepts no login without a quorum.
    let secrets = tempfile::tempdir().unwrap();
    let password = secrets.path().join("password");
    fs::write(&password, "canary").unwrap();
    let mut logs_in = by_hand.clone();
    (logs_in.etcd.user, logs_in.etcd.password_file) = (Some("root".to_owned()), Some(password));
    let error = save::run(logs_in).await.unwrap_err();
    assert!(error.message().contains("client certificate") && !error.message().contains("canary"), "{error}");

    let saved = save::run(by_hand.clone()).await.unwrap();
    assert!(saved.without_quorum);
    assert_eq!((saved.member.as_str(), saved.revision), ("m2", Some(acknowledged)));
    let verification = saved.verification.as_ref().unwrap();
    assert_eq!((verification.level, verification.agreed_by.as_slice()), (Level::HashKV, &["m2".to_owned()][..]));
    let manifest = fs::read(mount.path().join(&saved.key).join("manifest.json")).unwrap();
    assert!(Manifest::parse(&manifest).unwrap().without_quorum);
    let rehearsed = SaveRequest { dry_run: true, ..by_hand };
    assert!(snapshot_agent::verbs::save::dry_run::run(rehearsed).await.unwrap().without_quorum);

    let listing = ListRequest { store: store.clone(), deadline_seconds: 30, ..ListRequest::default() };
    let listed = list::run(listing).await.unwrap();
    let marks: Vec<_> = listed.iter().map(|entry| (entry.key == saved.key, entry.without_quorum)).collect();
    assert!(marks.len() == 2 && marks.iter().all(|(this, marked)| this == marked), "{marks:?}");
    let table = list::table(&listed);
    assert_eq!(table.matches("HashKV, no quorum").count(), 1, "{table}");
    let told = sound(&store, &saved).await;
    assert!(told.contains("saved without a quorum"), "{told}");
    assert!(!sound(&store, &with_a_quorum).await.contains("quorum"));
    let wanted = LatestRequest {
        store: store.clone(),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        lineage: None,
        deadline_seconds: 30,
        ..LatestRequest::default()
    };
    let newest = latest::run(wanted).await.unwrap();
    assert_eq!((newest.key, newest.without_quorum), (saved.key.clone(), true), "the newest there is, and marked");

    // The snapshot restores like any other.
    let volume = tempfile::tempdir().unwrap();
    let request = restore_request(store, &saved.key, volume.path());
    let peer = request.initial_cluster.split_once('=').unwrap().1.to_owned();
    let name = request.identity.member_name.clone();
    assert!(restore::run(request).await.unwrap().without_quorum);
    let again = Etcd::on(tempfile::tempdir().unwrap(), &volume.path().join(DATA_DIR), &name, &peer, &[]).await;
    assert_eq!(again.content().await.len(), 31);
}

/// All voters are gone for good: a learner answers few calls, but has the data.
#[tokio::test(flavor = "multi_thread")]
async fn a_learner_that_is_all_that_is_left_is_saved_by_hand() {
    let mut members = Etcd::three().await;
    members[0].fill(30, 10_000).await;
    let learner = Etcd::learner(&members).await;
    let acknowledged = written(&members).await;
    has(&learner, acknowledged).await;
    for member in &mut members {
        member.kill();
    }
    let mount = tempfile::tempdir().unwrap();
    let mut request = save_request(learner.flags(), file_store(mount.path()), Compression::Zstd);
    (request.owner_name, request.owner_uid) = (None, None);
    let error = save::run(request.clone()).await.unwrap_err();
    assert!(error.message().contains("is a learner"), "{error}");
    let saved = save::run(SaveRequest { no_quorum: true, ..request }).await.unwrap();
    println!("{:?}", saved.verification);
    assert_eq!((saved.without_quorum, saved.revision), (true, Some(acknowledged)));
    assert!(sound(&file_store(mount.path()), &saved).await.contains("saved without a quorum"));
}
