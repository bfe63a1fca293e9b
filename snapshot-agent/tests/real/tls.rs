//! etcd behind TLS and with users, of every supported line: working saves, and the error messages of failing ones.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_contract::{Compression, EtcdFlags, ExitClass, Level, SavedReport};

use crate::ear::Ear;
use crate::narrow::{Slow, Way};
use crate::support::{Running, eventually, file_store, files, free_port, run_child, save_request};
use futures::StreamExt;
use holdfast_contract::error::{Error, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use snapshot_agent::etcd::source;
use snapshot_agent::verbs::save;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LINES: [&str; 3] = ["3.5", "3.6", "3.7"];

/// A password that must not appear in any output.
const PASSWORD: &str = "canary-of-root";

/// A folder of certificates: two CAs that differ only in their keys, like those of two clusters made by one tool.
pub(crate) struct Pki {
    folder: TempDir,
    pub(crate) ours: CertifiedIssuer<'static, KeyPair>,
    pub(crate) theirs: CertifiedIssuer<'static, KeyPair>,
}

/// Paths of a certificate and of its key.
pub(crate) type Pair = (PathBuf, PathBuf);

impl Pki {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = |file: &str, name: &str| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(DnType::CommonName, name);
            let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            fs::write(folder.path().join(file), issuer.pem()).unwrap();
            issuer
        };
        let (ours, theirs) = (ca("ours.crt", "etcd-ca"), ca("theirs.crt", "etcd-ca"));
        ca("stranger.crt", "stranger");
        Self { folder, ours, theirs }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Issues a certificate for this host, with this common name, which ends in this year.
    pub(crate) fn issue(&self, by: &CertifiedIssuer<'static, KeyPair>, host: &str, name: &str, until: i32) -> Pair {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, by).unwrap();
        let number = files(self.folder.path()).len();
        let pair = (self.file(&format!("{number}.crt")), self.file(&format!("{number}.key")));
        fs::write(&pair.0, cert.pem()).unwrap();
        fs::write(&pair.1, key.serialize_pem()).unwrap();
        pair
    }

    /// A server certificate of our CA, valid for loopback.
    fn server(&self) -> Pair {
        self.issue(&self.ours, "127.0.0.1", "server", 2100)
    }
}

/// One etcd of one line.
pub(crate) struct Etcd {
    binaries: PathBuf,
    url: String,
    /// Flags of its clients.
    pub(crate) flags: EtcdFlags,
    _process: Running,
    _folder: TempDir,
}

/// The folder with etcd and etcdctl of a line.
fn binaries(line: &str) -> PathBuf {
    let variable = format!("HOLDFAST_ETCD_{}", line.replace('.', "_"));
    let folder = std::env::var_os(&variable).map(PathBuf::from);
    folder.unwrap_or_else(|| panic!("{variable} is not set: eval \"$(tests/testbed/testbed env)\" sets it"))
}

impl Etcd {
    /// Starts it without TLS.
    async fn plain(line: &str, more: &[&str]) -> Self {
        Self::start(line, "http", EtcdFlags::default(), more).await
    }

    /// Starts it with this certificate.
    pub(crate) async fn tls(line: &str, pki: &Pki, (cert, key): &Pair, reach: EtcdFlags, more: &[&str]) -> Self {
        let (cert, key) = (format!("--cert-file={}", cert.display()), format!("--key-file={}", key.display()));
        let cacert = Some(reach.cacert.unwrap_or_else(|| pki.file("ours.crt")));
        let reach = EtcdFlags { cacert, ..reach };
        Self::start(line, "https", reach, &[&[cert.as_str(), &key], more].concat()).await
    }

    /// Starts it with a certificate, and requires one of clients too.
    async fn mutual(line: &str, pki: &Pki, client: &Pair, more: &[&str]) -> Self {
        let ca = format!("--trusted-ca-file={}", pki.file("ours.crt").display());
        let reach = EtcdFlags { cert: Some(client.0.clone()), key: Some(client.1.clone()), ..EtcdFlags::default() };
        Self::tls(line, pki, &pki.server(), reach, &[&["--client-cert-auth", &ca], more].concat()).await
    }

