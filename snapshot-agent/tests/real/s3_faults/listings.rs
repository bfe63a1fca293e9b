//! Listings of an S3 server that omit keys, repeat keys, never end or contain impossible keys: the agent concludes nothing from
//! them.

use std::time::{Duration, Instant};

use holdfast_contract::{
    CopyRequest, ExitClass, InspectRequest, LatestRequest, ListRequest, RemoveRequest, SaveRequest, StoreFlags,
    ToStore, Verify,
};

use super::{Rule, each, request};
use crate::faults::{messages, save_stream, snapshot};
use crate::s3_proxy::{Asked, Fault, Op, S3Proxy};
use crate::support::S3;
use futures::stream;
use snapshot_agent::verbs::{copy, inspect, latest, list, remove};

/// Every verb that reads: a listing without end, one that nests too deep, an error without end.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_store_answers_is_bounded() {
    fn deep() -> String {
        let (open, close) = ("<a>".repeat(200_000), "</a>".repeat(200_000));
        format!("<ListBucketResult>{open}{close}</ListBucketResult>")
    }
    fn again(_: &Asked) -> Fault {
        let page = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken>\
                    <CommonPrefixes><Prefix>pre/fix/shop/orders/1a2b3c4d/</Prefix></CommonPrefixes></ListBucketResult>";
        Fault::Answer(200, page.to_owned())
    }
    let rows: Vec<(&str, Rule)> = vec![
        ("the same page of the listing", again),
        ("a deep one", |_| Fault::Answer(200, deep())),
        ("a page for people", |_| Fault::Answer(200, "<html><body>Back soon</body></html>".to_owned())),
        ("an endless one", |_| Fault::Endless(200)),
        ("an endless error", |_| Fault::Endless(403)),
        ("entities", |_| {
            Fault::Answer(
                200,
                "<!DOCTYPE a [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>\
                 <ListBucketResult><Name>&b;</Name></ListBucketResult>"
                    .to_owned(),
            )
        }),
    ];
    let s3 = S3::start().await;
    for (what, rule) in rows {
        let proxy = S3Proxy::before(&s3, rule).await;
        let find = InspectRequest {
            store: proxy.flags(&s3),
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
            owner_uid: "99887766-0000".to_owned(),
            deadline_seconds: 50,
            ..InspectRequest::default()
        };
        let begun = Instant::now();
        let error = inspect::run(find).await.unwrap_err();
        // "Not found" is final for a snapshot (I18): never on such answers.
        assert_ne!(error.class(), ExitClass::NotFound, "{what}: {error}");
        println!("{what}, {:.1} s: {:?} {}", begun.elapsed().as_secs_f32(), error.class(), error.message());
        assert!(error.message().len() < 600 && !error.message().contains("canary"), "{what}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(45), "{what}: {:?}", begun.elapsed());
        assert!(proxy.count(Op::List) < 20, "{what}: asked {} times", proxy.count(Op::List));
    }
}

/// Files are listed like folders: a listing of proofs that never ends is given up too.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_of_proofs_that_repeats_itself_is_given_up() {
    let s3 = S3::start().await;
    save_stream(request(s3.flags()), stream::iter(messages(&snapshot(64)))).await.unwrap();
    let proxy = S3Proxy::before(&s3, |a| {
        let page = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken>\
                    </ListBucketResult>";
        if a.uri.contains("proofs") { each(a, Op::List, Fault::Answer(200, page.to_owned())) } else { Fault::Pass }
    })
    .await;
    let wanted = ListRequest {
        store: proxy.flags(&s3),
        namespace: Some("shop".to_owned()),
        cluster: Some("orders".to_owned()),
        deadline_seconds: 10,
        ..ListRequest::default()
    };
    let error = list::run(wanted).await.unwrap_err();
    assert_eq!(error.class(), ExitClass::Config, "{error}");
    assert!(error.message().contains("the same page of the listing"), "{error}");
    assert!(proxy.count(Op::List) < 20, "asked {} times", proxy.count(Op::List));
}

