//! kube-apiserver, a client of etcd that is not ours: it stores its objects in a cluster with certificates, and a second
//! kube-apiserver finds all of them in the restored copy.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tempfile::TempDir;

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

/// A kube-apiserver of this machine; dropping it ends the process.
struct ApiServer {
    program: Program,
    port: u16,
    _folder: TempDir,
}

impl ApiServer {
    async fn start(w: &World, cluster: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = |name: &str, contents: &[u8]| -> Result<PathBuf> {
            let path = folder.path().join(name);
            std::fs::write(&path, contents)?;
            Ok(path)
        };
        let secret = w.get("Secret", &format!("{cluster}-client-tls")).await?;
        let data =
            |key: &str| -> Result<Vec<u8>> { Ok(serde_json::from_value::<ByteString>(secret["data"][key].clone())?.0) };
        let (ca, certificate, key) =
            (file("ca", &data("ca.crt")?)?, file("crt", &data("tls.crt")?)?, file("key", &data("tls.key")?)?);
        let accounts = rcgen::KeyPair::generate()?;
        let public = file("accounts.pub", accounts.public_key_pem().as_bytes())?;
        let accounts = file("accounts", accounts.serialize_pem().as_bytes())?;
        let tokens = file("tokens", format!("{TOKEN},admin,admin,system:masters\n").as_bytes())?;
        let service = w.get("Service", &format!("{cluster}-client")).await?;
        let etcd = forward(format!("{}:2379", service["spec"]["clusterIP"].as_str().context("an address")?))?;
        let port = crate::ports::free();
        let log = w.env.logs.join(format!("{}.kube-apiserver-{cluster}.log", w.story));
        let path = |path: &Path| path.display().to_string();
        let args = [
            "kube-apiserver".to_owned(),
            format!("--etcd-servers=https://127.0.0.1:{etcd}"),
            format!("--etcd-cafile={}", path(&ca)),
            format!("--etcd-certfile={}", path(&certificate)),
            format!("--etcd-keyfile={}", path(&key)),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=192.0.2.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", path(folder.path())),
            "--service-cluster-ip-range=10.97.0.0/16".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", path(&public)),
            format!("--service-account-signing-key-file={}", path(&accounts)),
            format!("--token-auth-file={}", path(&tokens)),
            "--authorization-mode=RBAC".to_owned(),
        ];
        let program = Program::start(command(&kubernetes()?).args(args), &log)?;
        let mut server = Self { program, port, _folder: folder };
        until("kube-apiserver to be ready", PATIENCE, async || {
            server.program.runs()?;
            let ready = server
                .kubectl(&["get", "--raw=/readyz"], None)
                .and_then(|_| server.kubectl(&["get", "ns", "default"], None));
            if ready.is_err() {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Ok(ready.map(drop).map_err(|error| format!("{error:#}")))
        })
        .await?;
        Ok(server)
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