    async fn start(line: &str, scheme: &str, reach: EtcdFlags, more: &[&str]) -> Self {
        let (binaries, folder) = (binaries(line), tempfile::tempdir().unwrap());
        let (url, peer) =
            (format!("{scheme}://127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
        let health = format!("127.0.0.1:{}", free_port());
        let log = fs::File::create(folder.path().join("etcd.log")).unwrap();
        let mut command = Command::new(binaries.join("etcd"));
        command.arg("--data-dir").arg(folder.path().join("data")).args(more).args([
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            format!("--listen-metrics-urls=http://{health}"),
            "--unsafe-no-fsync".to_owned(),
            "--bcrypt-cost=4".to_owned(),
        ]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process = Running(command.spawn().unwrap());
        let flags = EtcdFlags { endpoints: vec![url.clone()], ..reach };
        let etcd = Self { binaries, url, flags, _process: process, _folder: folder };
        // Its port is open long before etcd serves.
        eventually("etcd to be healthy", async || {
            let mut connection = TcpStream::connect(&health).await.ok()?;
            connection.write_all(b"GET /health HTTP/1.0\r\n\r\n").await.ok()?;
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await.ok()?;
            answer.contains("\"health\":\"true\"").then_some(())
        })
        .await;
        etcd
    }

    /// Runs etcdctl with its own flags.
    fn ctl(&self, args: &[&str]) {
        let mut command = Command::new(self.binaries.join("etcdctl"));
        command.arg(format!("--endpoints={}", self.url)).env("ETCDCTL_API", "3");
        command.args(["--dial-timeout=60s", "--command-timeout=60s"]);
        for (flag, file) in [("cacert", &self.flags.cacert), ("cert", &self.flags.cert), ("key", &self.flags.key)] {
            command.args(file.iter().map(|file| format!("--{flag}={}", file.display())));
        }
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Enables authentication: root, and a user who may read and write every key.
    fn with_users(&self) {
        for args in [
            &["user", "add", &format!("root:{PASSWORD}")][..],
            &["user", "grant-role", "root", "root"],
            &["user", "add", &format!("app:{PASSWORD}")],
            &["role", "add", "all"],
            &["role", "grant-permission", "all", "readwrite", "", "--prefix"],
            &["user", "grant-role", "app", "all"],
            &["auth", "enable"],
        ] {
            self.ctl(args);
        }
    }

    pub(crate) fn with(&self, change: impl FnOnce(&mut EtcdFlags)) -> EtcdFlags {
        let mut flags = self.flags.clone();
        change(&mut flags);
        flags
    }

    fn logged_in(&self, user: &str, password_file: &Path) -> EtcdFlags {
        EtcdFlags { user: Some(user.to_owned()), password_file: Some(password_file.to_owned()), ..self.flags.clone() }
    }
}

fn password(folder: &Path, name: &str, content: &str) -> PathBuf {
    fs::write(folder.join(name), content).unwrap();
    folder.join(name)
}

/// A folder like the mount of a Secret with certificates.
fn mounted(pki: &Pki, client: Option<&Pair>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &Path, to: &str| fs::write(folder.path().join(to), fs::read(from).unwrap()).unwrap();
    copy(&pki.file("ours.crt"), "ca.crt");
    if let Some((cert, key)) = client {
        copy(cert, "tls.crt");
        copy(key, "tls.key");
    }
    folder
}

/// Makes a save into a folder of its own; returns the result, and the number of files left in the folder.
async fn save_to_folder(etcd: EtcdFlags) -> (Result<SavedReport>, usize) {
    let folder = tempfile::tempdir().unwrap();
    let result = save::run(save_request(etcd, file_store(folder.path()), Compression::Zstd)).await;
    (result, files(folder.path()).len())
}

/// Checks that a save works, to its last step: it asks the members for their HashKV after the stream.
pub(crate) async fn works(what: &str, etcd: EtcdFlags) {
    let (result, files) = save_to_folder(etcd).await;
    let saved = result.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(saved.db_bytes > 0 && files == 2, "{what}: {saved:?}");
    let level = saved.verification.as_ref().map(|verification| verification.level);
    let differences = saved.verification.as_ref().map(|verification| verification.differences.len());
    assert_eq!(differences, Some(0), "users and roles are the member's");
    assert_eq!(level, Some(Level::HashKV), "{what}: {saved:?}");
}

/// Checks that a save fails with this class, names every endpoint and has these words, soon and without leftovers.
pub(crate) async fn fails(what: &str, etcd: EtcdFlags, class: ExitClass, words: &[&str]) -> Error {
    let (begun, endpoints) = (Instant::now(), etcd.endpoints.clone());
    let (result, files) = save_to_folder(etcd).await;
    let Err(error) = result else { panic!("{what}: it worked") };
    println!("{what}, {:.1} s: {:?} {error}", begun.elapsed().as_secs_f32(), error.class());
    assert_eq!(error.class(), class, "{what}: {error}");
    for word in words {
        assert!(error.message().contains(word), "{what}: no {word:?} in {error}");
    }
    assert!(endpoints.iter().any(|endpoint| error.message().contains(endpoint)), "{what}: {error}");
    assert!(begun.elapsed() < Duration::from_mins(1), "{what} took {:?}", begun.elapsed());
    assert_eq!(files, 0, "{what}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_with_tls_and_with_users() {
    let pki = Pki::new();
    let client = pki.issue(&pki.ours, "client", "app", 2100);
    for line in LINES {
        let etcd = Etcd::tls(line, &pki, &pki.server(), EtcdFlags::default(), &[]).await;
        works(&format!("{line}, TLS"), etcd.flags.clone()).await;
        let bare = etcd.url.strip_prefix("https://").unwrap().to_owned();
        let ca = mounted(&pki, None);
        let tls_dir = Some(ca.path().to_owned());
        let alone = EtcdFlags { endpoints: vec![etcd.url.clone()], tls_dir, ..EtcdFlags::default() };
        works(&format!("{line}, a Secret with a CA alone"), alone).await;
        works(&format!("{line}, HOST:PORT"), etcd.with(|flags| flags.endpoints = vec![bare])).await;

        let etcd = Etcd::mutual(line, &pki, &client, &[]).await;
        works(&format!("{line}, mutual TLS"), etcd.flags.clone()).await;
        let root = password(pki.folder.path(), "root", &format!("{PASSWORD}\n"));
        works(&format!("{line}, a user where there are none"), etcd.logged_in("root", &root)).await;
        etcd.with_users();
        works(&format!("{line}, mutual TLS and root"), etcd.logged_in("root", &root)).await;
        let (tls_dir, auth_dir) = (mounted(&pki, Some(&client)), tempfile::tempdir().unwrap());
        password(auth_dir.path(), "username", "root");
        password(auth_dir.path(), "password", PASSWORD);
        let folders = EtcdFlags {
            endpoints: etcd.flags.endpoints.clone(),
            tls_dir: Some(tls_dir.path().to_owned()),
            auth_dir: Some(auth_dir.path().to_owned()),
            ..EtcdFlags::default()
        };
        works(&format!("{line}, the same from mounted Secrets"), folders.clone()).await;
        password(auth_dir.path(), "username", "nobody");
        fails(&format!("{line}, a user that is not there"), folders, ExitClass::Denied, &["--user"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_cannot_be_trusted() {
    let pki = Pki::new();
    for line in LINES {
        let good = Etcd::tls(line, &pki, &pki.server(), EtcdFlags::default(), &[]).await;
        for ca in ["stranger.crt", "theirs.crt"] {
            let flags = good.with(|flags| flags.cacert = Some(pki.file(ca)));
            fails(&format!("{line}, {ca}"), flags, ExitClass::Config, &["is not signed by the CA in", ca]).await;
        }
        let flags = good.with(|flags| flags.cacert = None);
        let what = format!("{line}, a CA of one's own");
        fails(&what, flags, ExitClass::Config, &["that this system trusts", "--cacert"]).await;
        let flags = good.with(|flags| flags.server_name = Some("etcd.example.com".to_owned()));
        let what = format!("{line}, another name is asked for");
        fails(&what, flags, ExitClass::Config, &["is not for etcd.example.com", "127.0.0.1"]).await;

        let named = pki.issue(&pki.ours, "etcd.example.com", "server", 2100);
        let named = Etcd::tls(line, &pki, &named, EtcdFlags::default(), &[]).await;
        let what = format!("{line}, another name");
        let flags = named.flags.clone();
        fails(&what, flags, ExitClass::Config, &["is not for 127.0.0.1", "--server-name", "etcd.example.com"]).await;
        let flags = named.with(|flags| flags.server_name = Some("etcd.example.com".to_owned()));
        works(&format!("{line}, the other name is meant"), flags).await;

        let expired = pki.issue(&pki.ours, "127.0.0.1", "server", 2020);
        let expired = Etcd::tls(line, &pki, &expired, EtcdFlags::default(), &[]).await;
        fails(&format!("{line}, expired"), expired.flags.clone(), ExitClass::Config, &["has expired", "clock"]).await;

        let https = |url: &str| vec![url.replace("http://", "https://")];
        let plain = Etcd::plain(line, &[]).await;
        let flags = plain.with(|flags| flags.endpoints = https(&plain.url));
        fails(&format!("{line}, https to http"), flags, ExitClass::Config, &["does not speak TLS", "http://"]).await;
        let flags = EtcdFlags { endpoints: vec![good.url.replace("https", "http")], ..EtcdFlags::default() };
        fails(&format!("{line}, http to https"), flags, ExitClass::Config, &["Begin the endpoint with https://"]).await;

        // One member that refuses does not prevent the save.
        let both = |first: &Etcd, second: &str| EtcdFlags {
            endpoints: vec![first.url.clone(), second.to_owned()],
            ..good.flags.clone()
        };
        works(&format!("{line}, one of two"), both(&expired, &good.url)).await;
        works(&format!("{line}, one of two, the other way round"), both(&good, &expired.url)).await;
        let nobody = format!("https://127.0.0.1:{}", free_port());
        let flags = both(&expired, &nobody);
        fails(&format!("{line}, one expired, one away"), flags, ExitClass::Config, &["has expired"]).await;
        let flags = good.with(|flags| flags.endpoints = vec![nobody.clone()]);
        fails(&format!("{line}, nobody listens"), flags, ExitClass::Transient, &["refused"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_are_not_let_in() {
    let pki = Pki::new();
    let good = pki.issue(&pki.ours, "client", "app", 2100);
    let foreign = pki.issue(&pki.theirs, "client", "app", 2100);
    let expired = pki.issue(&pki.ours, "client", "app", 2020);
    for line in LINES {
        // Up to TLS 1.2 the server's refusal is part of the handshake; since 1.3 it comes after it.
        for most in ["TLS1.2", "TLS1.3"] {
            let etcd = Etcd::mutual(line, &pki, &good, &[&format!("--tls-max-version={most}")]).await;
            works(&format!("{line}, {most}"), etcd.flags.clone()).await;
            let what = format!("{line}, {most}, no certificate");
            let flags = etcd.with(|flags| (flags.cert, flags.key) = (None, None));
            fails(&what, flags, ExitClass::Denied, &["asks for a client certificate", "--cert and --key"]).await;
            for (what, (cert, key)) in [("another CA's", &foreign), ("an expired one", &expired)] {
                let flags = etcd.with(|flags| (flags.cert, flags.key) = (Some(cert.clone()), Some(key.clone())));
                let file = cert.display().to_string();
                let what = format!("{line}, {most}, {what}");
                fails(&what, flags, ExitClass::Denied, &["refuses the client certificate", &file]).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_that_are_not_let_in() {
    let (pki, folder) = (Pki::new(), tempfile::tempdir().unwrap());
    let right = password(folder.path(), "right", PASSWORD);
    let wrong = password(folder.path(), "wrong", "another-canary");
    for line in LINES {
        let etcd = Etcd::plain(line, &[]).await;
        etcd.with_users();
        works(&format!("{line}, root"), etcd.logged_in("root", &right)).await;
        let remedy = &["authentication enabled", "--user and --password-file"];
        fails(&format!("{line}, nobody"), etcd.flags.clone(), ExitClass::Denied, remedy).await;
        let remedy = &["this user with this password", "--password-file"];
        fails(&format!("{line}, a wrong password"), etcd.logged_in("root", &wrong), ExitClass::Denied, remedy).await;
        fails(&format!("{line}, no such user"), etcd.logged_in("nil", &right), ExitClass::Denied, remedy).await;
        let flags = etcd.logged_in("app", &right);
        fails(&format!("{line}, not root"), flags, ExitClass::Denied, &["the role root"]).await;

        // A client certificate's common name is a user.
        let (root, app) = (pki.issue(&pki.ours, "client", "root", 2100), pki.issue(&pki.ours, "client", "app", 2100));
        let etcd = Etcd::mutual(line, &pki, &root, &[]).await;
        etcd.with_users();
        works(&format!("{line}, root by certificate"), etcd.flags.clone()).await;
        let flags = etcd.with(|flags| (flags.cert, flags.key) = (Some(app.0), Some(app.1)));
        fails(&format!("{line}, not root by certificate"), flags, ExitClass::Denied, &["the role root"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_expires_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let right = password(folder.path(), "right", PASSWORD);
    for line in LINES {
        let etcd = Etcd::plain(line, &["--auth-token-ttl=2"]).await;
        let mut client = etcd_client::Client::connect([&etcd.url], None).await.unwrap();
        for key in 0..8 {
            client.put(format!("k{key}"), crate::support::noise(key, 1 << 20), None).await.unwrap();
        }
        etcd.with_users();

        let options = etcd_client::ConnectOptions::new().with_user("root", PASSWORD);
        let mut forgetful = etcd_client::Client::connect([&etcd.url], Some(options)).await.unwrap();
        let asks = save_request(etcd.logged_in("root", &right), file_store(folder.path()), Compression::None);
        let mut chosen = source::choose(&asks).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let error = forgetful.get("k", None).await.unwrap_err();
        assert!(error.to_string().contains("invalid auth token"), "{line}: it has not expired: {error}");
        let (_, stream) = chosen.open().await.unwrap();
        let bytes: usize = stream.map(|piece| piece.unwrap().len()).fold(0, async |sum, piece| sum + piece).await;
        assert_eq!(bytes % 512, 32, "{line}");

        // An open stream continues, whatever happens to the login.
        let proxy = Slow::before(&etcd.url, Way::Down, 160 << 10).await;
        let slow = EtcdFlags { endpoints: vec![proxy.url()], ..etcd.logged_in("root", &right) };
        let begun = Instant::now();
        works(&format!("{line}, longer than the login"), slow).await;
        assert!(begun.elapsed() > Duration::from_secs(4), "{line}: {:?}", begun.elapsed());
    }
}

/// In a process of its own, so that the test sees the whole log.
#[test]
fn passwords_and_keys_are_never_told() {
    run_child("tls::everything_is_heard", "");
}

/// The child half: the process whose whole log the test checks.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread")]
async fn everything_is_heard() {
    let ear = Ear::alone();
    let pki = Pki::new();
    let (client, other) = (pki.issue(&pki.ours, "client", "app", 2100), pki.issue(&pki.theirs, "client", "app", 2100));
    let etcd = Etcd::mutual("3.6", &pki, &client, &[]).await;
    etcd.with_users();
    let right = password(pki.folder.path(), "right", PASSWORD);
    let wrong = password(pki.folder.path(), "wrong", &format!("not-{PASSWORD}"));
    let two = password(pki.folder.path(), "two", &format!("{PASSWORD}\n{PASSWORD}"));
    let root = etcd.logged_in("root", &right);
    let mut told = String::new();
    for flags in [
        etcd.logged_in("root", &wrong),
        etcd.logged_in("app", &right),
        etcd.logged_in("root", &two),
        EtcdFlags { user: Some(format!("root:{PASSWORD}")), ..root.clone() },
        EtcdFlags { endpoints: vec![etcd.url.replace("//", &format!("//root:{PASSWORD}@"))], ..root.clone() },
        EtcdFlags { password_file: Some(client.1.clone()), ..root.clone() },
        EtcdFlags { key: Some(other.1.clone()), ..root.clone() },
        EtcdFlags { cert: Some(client.1.clone()), ..root.clone() },
        EtcdFlags { cacert: Some(client.1.clone()), ..root.clone() },
        EtcdFlags { cacert: Some(right.clone()), ..root.clone() },
        EtcdFlags { key: Some(right.clone()), ..root.clone() },
        EtcdFlags { cert: Some(other.0.clone()), key: Some(other.1.clone()), ..root.clone() },
        EtcdFlags { server_name: Some("etcd.example.com".to_owned()), ..root.clone() },
    ] {
        let error = save_to_folder(flags).await.0.unwrap_err();
        writeln!(told, "{error} {error:?} {}", snapshot_agent::verbs::report::render(&Err(error.clone()))).unwrap();
    }
    works("the right password", root).await;
    let heard = ear.heard();
    assert!(heard.contains("reading from") && told.contains("--key"), "nothing was heard: {heard}\n{told}");
    let keys = [client.1, other.1].map(|key| fs::read_to_string(key).unwrap());
    let secrets = keys.iter().flat_map(|key| key.lines()).filter(|line| !line.starts_with("-----")).chain([PASSWORD]);
    for secret in secrets {
        assert!(!told.contains(secret), "{told}");
        let line = heard.lines().find(|line| line.contains(secret));
        assert_eq!(line, None);
    }
}
