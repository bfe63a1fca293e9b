//! Clusters with certificates that Holdfast issues: they form, grow, are saved and restored; etcd answers no client in plaintext,
//! and no client without the right certificate.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::{is_ready, until};
use crate::support::make;
use crate::support::probe::{Digest, Members};
use crate::support::world::{PATIENCE, World};

/// A cluster with certificates: the spec has no `tls`.
fn secured(mut cluster: Value, version: &str) -> Value {
    cluster["spec"]["version"] = json!(version);
    if let Some(spec) = cluster["spec"].as_object_mut() {
        spec.remove("tls");
    }
    cluster
}

pub(super) async fn ready(w: &World, cluster: &str, voters: usize) -> Result<Value> {
    let ready = w.wait("EtcdCluster", cluster, "Ready", |c| is_ready(c, voters));
    w.step(&format!("{cluster}: {voters} voters"), ready).await
}

/// Starts an application Pod that mounts one Secret.
pub(super) async fn application(w: &World, name: &str, secret: &str) -> Result<()> {
    let mut pod = make::toolbox(name, &w.env.probe_image, &[]);
    pod["spec"]["volumes"] = json!([{"name": "tls", "secret": {"secretName": secret}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "tls", "mountPath": "/tls", "readOnly": true}]);
    w.create(pod).await?;
    w.wait("Pod", name, "running", |p| p["status"]["phase"] == "Running").await.map(drop)
}

/// Runs the probe in an application's Pod, with its certificate.
pub(super) async fn ask(w: &World, pod: &str, verb: &str, endpoint: &str, more: &[&str]) -> Result<String> {
    let certificate = ["--cacert", "/tls/ca.crt", "--cert", "/tls/tls.crt", "--key-file", "/tls/tls.key"];
    let command = [&["holdfast-probe", verb, "--endpoint", endpoint], &certificate[..], more].concat();
    w.exec(pod, "probe", &command).await
}

pub(super) fn service(cluster: &str) -> String {
    format!("https://{cluster}-client:2379")
}

pub(super) async fn digest(w: &World, pod: &str, endpoint: &str) -> Result<Digest> {
    let said = ask(w, pod, "digest", endpoint, &[]).await?;
    Ok(serde_json::from_str(said.lines().last().context("a digest")?)?)
}

pub(super) async fn members(w: &World, cluster: &str) -> Result<Vec<String>> {
    w.names_with("EtcdMember", &format!("holdfast.dev/cluster={cluster}")).await
}

/// One voter, a snapshot, a restore of it, three voters: on every minor.
pub async fn auto(w: &World) -> Result<()> {
    for version in ["3.5.35", "3.6.16", "3.7.3"] {
        let tag = version.replace('.', "");
        let (source, copy, app, copied) =
            (format!("a{tag}"), format!("b{tag}"), format!("app-{tag}"), format!("copied-{tag}"));
        w.create(secured(make::cluster(&source, 1), version)).await?;
        let object = ready(w, &source, 1).await?;
        ensure!(
            object["status"]["endpoint"] == json!(format!("https://{source}-client.{}.svc:2379", w.ns)),
            "{object}"
        );
        ensure!(object["status"]["tls"]["client"]["mutual"] == json!(true), "{}", object["status"]);
        application(w, &app, &format!("{source}-client-tls")).await?;
        ask(w, &app, "fill", &service(&source), &["--keys", "300", "--seed", "7"]).await?;
        let before = digest(w, &app, &service(&source)).await?;
        exec_etcdctl(w, &source).await?;
        w.create(make::snapshot(&format!("s{tag}"), &source, json!({ "s3": make::s3() }))).await?;
        w.step("a snapshot", w.wait_complete(&format!("s{tag}"))).await?;
        let name = format!("s{tag}");
        w.create(secured(make::restored(&copy, 1, json!({"snapshotRef": {"name": name}})), version)).await?;
        ready(w, &copy, 1).await?;
        application(w, &copied, &format!("{copy}-client-tls")).await?;
        ensure!(digest(w, &copied, &service(&copy)).await? == before, "restored something else");
        w.patch("EtcdCluster", &copy, json!({"spec": {"replicas": 3}})).await?;
        ready(w, &copy, 3).await?;
        ensure!(digest(w, &copied, &service(&copy)).await? == before, "growing changed the data");
        w.delete_and_wait("EtcdCluster", &source).await?;
        until("Secrets of members go with them", PATIENCE, async || {
            let left = w.names("Secret").await?;
            let left: Vec<_> = left.into_iter().filter(|name| name.starts_with(&format!("{source}-"))).collect();
            Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
        })
        .await?;
        w.delete_and_wait("EtcdCluster", &copy).await?;
    }
    Ok(())
}

