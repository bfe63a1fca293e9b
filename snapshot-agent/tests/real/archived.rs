//! Snapshots that a rule of the bucket has moved to an archive: an older one is passed over and named, the newest one never.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream;
use holdfast_contract::{
    Compression, EtcdFlags, ExitClass, LatestRequest, ListRequest, Policy, PruneRequest, SaveRequest, SnapshotFlags,
    StoreFlags, VerifyRequest,
};
use snapshot_agent::verbs::list::State;
use snapshot_agent::verbs::{latest, list, prune, verify};

use crate::faults::{messages, save_stream, snapshot};
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy, error};
use crate::support::{S3, save_request};

const UID: &str = "1a2b3c4d-0000";

/// A store whose reads of the objects with these texts in their paths fail by these codes.
pub(crate) struct Shelved {
    pub(crate) proxy: S3Proxy,
    codes: Arc<Mutex<Vec<(String, &'static str)>>>,
}

impl Shelved {
    pub(crate) async fn before(s3: &S3) -> Self {
        let codes = Arc::<Mutex<Vec<(String, &'static str)>>>::default();
        let known = Arc::clone(&codes);
        let rule = move |asked: &Asked| {
            let code = known.lock().unwrap().iter().find(|(text, _)| asked.uri.contains(text)).map(|(_, code)| *code);
            match code {
                Some(code) if asked.op == Op::Get => Fault::Answer(403, error(code)),
                _ => Fault::Pass,
            }
        };
        Self { proxy: S3Proxy::before(s3, rule).await, codes }
    }

    /// Archives the objects with these texts in their paths, and no others.
    pub(crate) fn archive(&self, texts: &[&str]) {
        self.refuse(texts, "InvalidObjectState");
    }

    fn refuse(&self, texts: &[&str], code: &'static str) {
        *self.codes.lock().unwrap() = texts.iter().map(|text| ((*text).to_owned(), code)).collect();
    }
}

/// Saves a snapshot, in a second of its own.
async fn save(s3: &S3, pod: &str, cluster_uid: &str) -> String {
    let request = SaveRequest {
        pod_uid: Some(pod.to_owned()),
        cluster_uid: Some(cluster_uid.to_owned()),
        ..save_request(EtcdFlags::default(), s3.flags(), Compression::None)
    };
    let key = save_stream(request, stream::iter(messages(&snapshot(64)))).await.unwrap().key;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    key
}

fn newest(store: &StoreFlags, lineage: Option<&str>) -> LatestRequest {
    LatestRequest {
        store: store.clone(),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        lineage: lineage.map(str::to_owned),
        deadline_seconds: 60,
        ..LatestRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_archived_snapshot_is_passed_over_and_a_newer_one_never() {
    let s3 = S3::start().await;
    let mut keys = vec![];
    for pod in ["aaaa0000-1", "bbbb0000-2", "cccc0000-3"] {
        keys.push(save(&s3, pod, UID).await);
    }
    let [first, second, third] = [0, 1, 2].map(|number| keys[number].as_str());
    let shelved = Shelved::before(&s3).await;
    let store = shelved.proxy.flags(&s3);

    shelved.archive(&[first, second]);
    assert_eq!(latest::run(newest(&store, None)).await.unwrap().key, third);
    let request = VerifyRequest {
        snapshot: SnapshotFlags { store: Some(store.clone()), ..SnapshotFlags::default() },
        latest: true,
        namespace: Some("shop".to_owned()),
        cluster: Some("orders".to_owned()),
        deadline_seconds: 60,
        ..VerifyRequest::default()
    };
    let found = latest::run(request.search().unwrap()).await.unwrap().key;
    verify::run(request.found(found, 0)).await.unwrap();
    let all = ListRequest { store: store.clone(), deadline_seconds: 60, ..ListRequest::default() };
    let listed: Vec<_> = list::run(all).await.unwrap().into_iter().map(|entry| (entry.key, entry.state)).collect();
    let states = [(third, State::Complete), (second, State::Archived), (first, State::Archived)];
    assert_eq!(listed, states.map(|(key, state)| (key.to_owned(), state)));
    let pruning = PruneRequest {
        store: store.clone(),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        cluster_uid: UID.to_owned(),
        schedule_uid: "s1".to_owned(),
        policy: Policy { keep_last: 1, ..Policy::default() },
        time_zone: "Etc/UTC".to_owned(),
        deadline_seconds: 60,
        ..PruneRequest::default()
    };
    let pruned = prune::run(pruning).await.unwrap();
    assert_eq!((pruned.failed, pruned.report.removed, pruned.snapshots.len()), (None, 0, 3));

    // The newest one, and all of them.
    for archived in [&[third][..], &[second, third], &[first, second, third]] {
        shelved.archive(archived);
        let refused = latest::run(newest(&store, None)).await.unwrap_err();
        assert_eq!(refused.class(), ExitClass::Config, "{archived:?}: {refused}");
        for words in [third, "archived", "restore the object in the store"] {
            assert!(refused.message().contains(words), "{archived:?}: {refused}");
        }
    }
    // A denied manifest is not an archived one, and neither is a corrupt one.
    shelved.refuse(&[first], "AccessDenied");
    assert_eq!(latest::run(newest(&store, None)).await.unwrap_err().class(), ExitClass::Denied);
    shelved.archive(&[first]);
    let manifest = s3.file(third, "manifest.json");
    let whole = fs::read(&manifest).unwrap();
    fs::write(&manifest, "{").unwrap();
    let report = latest::run(newest(&store, None)).await.unwrap();
    assert!(report.key == second && report.passed_over[0].contains(third), "{report:?}");
    shelved.archive(&[second]);
    let refused = latest::run(newest(&store, None)).await.unwrap_err();
    assert!(refused.message().contains(second), "{refused}");
    fs::write(&manifest, whole).unwrap();
}

/// Only a manifest shows that a later cluster continues an earlier one.
#[tokio::test(flavor = "multi_thread")]
async fn an_archived_lineage_is_a_doubt() {
    let s3 = S3::start().await;
    let old = save(&s3, "aaaa0000-1", UID).await;
    let new = save(&s3, "bbbb0000-2", "ffff0000-1111").await;
    let shelved = Shelved::before(&s3).await;
    let store = shelved.proxy.flags(&s3);
    shelved.archive(&[&old]);
    let refused = latest::run(newest(&store, None)).await.unwrap_err();
    assert_eq!(refused.class(), ExitClass::Refused, "{refused}");
    assert!(refused.message().contains("1a2b3c4d") && refused.message().contains("ffff0000"), "{refused}");
    assert_eq!(latest::run(newest(&store, Some("ffff0000"))).await.unwrap().key, new);
    let refused = latest::run(newest(&store, Some(UID))).await.unwrap_err();
    assert!(refused.class() == ExitClass::Config && refused.message().contains(&old), "{refused}");
}
