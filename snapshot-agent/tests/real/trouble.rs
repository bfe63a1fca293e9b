//! Stores that cannot be reached, are no stores, or refuse: one clear reason each, in time, for both verbs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_contract::{Compression, EtcdFlags, ExitClass, S3Sse, StoreFlags};

use crate::faults::{messages, save_stream, snapshot};
use crate::front::Front;
use crate::store_tls::Door;
use crate::stores::probed;
use crate::support::{S3, free_port, restore_request, save_request};
use futures::future::join_all;
use futures::stream;
use snapshot_agent::verbs::restore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Behaviour of a stand-in for a store.
#[derive(Clone, Copy)]
enum Does<'a> {
    /// Accepts the connection and sends nothing.
    Nothing,
    /// Answers every request with this.
    Says(&'a str),
    /// Gives this answer to the first connections, and forwards the others to a real store.
    SaysTo(u64, &'a str, &'a str),
}

/// A stand-in for a store.
async fn stand(does: Does<'_>) -> Front {
    let (times, answer, server) = match does {
        Does::Nothing => (u64::MAX, String::new(), String::new()),
        Does::Says(answer) => (u64::MAX, answer.to_owned(), String::new()),
        Does::SaysTo(times, answer, server) => (times, answer.to_owned(), server.to_owned()),
    };
    Front::of(move |mut client, before| {
        let (answer, server) = (answer.clone(), server.clone());
        async move {
            if before >= times {
                let mut server = TcpStream::connect(server).await?;
                return tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop);
            }
            let _request = client.read(&mut [0; 16 << 10]).await?;
            if answer.is_empty() {
                std::future::pending::<()>().await;
            }
            client.write_all(answer.as_bytes()).await
        }
    })
    .await
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

fn s3_error(status: &str, code: &str) -> String {
    let body = format!("<Error><Code>{code}</Code><HostId>canary-body</HostId></Error>");
    answer(status, "content-type: application/xml\r\n", &body)
}

const SECRET: &str = "canary-secret";

fn flags(endpoint: &str, credentials: &Path) -> StoreFlags {
    StoreFlags {
        url: "s3://bkt/pre/fix".to_owned(),
        s3_endpoint: Some(endpoint.to_owned()),
        s3_force_path_style: Some(true),
        credentials_dir: Some(credentials.to_owned()),
        ..StoreFlags::default()
    }
}

fn credentials() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("accessKeyID"), "key").unwrap();
    fs::write(folder.path().join("secretAccessKey"), SECRET).unwrap();
    folder
}

const KEY: &str = "shop/orders/1a2b3c4d/20261121T162233Z-99887766-abcdef01";

/// Errors of both verbs with this store, and the time that each took.
async fn reasons(store: StoreFlags) -> [(holdfast_contract::error::Error, Duration); 2] {
    let begun = Instant::now();
    let save = async {
        let request = save_request(EtcdFlags::default(), store.clone(), Compression::Zstd);
        // A stream without a message: the store's refusal must appear without it.
        (save_stream(request, stream::pending()).await.unwrap_err(), begun.elapsed())
    };
    let restore = async {
        let volume = tempfile::tempdir().unwrap();
        let request = restore_request(store.clone(), KEY, volume.path());
        let error = restore::run(request).await.unwrap_err();
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
        (error, begun.elapsed())
    };
    let (save, restore) = tokio::join!(save, restore);
    [save, restore]
}

/// Most requests of both verbs when the first answer is final; otherwise each retries more often within its 15 s.
const FEW: u64 = 6;

/// One row: the fault, the store, the class, a word of the reason, and the longest time in seconds: retries take 15 and more.
type Row = (&'static str, StoreFlags, ExitClass, &'static str, u64);

