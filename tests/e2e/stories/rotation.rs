//! Holdfast's own CAs are exchanged while clients write, on both planes at once, and a lost CA gets a successor. `tls_managed.rs` and
//! `tls_own.rs` exchange the CAs of others.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::tls::{application, ask, exec_etcdctl, members, ready, service};
use crate::support::kube_helpers::{is_ready, until};
use crate::support::make;
use crate::support::probe::{Members, Wrote};
use crate::support::world::{PATIENCE, World};

/// Seconds for applications: a new Pod reads the files within two.
const GRACE: u64 = 30;

/// Asks for other CAs.
pub(super) async fn ask_to_rotate(w: &World, cluster: &str, request: &str) -> Result<()> {
    let annotations = json!({"holdfast.dev/rotate-ca": request});
    w.patch("EtcdCluster", cluster, json!({"metadata": {"annotations": annotations}})).await.map(drop)
}

/// Step of the exchange of a plane's CA; empty while none is exchanged.
pub(super) fn step(cluster: &Value, plane: &str) -> String {
    cluster["status"]["tls"][plane]["rotation"].as_str().unwrap_or_default().to_owned()
}

/// Waits for one of these steps of the exchange of the clients' CA.
pub(super) async fn reaches(w: &World, cluster: &str, wanted: &[&str]) -> Result<()> {
    let reached = w.wait("EtcdCluster", cluster, wanted[0], |c| wanted.contains(&step(c, "client").as_str()));
    w.step(&format!("{cluster}: clients' CA: {}", wanted.join(" or ")), reached).await.map(drop)
}

/// Waits until no CA is exchanged any more, and every member serves.
pub(super) async fn exchanged(w: &World, cluster: &str, voters: usize) -> Result<()> {
    let over = |c: &Value| step(c, "client").is_empty() && step(c, "peer").is_empty() && is_ready(c, voters);
    w.step(&format!("{cluster}: the exchange is over"), w.wait("EtcdCluster", cluster, "over", over)).await.map(drop)
}

