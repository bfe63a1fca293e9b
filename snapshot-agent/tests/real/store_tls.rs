//! A store's certificates over time: a CA that is exchanged, a certificate that expires. No byte is ever sent unencrypted.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::stream;
use holdfast_contract::error::Result;
use holdfast_contract::{Compression, EtcdFlags, ExitClass, ListRequest, SavedReport, StoreFlags};
use snapshot_agent::verbs::{list, restore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::faults::{messages, save_stream, snapshot};
use crate::front::Front;
use crate::support::{S3, restore_request, save_request};
use crate::tls::{Pair, Pki};

/// Passes everything on, and records the first bytes of each connection.
pub(crate) struct Door {
    pub(crate) front: Front,
    first: Arc<Mutex<Vec<u8>>>,
}

impl Door {
    pub(crate) async fn before(server: &str) -> Self {
        let (server, first) = (server.to_owned(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&first);
        let pass = move |mut client: TcpStream, _| {
            let (server, seen) = (server.clone(), Arc::clone(&seen));
            async move {
                let mut byte = [0];
                client.read_exact(&mut byte).await?;
                seen.lock().unwrap().push(byte[0]);
                let mut server = TcpStream::connect(server).await?;
                server.write_all(&byte).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
            }
        };
        Self { front: Front::of(pass).await, first }
    }
}

async fn saves(store: StoreFlags) -> Result<SavedReport> {
    let request = save_request(EtcdFlags::default(), store, Compression::Zstd);
    save_stream(request, stream::iter(messages(&snapshot(64)))).await
}

/// Checks that each verb fails with these words, soon, and changes nothing.
async fn refused(what: &str, s3: &S3, store: &StoreFlags, key: &str, words: &[&str]) {
    let (kept, begun) = (s3.files(), Instant::now());
    let volume = tempfile::tempdir().unwrap();
    let listing = ListRequest { store: store.clone(), deadline_seconds: 30, ..ListRequest::default() };
    let errors = [
        saves(store.clone()).await.unwrap_err(),
        restore::run(restore_request(store.clone(), key, volume.path())).await.unwrap_err(),
        list::run(listing).await.unwrap_err(),
    ];
    for error in errors {
        println!("{what}: {:?} {error}", error.class());
        assert_eq!(error.class(), ExitClass::Config, "{what}: {error}");
        for word in words.iter().chain([&store.s3_endpoint.as_deref().unwrap()]) {
            assert!(error.message().contains(word), "{what}: no {word:?} in {error}");
        }
    }
    // With its retries each of the three takes 15 s and more.
    assert!(begun.elapsed() < Duration::from_secs(40), "{what}: {:?}", begun.elapsed());
    assert_eq!(s3.files(), kept, "{what}");
    assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ca_is_exchanged_and_a_certificate_ends() {
    let pki = Pki::new();
    let (cert, key, ca) = (pki.file("store.crt"), pki.file("store.key"), pki.file("ca.crt"));
    // Like a person or cert-manager, the test replaces files in place.
    let shows = |(new_cert, new_key): &Pair| {
        fs::copy(new_cert, &cert).unwrap();
        fs::copy(new_key, &key).unwrap();
    };
    let trusts = |files: &[&str]| {
        let text: String = files.iter().map(|file| fs::read_to_string(pki.file(file)).unwrap()).collect();
        fs::write(&ca, text).unwrap();
    };
    let text = |path: &Path| path.display().to_string();
    shows(&pki.issue(&pki.ours, "127.0.0.1", "store", 2100));
    trusts(&["ours.crt"]);
    let mut s3 = S3::with(&["--cert".to_owned(), text(&cert), "--key".to_owned(), text(&key)]).await;
    let door = Door::before(&s3.address).await;
    let way = format!("https://{}", door.front.address);
    let store = StoreFlags { s3_ca_file: Some(ca.clone()), ..s3.through(way) };
    let first = saves(store.clone()).await.unwrap();

    // The new CA has the old one's name and another key.
    shows(&pki.issue(&pki.theirs, "127.0.0.1", "store", 2100));
    s3.again().await;
    refused("the old CA", &s3, &store, &first.key, &["certificate is not accepted"]).await;
    trusts(&["ours.crt", "theirs.crt"]);
    saves(store.clone()).await.unwrap();
    trusts(&["theirs.crt"]);
    saves(store.clone()).await.unwrap();
    let volume = tempfile::tempdir().unwrap();
    restore::run(restore_request(store.clone(), &first.key, volume.path())).await.unwrap();

    shows(&pki.issue(&pki.theirs, "127.0.0.1", "store", 2020));
    s3.again().await;
    refused("an expired certificate", &s3, &store, &first.key, &["certificate has expired", "clock"]).await;
    trusts(&[]);
    let error = saves(store.clone()).await.unwrap_err();
    assert!(error.class() == ExitClass::Config && error.message().contains("holds no PEM certificate"), "{error}");

    let first = door.first.lock().unwrap().clone();
    assert!(first.len() > 6, "{first:?}");
    assert!(first.iter().all(|byte| *byte == 0x16), "each begins with a handshake of TLS: {first:?}");
}