/// A folder whose name starts with another folder's name is not that folder.
#[tokio::test(flavor = "multi_thread")]
async fn a_sibling_is_not_listed() {
    let s3 = S3::start().await;
    for cluster in ["orders", "orders-2"] {
        let request = SaveRequest { cluster: cluster.to_owned(), verify: Verify::Stream, ..request(s3.flags()) };
        save_stream(request, stream::iter(messages(&snapshot(64)))).await.unwrap();
    }
    let wanted = ListRequest {
        store: s3.flags(),
        namespace: Some("shop".to_owned()),
        cluster: Some("orders".to_owned()),
        deadline_seconds: 30,
        ..ListRequest::default()
    };
    let listed = list::run(wanted).await.unwrap();
    let text = serde_json::to_string(&listed).unwrap();
    assert!(text.contains("shop/orders/") && !text.contains("orders-2"), "{text}");
}

/// A reader needs only a bucket's name, with or without a prefix.
#[tokio::test(flavor = "multi_thread")]
async fn a_whole_store_is_listed() {
    let s3 = S3::start().await;
    for (url, namespace, cluster) in
        [("s3://bkt/pre/fix", "shop", "orders"), ("s3://bkt/pre/fix", "bank", "ledger"), ("s3://bkt", "top", "level")]
    {
        let store = StoreFlags { url: url.to_owned(), ..s3.flags() };
        let filed = (namespace.to_owned(), cluster.to_owned());
        let request = SaveRequest { namespace: filed.0, cluster: filed.1, ..request(store) };
        save_stream(request, stream::iter(messages(&snapshot(64)))).await.unwrap();
    }
    for (url, expected) in [("s3://bkt/pre/fix", &["bank/ledger", "shop/orders"][..]), ("s3://bkt", &["top/level"])] {
        let store = StoreFlags { url: url.to_owned(), ..s3.flags() };
        let listed = list::run(ListRequest { store, deadline_seconds: 30, ..ListRequest::default() }).await.unwrap();
        let clusters = listed.iter().map(|entry| entry.key.splitn(3, '/').take(2).collect::<Vec<_>>().join("/"));
        let mut clusters: Vec<_> = clusters.collect();
        clusters.sort();
        assert_eq!(clusters, expected, "{url}");
    }
}

/// Listings of weaker stores than S3 lag: they lack new keys and contain deleted keys.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_decided_by_a_listing_alone() {
    const NOTHING: &str = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
    let s3 = S3::start().await;
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&snapshot(64)))).await.unwrap();

    // Stored and not listed: the snapshot is not lost for a verb that has its key, and the next save does not touch it.
    let blind = S3Proxy::before(&s3, |a| each(a, Op::List, Fault::Answer(200, NOTHING.to_owned()))).await;
    let manifest = snapshot_agent::catalog::recall::manifest(&blind.flags(&s3), &saved.key, 30).await.unwrap();
    assert_eq!(manifest.sha256, saved.sha256);
    let again = save_stream(request(blind.flags(&s3)), stream::iter(messages(&snapshot(64)))).await.unwrap();
    assert_ne!(again.key, saved.key);
    assert!(s3.file(&saved.key, "manifest.json").exists());

    // Listed and deleted: an upload that never existed is not ended, and a folder without a manifest is no snapshot.
    let (lineage, name) = saved.key.rsplit_once('/').unwrap();
    let (ghost, prefix) = (name.replace(&name[..4], "2001"), format!("pre/fix/{lineage}"));
    let zombies = format!(
        "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>{prefix}/uploads/{ghost}.json</Key>\
         <LastModified>2001-01-01T00:00:00Z</LastModified><Size>9</Size><ETag>x</ETag></Contents>\
         <CommonPrefixes><Prefix>{prefix}/{ghost}/</Prefix></CommonPrefixes></ListBucketResult>"
    );
    let haunted = S3Proxy::before(&s3, move |a| each(a, Op::List, Fault::Answer(200, zombies.clone()))).await;
    save_stream(request(haunted.flags(&s3)), stream::iter(messages(&snapshot(64)))).await.unwrap();
    assert_eq!((haunted.count(Op::Abort), haunted.count(Op::Delete)), (0, 1), "its own intent alone is removed");
    let wanted = ListRequest {
        store: haunted.flags(&s3),
        namespace: Some("shop".to_owned()),
        cluster: Some("orders".to_owned()),
        cluster_uid: request(s3.flags()).cluster_uid,
        deadline_seconds: 30,
        ..ListRequest::default()
    };
    let listed = list::run(wanted).await.unwrap();
    assert_eq!(listed.iter().map(|entry| entry.state).collect::<Vec<_>>(), [list::State::Incomplete]);
}

