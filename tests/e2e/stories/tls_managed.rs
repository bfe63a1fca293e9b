//! Clusters with certificates of cert-manager, whose own controllers run here: one is created before cert-manager is installed, and
//! never starts in plaintext; a copy grows; then the issuer gets another CA, which an edited name and a new member bring to light.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::rotation::{cas, exchanged, step};
use super::tls::{application, ask, digest, exec_etcdctl, ready, service};
use crate::support::host_operator::Seat;
use crate::support::kube_helpers::until;
use crate::support::make;
use crate::support::probe::Digest;
use crate::support::program::{Program, command};
use crate::support::world::{PATIENCE, World};

const VERSION: &str = "3.6.16";

pub async fn tell(w: &World) -> Result<()> {
    let folder =
        PathBuf::from(std::env::var("HOLDFAST_CERT_MANAGER").context("HOLDFAST_CERT_MANAGER, from testbed env")?);
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
    let _controllers = controllers(w, &folder)?;
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
fn controllers(w: &World, folder: &Path) -> Result<Program> {
    let log = w.env.logs.join(format!("{}.cert-manager.log", w.story));
    Program::start(command(&folder.join("cert-manager")).arg(&w.ns).env("KUBECONFIG", &w.env.kubeconfig), &log)
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
