//! kube-apiserver, a client of etcd that is not ours: it stores its objects in a cluster with certificates, and a second
//! kube-apiserver finds all of them in the restored copy; and it goes on while the CA of etcd's clients is exchanged.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::rotation::{ask_to_rotate, cas, exchanged, reaches};
use super::tls::ready;
use crate::support::host_operator::Seat;
use crate::support::kube_helpers::until;
use crate::support::make;
use crate::support::program::{Program, command};
use crate::support::world::{PATIENCE, World};

const OBJECTS: usize = 100;
const TOKEN: &str = "of-this-story-alone";

pub async fn tell(w: &World) -> Result<()> {
    let operator = Seat::new(w, "host", None).await?.start(&[])?;
    operator.until_leading().await?;
    w.create(make::secured("a", 3)).await?;
    ready(w, "a", 3).await?;
    let first = w.step("kube-apiserver on a", ApiServer::start(w, "a")).await?;
    let maps: Vec<Value> = (0..OBJECTS)
        .map(|n| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{n}")}, "data": {"n": n.to_string()}}))
        .collect();
    first.kubectl(
        &["create", "-f", "-"],
        Some(&json!({"apiVersion": "v1", "kind": "List", "items": maps}).to_string()),
    )?;
    let before = first.maps()?;
    ensure!(before.len() == OBJECTS, "{} of {OBJECTS} objects", before.len());
    w.create(make::snapshot("s", "a", json!({ "s3": make::s3() }))).await?;
    w.step("a snapshot", w.wait_complete("s")).await?;
    let mut copy = make::secured("b", 1);
    copy["spec"]["bootstrap"] = json!({"restore": {"snapshotRef": {"name": "s"}}});
    w.create(copy).await?;
    ready(w, "b", 1).await?;
    let second = w.step("kube-apiserver on b", ApiServer::start(w, "b")).await?;
    ensure!(second.maps()? == before, "the copy has other objects");
    Ok(())
}

/// Seconds that an application has: the members restart within them on a busy machine, and kube-apiserver does.
const GRACE: u64 = 80;

/// kube-apiserver keeps reading and writing while the CA of its etcd's clients is exchanged.
///
/// kube-apiserver reads its etcd certificate and key at each handshake, and the file of CAs (`--etcd-cafile`) only when it starts
/// (`newETCD3Client` in `k8s.io/apiserver`, `TLSInfo.ClientConfig` in etcd's `client/pkg/transport`). So it restarts once after the
/// operator has published both CAs, and takes the certificate of the next CA without a restart.
pub async fn through_a_rotation(w: &World) -> Result<()> {
    let operator = Seat::new(w, "host", None).await?.start(&[])?;
    operator.until_leading().await?;
    let mut cluster = make::secured("k", 3);
    cluster["spec"]["tls"] = json!({"client": {"rotationGraceSeconds": GRACE}});
    w.create(cluster).await?;
    ready(w, "k", 3).await?;
    let mut server = w.step("kube-apiserver on k", ApiServer::start(w, "k")).await?;
    let objects = server.objects().await?;
    let (over, phase) = (Cell::new(false), Cell::new("before"));
    let use_it = traffic(&objects, &over, &phase);
    let exchange = async {
        let done = exchange(w, &mut server, &phase).await;
        over.set(true);
        done
    };
    let (traffic, exchanged) = tokio::join!(use_it, exchange);
    exchanged?;
    let traffic = traffic?;
    eprintln!(
        "e2e: {}: {} objects written and read, failures {:?}, longest gap {:.1} s, last failure {:?}",
        w.story,
        traffic.acked.len(),
        traffic.failed,
        traffic.gap.as_secs_f64(),
        traffic.last_failure
    );
    server.program.runs()?;
    ensure!(!traffic.failed.contains_key("after"), "kube-apiserver fails after the exchange");
    ensure!(traffic.gap < GAP, "no object for {:?}", traffic.gap);
    let kept = server.maps()?;
    let lost: Vec<&String> =
        traffic.acked.iter().filter(|(name, uid)| kept.get(*name) != Some(uid)).map(|it| it.0).collect();
    ensure!(lost.is_empty(), "of {} objects these are lost: {lost:?}", traffic.acked.len());
    ensure!(traffic.acked.len() >= OBJECTS, "{} of {OBJECTS} objects", traffic.acked.len());
    Ok(())
}

/// Longest time without an object: a restart of kube-apiserver on a busy machine.
const GAP: Duration = Duration::from_secs(90);

/// The exchange, with the work of kube-apiserver's administrator.
async fn exchange(w: &World, server: &mut ApiServer, phase: &Cell<&'static str>) -> Result<()> {
    tokio::time::sleep(Duration::from_secs(5)).await;
    phase.set("members restart with both CAs");
    ask_to_rotate(w, "k", "client/first").await?;
    reaches(w, "k", &["Waiting"]).await?;
    ensure!(cas(w, "k-client-tls", "ca.crt").await?.len() == 2, "both CAs are published");
    phase.set("kube-apiserver restarts");
    server.mount(w).await?;
    w.step("kube-apiserver trusts both CAs", server.restart()).await?;
    phase.set("members get certificates");
    reaches(w, "k", &["Retiring"]).await?;
    phase.set("members restart with the next CA");
    server.mount(w).await?;
    exchanged(w, "k", 3).await?;
    let now = cas(w, "k-client-tls", "ca.crt").await?;
    ensure!(now.len() == 1, "{} CAs", now.len());
    // A connection to the member that restarted last may be dialled again.
    phase.set("after the last restart");
    tokio::time::sleep(Duration::from_secs(10)).await;
    phase.set("after");
    tokio::time::sleep(Duration::from_secs(10)).await;
    Ok(())
}

/// The answers that a user of kube-apiserver got.
#[derive(Debug, Default)]
struct Traffic {
    /// UID of each object that was written and read.
    acked: BTreeMap<String, String>,
    /// Failures by phase.
    failed: BTreeMap<&'static str, u64>,
    last_failure: Option<String>,
    gap: Duration,
}

/// Creates and reads objects, one after the other, until the exchange is over. A request without an answer is repeated.
async fn traffic(objects: &Api<ConfigMap>, over: &Cell<bool>, phase: &Cell<&'static str>) -> Result<Traffic> {
    let mut traffic = Traffic::default();
    let mut last = Instant::now();
    while !over.get() {
        let name = format!("map-{}", traffic.acked.len());
        // A request that began in an earlier phase fails for that phase's reason.
        let begun = phase.get();
        match tokio::time::timeout(Duration::from_secs(5), write_and_read(objects, &name)).await {
            Ok(Ok(uid)) => {
                traffic.acked.insert(name, uid);
                traffic.gap = traffic.gap.max(last.elapsed());
                last = Instant::now();
            }
            failure => {
                *traffic.failed.entry(begun).or_default() += 1;
                traffic.last_failure = Some(format!("{begun}: {failure:?}"));
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(traffic)
}

/// Returns the UID of the object. An earlier attempt without an answer may have created it.
async fn write_and_read(objects: &Api<ConfigMap>, name: &str) -> kube::Result<String> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let object = ConfigMap { metadata, ..ConfigMap::default() };
    match objects.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        answer => drop(answer?),
    }
    Ok(objects.get(name).await?.metadata.uid.unwrap_or_default())
}

/// A kube-apiserver of this machine; dropping it ends the process.
struct ApiServer {
    program: Program,
    cluster: String,
    port: u16,
    args: Vec<String>,
    folder: TempDir,
}

impl ApiServer {
    async fn start(w: &World, cluster: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        mount(w, cluster, folder.path()).await?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let file = |name: &str, contents: &str| -> Result<String> {
            std::fs::write(folder.path().join(name), contents)?;
            Ok(path(name))
        };
        let accounts = rcgen::KeyPair::generate()?;
        let public = file("accounts.pub", &accounts.public_key_pem())?;
        let accounts = file("accounts", &accounts.serialize_pem())?;
        let tokens = file("tokens", &format!("{TOKEN},admin,admin,system:masters\n"))?;
        let service = w.get("Service", &format!("{cluster}-client")).await?;
        let etcd = forward(format!("{}:2379", service["spec"]["clusterIP"].as_str().context("an address")?))?;
        let port = crate::ports::free();
        let log = w.env.logs.join(format!("{}.kube-apiserver-{cluster}.log", w.story));
        let args = vec![
            "kube-apiserver".to_owned(),
            format!("--etcd-servers=https://127.0.0.1:{etcd}"),
            format!("--etcd-cafile={}", path("ca.crt")),
            format!("--etcd-certfile={}", path("tls.crt")),
            format!("--etcd-keyfile={}", path("tls.key")),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=192.0.2.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", folder.path().display()),
            "--service-cluster-ip-range=10.97.0.0/16".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={public}"),
            format!("--service-account-signing-key-file={accounts}"),
            format!("--token-auth-file={tokens}"),
            "--authorization-mode=RBAC".to_owned(),
        ];
        let program = Program::start(command(&kubernetes()?).args(&args), &log)?;
        let mut server = Self { program, cluster: cluster.to_owned(), port, args, folder };
        server.until_ready().await?;
        Ok(server)
    }

    /// Writes the present certificates into kube-apiserver's files.
    async fn mount(&self, w: &World) -> Result<()> {
        mount(w, &self.cluster, self.folder.path()).await
    }

    /// Ends the process, and starts it again.
    async fn restart(&mut self) -> Result<()> {
        let log = self.program.log.with_extension("restarted.log");
        self.program.end()?;
        self.program = Program::start(command(&kubernetes()?).args(&self.args), &log)?;
        self.until_ready().await
    }

    async fn until_ready(&mut self) -> Result<()> {
        until("kube-apiserver to be ready", PATIENCE, async || {
            self.program.runs()?;
            let ready = self
                .kubectl(&["get", "--raw=/readyz"], None)
                .and_then(|_| self.kubectl(&["get", "ns", "default"], None));
            if ready.is_err() {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Ok(ready.map(drop).map_err(|error| format!("{error:#}")))
        })
        .await
    }

    /// The API of the story's objects.
    async fn objects(&self) -> Result<Api<ConfigMap>> {
        let server = json!({"server": format!("https://127.0.0.1:{}", self.port), "insecure-skip-tls-verify": true});
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
        }))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Api::namespaced(Client::try_from(config)?, "default"))
    }

    fn kubectl(&self, args: &[&str], input: Option<&str>) -> Result<String> {
        let mut child = Command::new("kubectl")
            .args([&format!("--server=https://127.0.0.1:{}", self.port), "--insecure-skip-tls-verify"])
            .arg(format!("--token={TOKEN}"))
            .args(args)
            .env("KUBECONFIG", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().context("stdin")?;
        stdin.write_all(input.unwrap_or_default().as_bytes())?;
        drop(stdin);
        let out = child.wait_with_output()?;
        ensure!(out.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8(out.stdout)?)
    }

    /// UIDs of the story's objects.
    fn maps(&self) -> Result<BTreeMap<String, String>> {
        let list: Value =
            serde_json::from_str(&self.kubectl(&["get", "configmaps", "-n", "default", "-o", "json"], None)?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = list["items"].as_array().into_iter().flatten();
        let ours = all.filter(|map| text(&map["metadata"]["name"]).starts_with("map-"));
        Ok(ours.map(|map| (text(&map["metadata"]["name"]), text(&map["metadata"]["uid"]))).collect())
    }
}

/// Writes the certificates of applications into a folder. Each file is replaced at once, as kubelet replaces mounted files.
async fn mount(w: &World, cluster: &str, folder: &Path) -> Result<()> {
    let secret = w.get("Secret", &format!("{cluster}-client-tls")).await?;
    for key in ["ca.crt", "tls.crt", "tls.key"] {
        let data: ByteString = serde_json::from_value(secret["data"][key].clone())?;
        let partial = folder.join("partial");
        std::fs::write(&partial, data.0)?;
        std::fs::rename(&partial, folder.join(key))?;
    }
    Ok(())
}

/// The program behind the link `kubectl`.
fn kubernetes() -> Result<PathBuf> {
    let path = std::env::var("PATH")?;
    let kubectl = path.split(':').map(|dir| Path::new(dir).join("kubectl")).find(|file| file.exists());
    Ok(kubectl.context("kubectl in PATH")?.canonicalize()?)
}

/// Forwards a port of loopback, which members' certificates name, to an address of the cluster; returns the port. It runs on
/// threads of its own, because the story waits for kubectl on its only thread.
fn forward(to: String) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for here in listener.incoming().flatten() {
            let Ok(there) = TcpStream::connect(&to) else { continue };
            let (Ok(here_too), Ok(there_too)) = (here.try_clone(), there.try_clone()) else { continue };
            for (mut from, mut to) in [(here, there), (there_too, here_too)] {
                std::thread::spawn(move || {
                    drop(std::io::copy(&mut from, &mut to));
                    drop(to.shutdown(Shutdown::Write));
                });
            }
        }
    });
    Ok(port)
}