/// Objects of other programs, with keys that S3 accepts and no path can have: they are skipped, and nothing is removed for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_no_path_keeps_nobody_from_the_snapshots() {
    fn with(keys: &[&str]) -> String {
        let contents = keys.iter().map(|key| {
            format!(
                "<Contents><Key>pre/fix/{key}</Key><LastModified>2026-11-21T10:00:00.000Z</LastModified>\
                 <ETag>x</ETag><Size>3</Size></Contents>"
            )
        });
        let prefixes = "<CommonPrefixes><Prefix>pre/fix//</Prefix></CommonPrefixes>\
                        <CommonPrefixes><Prefix>pre/fix/../</Prefix></CommonPrefixes>";
        format!("{}{prefixes}</ListBucketResult>", contents.collect::<String>())
    }
    let s3 = S3::start().await;
    let saved = save_stream(request(s3.flags()), stream::iter(messages(&snapshot(50)))).await.unwrap();
    let odd = with(&["a//b", "a/../b", "./x", "a/&#x1;b", &format!("{}//manifest.json", saved.key)]);
    let proxy = S3Proxy::before(&s3, move |a| match a.op {
        Op::List => Fault::Swap("</ListBucketResult>", odd.clone()),
        _ => Fault::Pass,
    })
    .await;
    let all = ListRequest { store: proxy.flags(&s3), deadline_seconds: 60, ..ListRequest::default() };
    let found = list::run(all).await.unwrap();
    assert!(matches!(found.as_slice(), [one] if one.key == saved.key), "{found:?}");
    let newest = LatestRequest {
        store: proxy.flags(&s3),
        namespace: "shop".to_owned(),
        cluster: "orders".to_owned(),
        deadline_seconds: 60,
        ..LatestRequest::default()
    };
    assert_eq!(latest::run(newest).await.unwrap().key, saved.key);
    let other = tempfile::tempdir().unwrap();
    let copying = CopyRequest {
        store: proxy.flags(&s3),
        to: ToStore(crate::support::file_store(other.path())),
        all: true,
        namespace: Some("shop".to_owned()),
        cluster: Some("orders".to_owned()),
        deadline_seconds: 60,
        ..CopyRequest::default()
    };
    let copied = copy::run(copying).await.unwrap();
    assert!(copied.failed.is_none() && copied.copies.len() == 1, "{copied:?}");

    // A key in the folder `holds` is a hold, whatever its name.
    let json = std::fs::read(s3.file(&saved.key, "manifest.json")).unwrap();
    let sha256 = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&json));
    let held = with(&[&format!("{}/holds//audit", saved.key)]);
    let proxy = S3Proxy::before(&s3, move |a| match a.op {
        Op::List => Fault::Swap("</ListBucketResult>", held.clone()),
        _ => Fault::Pass,
    })
    .await;
    let removal = RemoveRequest {
        store: proxy.flags(&s3),
        key: saved.key.clone(),
        manifest_sha256: sha256,
        allow_last: true,
        deadline_seconds: 60,
        ..RemoveRequest::default()
    };
    let before = s3.files();
    let refused = remove::run(removal.clone()).await.unwrap().refused.expect("it is held");
    assert_eq!((refused.reason.as_str(), s3.files()), ("Held", before));

    // An unknown object beside a snapshot stays when the snapshot goes.
    let beside = with(&[&format!("{}//theirs", saved.key)]);
    let proxy = S3Proxy::before(&s3, move |a| match a.op {
        Op::List if a.uri.contains("2F") => Fault::Swap("</ListBucketResult>", beside.clone()),
        _ => Fault::Pass,
    })
    .await;
    let removed = remove::run(RemoveRequest { store: proxy.flags(&s3), ..removal }).await.unwrap();
    assert!(removed.refused.is_none() && removed.unknown_files.len() == 1, "{removed:?}");
    let deleted = proxy.asked().into_iter().filter(|a| a.op == Op::Delete);
    assert!(deleted.into_iter().all(|a| !a.uri.contains("theirs")));
}
