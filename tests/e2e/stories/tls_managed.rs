//! Clusters with certificates of cert-manager, whose own controllers run here: one is created before cert-manager is installed, and
//! never starts in plaintext; a copy grows; then the issuer gets another CA, which an edited name and a new member bring to light.
//! A ClusterIssuer signs the names that the operator allows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::rotation::{cas, exchanged, step};
use super::tls::{application, ask, digest, exec_etcdctl, ready, service};
use crate::support::host_operator::Seat;
use crate::support::kube_helpers::until;
use crate::support::make;
use crate::support::probe::Digest;
use crate::support::program::{Program, command};
use crate::support::world::{PATIENCE, World};

const VERSION: &str = "3.6.16";

/// The story that has cert-manager: its definitions have no namespace, and one of the stories deletes them.
static CERT_MANAGER: Mutex<()> = Mutex::const_new(());

/// Kinds of issuers that cert-manager serves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Issuers {
    /// `Issuer`s of the story's namespace.
    OfNamespace,
    /// `ClusterIssuer`s too, whose Secrets are in the story's namespace.
    OfAll,
}

/// Returns the folder of cert-manager's programs.
fn parts() -> Result<PathBuf> {
    Ok(PathBuf::from(std::env::var("HOLDFAST_CERT_MANAGER").context("HOLDFAST_CERT_MANAGER, from testbed env")?))
}

pub async fn tell(w: &World) -> Result<()> {
    let _alone = CERT_MANAGER.lock().await;
    let folder = parts()?;
    let crds: Vec<String> = definitions(&folder)?.iter().map(|crd| crd.display().to_string()).collect();
    for crd in &crds {
        w.env.kubectl(&["delete", "--ignore-not-found", "-f", crd])?;
    }
    let operator = Seat::new(w, "host", None).await?.start(&[])?;
    operator.until_leading().await?;
    w.create(managed("a", 1)).await?;
    let missing = |c: &Value| c["status"]["conditions"].to_string().contains("CertManagerMissing");
    w.wait("EtcdCluster", "a", "told that cert-manager is missing", missing).await?;
    ensure!(w.names_with("Pod", "holdfast.dev/cluster=a").await?.is_empty(), "a member without certificates");
    for crd in &crds {
        w.env.kubectl(&["apply", "--server-side", "-f", crd])?;
    }
    let _controllers = controllers(w, &folder, Issuers::OfNamespace)?;
    // No issuer yet: the cluster's condition contains cert-manager's own message.
    let unready = |c: &Value| c["status"]["conditions"].to_string().contains("a-operator-cert");
    w.wait("EtcdCluster", "a", "told which Certificate is missing", unready).await?;
    // cert-manager's caches lag behind its own writes: it sometimes issues a new CA twice, and signs with both.
    w.apply(&authority().to_string()).await?;
    until_issued(w).await?;
    w.apply(&issuers().to_string()).await?;
    let object = ready(w, "a", 1).await?;
    ensure!(object["status"]["tls"]["client"]["provider"] == json!("CertManager"), "{}", object["status"]["tls"]);
    application(w, "app", "app-cert").await?;
    ask(w, "app", "fill", &service("a"), &["--keys", "300", "--seed", "7"]).await?;
    let before = digest(w, "app", &service("a")).await?;
    exec_etcdctl(w, "a").await?;
    w.create(make::snapshot("s", "a", json!({ "s3": make::s3() }))).await?;
    w.step("a snapshot", w.wait_complete("s")).await?;
    let mut copy = managed("b", 1);
    copy["spec"]["bootstrap"] = json!({"restore": {"snapshotRef": {"name": "s"}}});
    w.create(copy).await?;
    ready(w, "b", 1).await?;
    w.patch("EtcdCluster", "b", json!({"spec": {"replicas": 3}})).await?;
    ready(w, "b", 3).await?;
    ensure!(digest(w, "app", &service("b")).await? == before, "the copy differs");
    exchange(w, &before).await?;
    for cluster in ["a", "b"] {
        w.delete_and_wait("EtcdCluster", cluster).await?;
    }
    Ok(())
}