async fn check(rows: Vec<Row>) {
    let checks = rows.into_iter().map(async |(what, store, class, word, seconds)| {
        let endpoint = store.s3_endpoint.clone().unwrap();
        for (verb, (error, took)) in ["save", "restore"].into_iter().zip(reasons(store).await) {
            let message = error.message();
            println!("{what}, {verb}, {:.1} s: {:?} {message}", took.as_secs_f32(), error.class());
            assert_eq!(error.class(), class, "{what}, {verb}: {message}");
            for part in [word, "s3://bkt/pre/fix/shop/orders/1a2b3c4d/", endpoint.as_str()] {
                assert!(message.contains(part), "{what}, {verb}: no {part:?} in {message}");
            }
            assert!(!message.contains("canary") && !message.contains(SECRET), "{what}, {verb}: {message}");
            assert!(took < Duration::from_secs(seconds), "{what}, {verb}: took {took:?}: {message}");
        }
    });
    join_all(checks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_reached_or_used_is_told_in_time() {
    let credentials = credentials();
    let at = |endpoint: &str| flags(endpoint, credentials.path());
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let silent = stand(Does::Nothing).await;
    let silent_tls = silent.url().replace("http://", "https://");
    let slow = stand(Does::Says(&s3_error("503 Slow Down", "SlowDown"))).await;
    let broken = stand(Does::Says(&answer("500 Internal Server Error", "", ""))).await;
    let elsewhere = stand(Does::Says(&answer("200 OK", "", ""))).await;
    let redirect = |status| answer(status, &format!("location: {}/bkt\r\n", elsewhere.url()), "");
    let moved = stand(Does::Says(&redirect("301 Moved Permanently"))).await;
    let temporary = stand(Does::Says(&redirect("307 Temporary Redirect"))).await;
    let bare = stand(Does::Says(&s3_error("301 Moved Permanently", "PermanentRedirect"))).await;
    let region = stand(Does::Says(&s3_error("400 Bad Request", "AuthorizationHeaderMalformed"))).await;
    let denied = stand(Does::Says(&s3_error("403 Forbidden", "AccessDenied"))).await;
    let secret = stand(Does::Says(&s3_error("403 Forbidden", "SignatureDoesNotMatch"))).await;
    let key = stand(Does::Says(&s3_error("403 Forbidden", "InvalidAccessKeyId"))).await;
    let bucket = stand(Does::Says(&s3_error("404 Not Found", "NoSuchBucket"))).await;
    let no_backend =
        stand(Does::Says(&answer("404 Not Found", "content-type: text/plain\r\n", "404 page not found"))).await;
    let skewed = stand(Does::Says(&s3_error("403 Forbidden", "RequestTimeTooSkewed"))).await;
    let full = stand(Does::Says(&s3_error("507 Insufficient Storage", "XMinioStorageFull"))).await;
    let proxy_https =
        stand(Does::Says(&answer("400 Bad Request", "", "Client sent an HTTP request to an HTTPS server.\n"))).await;
    let no_http = stand(Does::Says("SSH-2.0-OpenSSH_9.2\r\n")).await;
    let rows: Vec<Row> = vec![
        ("nobody listens", at(&nobody), ExitClass::Transient, "cannot be reached", 40),
        ("no such name", at("http://store.invalid:9000"), ExitClass::Transient, "store.invalid", 40),
        ("silence", at(&silent.url()), ExitClass::Transient, "does not answer in time", 40),
        ("silence instead of TLS", at(&silent_tls), ExitClass::Transient, "", 40),
        ("slow down", at(&slow.url()), ExitClass::Transient, "slow down", 40),
        ("its own trouble", at(&broken.url()), ExitClass::Transient, "status 500", 40),
        ("https on an http port", at(&bare.url().replace("http", "https")), ExitClass::Config, "not speak TLS", 60),
        ("http on an https port", at(&proxy_https.url()), ExitClass::Config, "speaks https", 60),
        ("no HTTP", at(&no_http.url()), ExitClass::Config, "not speak HTTP", 60),
        ("moved", at(&moved.url()), ExitClass::Config, "another region", 60),
        ("moved for now", at(&temporary.url()), ExitClass::Config, "another region", 60),
        ("moved to nowhere", at(&bare.url()), ExitClass::Config, "another region", 60),
        ("another region", at(&region.url()), ExitClass::Config, "another region", 60),
        ("denied", at(&denied.url()), ExitClass::Denied, "policy", 60),
        ("a wrong secret", at(&secret.url()), ExitClass::Denied, "secret key", 60),
        ("an unknown key", at(&key.url()), ExitClass::Denied, "access key", 60),
        ("another time", at(&skewed.url()), ExitClass::Transient, "clock", 40),
        ("no bucket", at(&bucket.url()), ExitClass::NotFound, "bucket does not exist", 60),
        (
            "a proxy without a store behind it",
            at(&no_backend.url()),
            ExitClass::Transient,
            "no error code of a store",
            40,
        ),
        ("a full store", at(&full.url()), ExitClass::Full, "no space", 40),
    ];
    check(rows).await;
    assert_eq!(elsewhere.connections(), 0, "a redirect leads nowhere");
    assert!(slow.connections() > 6, "it was asked again: {}", slow.connections());
    assert_eq!(denied.connections(), 2, "a refusal is final, once for each verb");
    for (n, last) in [&proxy_https, &no_http, &moved, &temporary, &region, &secret, &key, &bucket].iter().enumerate() {
        assert!(last.connections() <= FEW, "it was asked again: {n}, {}", last.connections());
    }
    assert!(bare.connections() <= 2 * FEW, "it was asked again: {}", bare.connections());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_checked_against_the_ca_that_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let (cert, key) = (folder.path().join(format!("{name}.crt")), folder.path().join(format!("{name}.key")));
        fs::write(&cert, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (cert, key)
    };
    let server = |(cert, key): &(std::path::PathBuf, std::path::PathBuf)| {
        ["--cert".to_owned(), cert.display().to_string(), "--key".to_owned(), key.display().to_string()]
    };
    let (ours, foreign) = (write("ours", &["127.0.0.1"]), write("foreign", &["127.0.0.1"]));
    let other_name = write("other-name", &["store.example.com"]);
    let s3 = S3::with(&server(&ours)).await;
    let misnamed = S3::with(&server(&other_name)).await;
    let (door, misnamed_door) = (Door::before(&s3.address).await, Door::before(&misnamed.address).await);
    let at = |door: &Door, ca: Option<&std::path::PathBuf>| StoreFlags {
        s3_endpoint: Some(format!("https://{}", door.front.address)),
        s3_ca_file: ca.cloned(),
        ..s3.flags()
    };
    let rows: Vec<Row> = vec![
        ("a foreign CA", at(&door, Some(&foreign.0)), ExitClass::Config, "certificate is not accepted", 60),
        ("no CA given", at(&door, None), ExitClass::Config, "certificate is not accepted", 60),
        ("another name", at(&misnamed_door, Some(&other_name.0)), ExitClass::Config, "certificate is not accepted", 60),
        // The server closes the connection without an answer, as a store that restarts may.
        ("http on a TLS port", s3.flags(), ExitClass::Transient, "if the endpoint speaks https", 40),
    ];
    check(rows).await;
    let asked = (door.front.connections(), misnamed_door.front.connections());
    assert!(asked.0 <= 2 * FEW && asked.1 <= FEW, "it was asked again: {asked:?}");
    let request = save_request(EtcdFlags::default(), at(&door, Some(&ours.0)), Compression::Zstd);
    save_stream(request, stream::iter(messages(&snapshot(64)))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_slow_down_is_waited_for() {
    let s3 = S3::start().await;
    let slow = s3_error("503 Slow Down", "SlowDown");
    let answers = stand(Does::SaysTo(5, &slow, &s3.address)).await;
    let store = s3.through(answers.url());
    let request = save_request(EtcdFlags::default(), store, Compression::None);
    save_stream(request, stream::iter(messages(&snapshot(5000)))).await.unwrap();
    assert!(answers.connections() > 5, "{}", answers.connections());
    assert_eq!(s3.files().len(), 2, "{:?}", s3.files());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_option_that_a_store_refuses_is_named() {
    let secret = credentials();
    for (code, flag) in [
        ("InvalidStorageClass", "--s3-storage-class"),
        ("KMS.NotFoundException", "--s3-sse"),
        ("InvalidTag", "--s3-tag"),
    ] {
        let answers = stand(Does::Says(&s3_error("400 Bad Request", code))).await;
        let store = StoreFlags {
            s3_sse: Some(S3Sse::AwsKms),
            s3_storage_class: Some("STANDARD_IA".to_owned()),
            s3_tag: vec!["a=b".to_owned()],
            ..flags(&answers.url(), secret.path())
        };
        let request = save_request(EtcdFlags::default(), store, Compression::Zstd);
        let error = save_stream(request, stream::pending()).await.unwrap_err();
        assert_eq!(error.class(), ExitClass::Config, "{error}");
        assert!(error.message().contains(&format!("not support {flag}.")), "{error}");
        assert!(!error.message().contains("canary"), "{error}");
        assert_eq!(answers.connections(), 1, "a refusal is not asked for again");
    }
}

/// The stand-in answers 200 to everything, in the form of an upload's start.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_does_not_believe_a_store_that_only_says_yes() {
    let secret = credentials();
    let body = "<InitiateMultipartUploadResult><UploadId>x</UploadId></InitiateMultipartUploadResult>";
    let headers = "etag: \"x\"\r\nlast-modified: Sat, 21 Nov 2026 16:22:33 GMT\r\n";
    let answers = stand(Does::Says(&answer("200 OK", headers, body))).await;
    let store = flags(&answers.url(), secret.path());
    let ended = probed(&store, None).await;
    assert!(ended.failed.is_some() && !ended.probed.usable, "{}", ended.probed.table());
    assert!(!ended.probed.table().contains(SECRET));
}

/// Google's interface takes a token that is signed here, so the test needs no server of Google.
#[tokio::test(flavor = "multi_thread")]
async fn googles_errors_have_their_classes() {
    const KEY: &str = "const { privateKey } = require('crypto').generateKeyPairSync('rsa', { modulusLength: 2048 });
        console.log(JSON.stringify({ type: 'service_account', client_email: 'saver@example.com', private_key_id: '1',
            private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }) }));";
    let secret = tempfile::tempdir().unwrap();
    let key = std::process::Command::new("node").args(["-e", KEY]).output().unwrap();
    fs::write(secret.path().join("serviceAccountJSON"), key.stdout).unwrap();
    for (status, code, class) in [
        ("404 Not Found", "NoSuchBucket", ExitClass::NotFound),
        ("403 Forbidden", "AccessDenied", ExitClass::Denied),
        ("401 Unauthorized", "AuthenticationRequired", ExitClass::Denied),
        ("400 Bad Request", "UserProjectMissing", ExitClass::Config),
    ] {
        let answers = stand(Does::Says(&s3_error(status, code))).await;
        let store = StoreFlags {
            url: "gs://bkt/pre/fix".to_owned(),
            gcs_endpoint: Some(answers.url()),
            credentials_dir: Some(secret.path().to_owned()),
            ..StoreFlags::default()
        };
        for (error, took) in reasons(store).await {
            assert_eq!(error.class(), class, "{code}: {error}");
            assert!(took < Duration::from_mins(1), "{code}: {took:?}");
            assert!(error.message().contains("gs://bkt/pre/fix/shop/orders/"), "{error}");
            assert!(!error.message().contains("canary") && !error.message().contains("PRIVATE"), "{error}");
        }
        assert!(answers.connections() <= FEW, "{code} is final: asked {} times", answers.connections());
    }
}