/// etcdctl in the member's Pod, without flags and with flags.
pub(super) async fn exec_etcdctl(w: &World, cluster: &str) -> Result<()> {
    let member = members(w, cluster).await?.pop().context("a member")?;
    w.exec(&member, "etcd", &["etcdctl", "endpoint", "health"]).await?;
    etcdctl_by_name(w, cluster).await
}

/// etcdctl by the member's name, for which each certificate is valid.
pub(super) async fn etcdctl_by_name(w: &World, cluster: &str) -> Result<()> {
    let member = members(w, cluster).await?.pop().context("a member")?;
    let own = format!("--endpoints=https://{member}.{cluster}.{}.svc:2379", w.ns);
    w.exec(&member, "etcd", &["etcdctl", &own, "member", "list"]).await.map(drop)
}

/// A request without an answer by then gets none: a member answers within milliseconds.
const SOON: &str = "4s";

/// Checks every port of every member, from inside the cluster.
pub async fn refusals(w: &World) -> Result<()> {
    w.create(secured(make::cluster("t", 3), "3.7.3")).await?;
    ready(w, "t", 3).await?;
    w.create(secured(make::cluster("other", 1), "3.7.3")).await?;
    ready(w, "other", 1).await?;
    application(w, "app", "t-client-tls").await?;
    application(w, "stranger", "other-client-tls").await?;
    ask(w, "app", "fill", &service("t"), &["--keys", "50", "--seed", "7"]).await?;
    let before = digest(w, "app", &service("t")).await?;
    for member in members(w, "t").await? {
        let host = format!("{member}.t.{}.svc", w.ns);
        // etcd answers no plaintext request, on either port.
        for port in [2379, 2380] {
            let plain = format!("http://{host}:{port}");
            let ask = ["holdfast-probe", "members", "--endpoint", &plain, "--give-up", SOON];
            refused(w.exec("app", "probe", &ask).await, &plain)?;
        }
        let (client, peer) = (format!("https://{host}:2379"), format!("https://{host}:2380"));
        ask(w, "app", "members", &client, &[]).await?;
        // With the certificate of another cluster, and without a certificate.
        refused(ask(w, "stranger", "members", &client, &["--give-up", SOON]).await, "another cluster's certificate")?;
        let none = ["holdfast-probe", "members", "--endpoint", &client, "--cacert", "/tls/ca.crt", "--give-up", SOON];
        refused(w.exec("app", "probe", &none).await, "no certificate")?;
        // A client's certificate is no peer certificate.
        refused(ask(w, "app", "members", &peer, &["--give-up", SOON]).await, "a client on the peer port")?;
    }
    // A deleted Secret of a member is written again, and the member continues to serve.
    let member = members(w, "t").await?.pop().context("a member")?;
    let secret = format!("{member}-tls");
    w.delete("Secret", &secret).await?;
    w.patch("EtcdCluster", "t", json!({"spec": {"progressDeadlineSeconds": 700}})).await?;
    until("the Secret is written again", PATIENCE, async || {
        let names = w.names("Secret").await?;
        Ok(if names.contains(&secret) { Ok(()) } else { Err("it is gone".to_owned()) })
    })
    .await?;
    let said: Members = serde_json::from_str(ask(w, "app", "members", &service("t"), &[]).await?.trim())?;
    ensure!(said.members.len() == 3, "{said:?}");
    // Another name reaches the servers' certificates, and another source of certificates is refused.
    let tls = |client: Value| json!({"spec": {"tls": {"client": client}}});
    let shown = w.get("Secret", &secret).await?["data"]["server.crt"].clone();
    w.patch("EtcdCluster", "t", tls(json!({"additionalNames": ["etcd.example.org"]}))).await?;
    let own =
        json!({"serverSecretRef": {"name": "a"}, "operatorClientSecretRef": {"name": "b"}, "additionalNames": null});
    let why = w.patch("EtcdCluster", "t", tls(own)).await.err().context("another source of certificates was taken")?;
    let why = format!("{why:#}");
    ensure!(
        why.contains("another source of certificates is not supported yet") && !why.contains("turned on and off"),
        "{why}"
    );
    let renewed = |secret: &Value| secret["data"]["server.crt"] != shown;
    w.wait("Secret", &secret, "a certificate with the new name", renewed).await?;
    // A Pod that is deleted comes back with its certificates.
    w.delete("Pod", &member).await?;
    ready(w, "t", 3).await?;
    ensure!(digest(w, "app", &service("t")).await? == before, "data changed");
    Ok(())
}

pub(super) fn refused(said: Result<String>, who: &str) -> Result<()> {
    match said {
        Ok(said) => bail!("{who} was answered: {said}"),
        Err(_) => Ok(()),
    }
}