/// The certificates of a Secret's file of CAs.
pub(super) async fn cas(w: &World, secret: &str, file: &str) -> Result<Vec<String>> {
    let data: BTreeMap<String, ByteString> = serde_json::from_value(w.get("Secret", secret).await?["data"].clone())?;
    let text = String::from_utf8(data.get(file).with_context(|| format!("{file} in {secret}"))?.0.clone())?;
    let end = "-----END CERTIFICATE-----";
    Ok(text.split(end).map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
}

/// Writes for some seconds with the certificate of an application's Pod, and reports the numbers.
async fn write_for(w: &World, pod: &str, cluster: &str, seconds: u64, total: &mut Total) -> Result<()> {
    let prefix = format!("writers-{pod}/");
    let duration = format!("{seconds}s");
    let out = ask(w, pod, "writers", &service(cluster), &["--duration", &duration, "--prefix", &prefix]).await?;
    let wrote = Wrote::read(&out)?;
    let acked = wrote.acked_flag();
    ask(w, pod, "written-by", &service(cluster), &["--acked", &acked, "--prefix", &prefix]).await?;
    total.writes += wrote.total;
    total.failed += wrote.failed;
    total.gap = total.gap.max(wrote.longest_gap_ms);
    Ok(())
}

/// Names and IDs of the members.
async fn ids(w: &World, pod: &str) -> Result<Vec<(String, String)>> {
    let said = ask(w, pod, "members", &service("r"), &[]).await?;
    let listed: Members = serde_json::from_str(said.lines().last().context("a list")?)?;
    let mut ids: Vec<_> = listed.members.into_iter().map(|member| (member.name, member.id)).collect();
    ids.sort();
    Ok(ids)
}

#[derive(Default)]
struct Total {
    writes: u64,
    failed: u64,
    gap: f64,
}

/// Both CAs of three members are exchanged while a hundred clients write: each application reads its files once in each grace.
pub async fn under_load(w: &World) -> Result<()> {
    let mut cluster = make::secured("r", 3);
    cluster["spec"]["tls"] = json!({"client": {"rotationGraceSeconds": GRACE}});
    w.create(cluster).await?;
    ready(w, "r", 3).await?;
    let keys = json!([{"key": "", "match": "Prefix", "access": "ReadWrite"}]);
    w.create(make::user("r", "shop", &json!({"certificate": {}}), &keys)).await?;
    let named = w.wait("EtcdUser", "shop", "with a certificate", |u| u["status"]["signedBy"].is_string());
    w.step("a user", named).await?;
    let (old_client, old_peer) = (cas(w, "r-client-tls", "ca.crt").await?, cas(w, "r-peer-ca", "tls.crt").await?);
    // A client that keeps its certificate for ever.
    let kept = w.get("Secret", "r-client-tls").await?["data"].clone();
    let old = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kept"}, "data": kept});
    w.create(old).await?;
    application(w, "kept", "kept").await?;
    application(w, "one", "r-client-tls").await?;
    let before = ids(w, "one").await?;

    let begun = Instant::now();
    let mut total = Total::default();
    ask_to_rotate(w, "r", "all/first").await?;
    let first = async {
        let mut total = Total::default();
        write_for(w, "one", "r", 16, &mut total).await.map(|()| total)
    };
    let (first, waits) = tokio::join!(first, reaches(w, "r", &["Waiting", "Issuing", "Retiring"]));
    waits?;
    let first = first?;
    (total.writes, total.failed, total.gap) = (first.writes, first.failed, first.gap);
    ensure!(cas(w, "r-client-tls", "ca.crt").await?.len() == 2, "both CAs are published");
    application(w, "two", "r-client-tls").await?;
    let second = async {
        let mut total = Total::default();
        write_for(w, "two", "r", GRACE / 2, &mut total).await.map(|()| total)
    };
    let (second, retires) = tokio::join!(second, reaches(w, "r", &["Retiring"]));
    retires?;
    let second = second?;
    ensure!(second.failed == 0, "{} writes failed while certificates were issued", second.failed);
    total.writes += second.writes;
    total.gap = total.gap.max(second.gap);
    let renewed =
        |u: &Value| u["status"]["trusts"].as_array().is_some_and(|cas| cas.contains(&u["status"]["signedBy"]));
    w.wait("EtcdUser", "shop", "with the next CA", renewed).await?;
    application(w, "three", "r-client-tls").await?;
    let third = async {
        let mut total = Total::default();
        write_for(w, "three", "r", GRACE + 25, &mut total).await.map(|()| total)
    };
    let (third, over) = tokio::join!(third, exchanged(w, "r", 3));
    over?;
    let third = third?;
    total.writes += third.writes;
    total.failed += third.failed;
    total.gap = total.gap.max(third.gap);
    eprintln!(
        "e2e: {}: both CAs exchanged in {:.1} s with two graces of {GRACE} s: {} writes, {} failed, longest gap {:.0} ms",
        w.story,
        begun.elapsed().as_secs_f64(),
        total.writes,
        total.failed,
        total.gap
    );

    ensure!(ids(w, "three").await? == before, "another member");
    until("no file holds an earlier CA", PATIENCE, async || {
        for secret in ["r-client-tls", "r-operator-tls", "shop-etcd-tls"] {
            let now = cas(w, secret, "ca.crt").await?;
            if now.len() != 1 || now == old_client {
                return Ok(Err(format!("{secret} holds {} CAs", now.len())));
            }
        }
        Ok(Ok(()))
    })
    .await?;
    for member in members(w, "r").await? {
        let secret = format!("{member}-tls");
        let (client, peer) = (cas(w, &secret, "client-ca.crt").await?, cas(w, &secret, "peer-ca.crt").await?);
        ensure!(client.len() == 1 && client != old_client && peer.len() == 1 && peer != old_peer, "{secret}");
    }
    let refused = ask(w, "kept", "digest", &service("r"), &["--give-up", "4s"]).await;
    ensure!(refused.is_err(), "a certificate of the earlier CA is accepted");
    exec_etcdctl(w, "r").await?;
    w.create(make::snapshot("after", "r", json!({ "s3": make::s3() }))).await?;
    w.step("a snapshot with the next CA", w.wait_complete("after")).await?;

    // A lost CA has a way out.
    w.delete("Secret", "r-peer-ca").await?;
    // The operator reads the Secrets of a settled cluster every five minutes, and at once after a change of the EtcdCluster.
    w.patch("EtcdCluster", "r", json!({"spec": {"options": {"snapshotCount": 9000}}})).await?;
    let lost = |c: &Value| c["status"]["conditions"].to_string().contains("CaLost");
    w.step("a lost CA is reported", w.wait("EtcdCluster", "r", "CaLost", lost)).await?;
    ready(w, "r", 3).await?;
    ask_to_rotate(w, "r", "all/first,peer/lost").await?;
    let begun = w.wait("EtcdCluster", "r", "Trusting", |c| !step(c, "peer").is_empty());
    w.step("another CA follows", begun).await?;
    exchanged(w, "r", 3).await?;
    w.patch("EtcdCluster", "r", json!({"spec": {"replicas": 1}})).await?;
    ready(w, "r", 1).await.map(drop)
}