/// Waits until the CA is issued, and cert-manager has noticed its own writes.
async fn until_issued(w: &World) -> Result<()> {
    let issued = |certificate: &Value| {
        let holds = |kind: &str, status: &str| {
            let conditions = certificate["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|c| c["type"] == json!(kind) && c["status"] == json!(status))
        };
        holds("Ready", "True") && !holds("Issuing", "True")
    };
    w.wait("Certificate", "pki-ca", "issued", issued).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    w.wait("Certificate", "pki-ca", "issued for good", issued).await.map(drop)
}

/// The issuer gets another CA. cert-manager issues the certificates with an edited name again, and Holdfast has it issue the others,
/// after members trust both CAs; a new member's certificate brings the CA to the peers.
async fn exchange(w: &World, before: &Digest) -> Result<()> {
    let client = json!({"rotationGraceSeconds": 5, "additionalNames": ["b.example.org"]});
    let old = cas(w, "b-operator-tls", "ca.crt").await?;
    w.delete("Secret", "pki-ca").await?;
    until("another CA", PATIENCE, async || {
        Ok(if w.names("Secret").await?.contains(&"pki-ca".to_owned()) { Ok(()) } else { Err("none yet".to_owned()) })
    })
    .await?;
    until_issued(w).await?;
    w.patch("EtcdCluster", "b", json!({"spec": {"tls": {"client": client}}})).await?;
    let begins = w.wait("EtcdCluster", "b", "exchanging", |c| !step(c, "client").is_empty());
    w.step("members are to trust the issuer's next CA", begins).await?;
    exchanged(w, "b", 3).await?;
    let now = cas(w, "b-operator-tls", "ca.crt").await?;
    ensure!(now.len() == 1 && now != old, "{} CAs", now.len());
    let spec = json!({
        "secretName": "later-cert", "commonName": "later", "usages": ["client auth"], "issuerRef": {"name": "pki"},
    });
    w.apply(&named("Certificate", "later", &spec).to_string()).await?;
    application(w, "later", "later-cert").await?;
    ensure!(digest(w, "later", &service("b")).await? == *before, "the exchange changed the data");
    w.patch("EtcdCluster", "b", json!({"spec": {"replicas": 4}})).await?;
    ready(w, "b", 4).await?;
    exchanged(w, "b", 4).await?;
    ensure!(digest(w, "later", &service("b")).await? == *before, "growing changed the data");
    Ok(())
}

/// A name outside the namespace.
const OUTSIDE: &str = "etcd.example.org";

/// A ClusterIssuer signs for every namespace: the operator asks it for names of the namespace, and for those that `--allowed-names`
/// lists. A new cluster with another name does not start; a formed one goes on without the name, until the operator allows it.
///
/// The operator has no right on ClusterIssuers and needs none: it writes Certificates in its namespace.
pub async fn cluster_issuer(w: &World) -> Result<()> {
    let _alone = CERT_MANAGER.lock().await;
    let folder = parts()?;
    for crd in &definitions(&folder)? {
        w.env.kubectl(&["apply", "--server-side", "-f", &crd.display().to_string()])?;
    }
    let _controllers = controllers(w, &folder, Issuers::OfAll)?;
    w.apply(&authority().to_string()).await?;
    until_issued(w).await?;
    // The name of the namespace: a ClusterIssuer has none.
    w.apply(&named("ClusterIssuer", &w.ns, &json!({"ca": {"secretName": "pki-ca"}})).to_string()).await?;
    let told = names_of_a_cluster_issuer(w).await;
    w.env.kubectl(&["delete", "clusterissuers.cert-manager.io", &w.ns])?;
    told
}

async fn names_of_a_cluster_issuer(w: &World) -> Result<()> {
    let seat = Seat::new(w, "host", None).await?;
    let mut operator = seat.start(&[])?;
    operator.until_leading().await?;
    let wide = json!({"name": w.ns, "kind": "ClusterIssuer"});
    let mut cluster = managed("c", 1);
    for plane in ["client", "peer"] {
        cluster["spec"]["tls"][plane]["certManager"]["issuerRef"] = wide.clone();
    }
    cluster["spec"]["tls"]["client"]["additionalNames"] = json!([OUTSIDE]);
    w.create(cluster).await?;
    let refused = w.wait("EtcdCluster", "c", "InvalidSpec", |c| says(c, "InvalidSpec"));
    let refused = w.step("a new cluster with a name outside the namespace is refused", refused).await?;
    ensure!(says(&refused, OUTSIDE) && says(&refused, "--allowed-names"), "{}", refused["status"]["conditions"]);
    ensure!(!w.names("Certificate").await?.iter().any(|name| name.starts_with("c-")), "a Certificate of it exists");
    ensure!(w.names_with("Pod", "holdfast.dev/cluster=c").await?.is_empty(), "a member without certificates");

    let own = format!("db.{}.svc", w.ns);
    let names = |names: &[&str]| json!({"spec": {"tls": {"client": {"additionalNames": names}}}});
    w.patch("EtcdCluster", "c", names(&[&own])).await?;
    ready(w, "c", 1).await?;
    let spec = json!({
        "secretName": "app-cert", "commonName": "app", "usages": ["client auth"], "issuerRef": wide,
    });
    w.apply(&named("Certificate", "app", &spec).to_string()).await?;
    application(w, "app", "app-cert").await?;
    ask(w, "app", "fill", &service("c"), &["--keys", "50", "--seed", "7"]).await?;
    let before = digest(w, "app", &service("c")).await?;
    let address = w.get("Service", "c-client").await?["spec"]["clusterIP"].clone();
    elsewhere(w, &address, &[OUTSIDE, &own]).await?;
    ensure!(digest(w, "elsewhere", &at(&own)).await? == before, "another cluster answers");

    w.patch("EtcdCluster", "c", names(&[&own, OUTSIDE])).await?;
    let rejected = w.wait("EtcdCluster", "c", "CertificateRejected", |c| says(c, "CertificateRejected"));
    w.step("a formed cluster goes on without the name", rejected).await?;
    ensure!(digest(w, "elsewhere", &at(&own)).await? == before, "the refused name has changed the data");
    let unknown = ask(w, "elsewhere", "digest", &at(OUTSIDE), &["--give-up", "5s"]).await;
    ensure!(unknown.is_err(), "the member has a certificate with the refused name");

    operator.retire().await?;
    let operator = seat.start(&[("HOLDFAST_ALLOWED_NAMES", "*.example.org".to_owned())])?;
    operator.until_leading().await?;
    until("a certificate with the allowed name", PATIENCE, async || {
        let answer = ask(w, "elsewhere", "digest", &at(OUTSIDE), &["--give-up", "5s"]).await;
        Ok(answer.map(drop).map_err(|error| format!("{error:#}")))
    })
    .await?;
    ensure!(digest(w, "elsewhere", &at(OUTSIDE)).await? == before, "another cluster answers");
    let accepted = w.wait("EtcdCluster", "c", "without CertificateRejected", |c| !says(c, "CertificateRejected"));
    w.step("the condition ends", accepted).await?;
    ready(w, "c", 1).await?;
    seat.no_defects()?;
    w.delete_and_wait("EtcdCluster", "c").await
}

/// Whether the conditions of an object contain these words.
fn says(object: &Value, words: &str) -> bool {
    object["status"]["conditions"].to_string().contains(words)
}

fn at(name: &str) -> String {
    format!("https://{name}:2379")
}

/// A Pod `elsewhere` with the application's certificate, for which these names have the address of the cluster's Service.
async fn elsewhere(w: &World, address: &Value, names: &[&str]) -> Result<()> {
    let mut pod = make::toolbox("elsewhere", &w.env.probe_image, &[]);
    pod["spec"]["hostAliases"] = json!([{"ip": address, "hostnames": names}]);
    pod["spec"]["volumes"] = json!([{"name": "tls", "secret": {"secretName": "app-cert"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "tls", "mountPath": "/tls", "readOnly": true}]);
    w.create(pod).await?;
    w.wait("Pod", "elsewhere", "running", |p| p["status"]["phase"] == "Running").await.map(drop)
}

/// cert-manager's CRDs, from its own module.
fn definitions(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = vec![];
    for entry in std::fs::read_dir(folder.join("crds"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "yaml") {
            all.push(path);
        }
    }
    ensure!(all.len() >= 6, "{all:?}");
    Ok(all)
}

/// Starts cert-manager's controllers for the story's namespace.
fn controllers(w: &World, folder: &Path, issuers: Issuers) -> Result<Program> {
    let log = w.env.logs.join(format!("{}.cert-manager.log", w.story));
    let mut program = command(&folder.join("cert-manager"));
    program.arg(&w.ns).env("KUBECONFIG", &w.env.kubeconfig);
    if issuers == Issuers::OfAll {
        program.arg("--cluster-issuers");
    }
    Program::start(&mut program, &log)
}

fn named(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A CA of the namespace.
fn authority() -> Value {
    let certificate = |name: &str, spec: Value| named("Certificate", name, &spec);
    let issuer = |name: &str, spec: Value| named("Issuer", name, &spec);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        issuer("self-signed", json!({"selfSigned": {}})),
        certificate("pki-ca", json!({
            "isCA": true, "commonName": "pki", "secretName": "pki-ca", "duration": "87600h", "issuerRef": {"name": "self-signed"},
        })),
    ]})
}

/// An issuer of that CA, and a certificate for an application.
fn issuers() -> Value {
    let certificate = |name: &str, spec: Value| named("Certificate", name, &spec);
    let issuer = |name: &str, spec: Value| named("Issuer", name, &spec);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        issuer("pki", json!({"ca": {"secretName": "pki-ca"}})),
        certificate("app", json!({
            "secretName": "app-cert", "commonName": "app", "usages": ["client auth"], "issuerRef": {"name": "pki"},
        })),
    ]})
}

fn managed(name: &str, replicas: i32) -> Value {
    let mut cluster = make::cluster(name, replicas);
    cluster["spec"]["version"] = json!(VERSION);
    let source = json!({"certManager": {"issuerRef": {"name": "pki"}}});
    cluster["spec"]["tls"] = json!({"client": source, "peer": source});
    cluster
}
