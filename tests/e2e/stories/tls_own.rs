//! Clusters with a person's own certificates, of an intermediate CA: they form, grow, are saved and restored. A bad edit of
//! a Secret changes nothing, and a good one reaches every member without a restart.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::rotation::{cas, exchanged, step};
use super::tls::{application, ask, digest, etcdctl_by_name, members, ready, refused, service};
use crate::support::host_operator::Seat;
use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::pki::{For, Pki};
use crate::support::world::{PATIENCE, World};

pub async fn tell(w: &World) -> Result<()> {
    let operator = Seat::new(w, "host", None).await?.start(&[])?;
    operator.until_leading().await?;
    let pki = Pki::new()?;
    let names = |clusters: &[&str]| -> Vec<String> {
        let of = |cluster: &&str| [format!("*.{cluster}.{}.svc", w.ns), format!("{cluster}-client.{}.svc", w.ns)];
        clusters.iter().flat_map(of).collect()
    };
    let all = names(&["a35", "b35", "a37", "b37"]);
    // A cluster waits for its Secrets, and its condition names them.
    w.create(secured("a35", 1, "3.5.35")).await?;
    w.wait("EtcdCluster", "a35", "told which Secret is missing", |c| {
        waits(c, "CertificatePending", "the Secret operator")
    })
    .await?;
    for (name, purpose) in [("peer", For::Peer), ("operator", For::Client)] {
        let names = if name == "peer" { &all[..] } else { &[] };
        w.create(pki.secret(name, names, purpose, 365)?.0).await?;
    }
    w.create(pki.secret("server", &names(&["other"]), For::Server, 365)?.0).await?;
    w.wait("EtcdCluster", "a35", "told which name is missing", |c| waits(c, "CertificateRejected", "*.a35.")).await?;
    replace(w, &pki.secret("server", &all, For::Server, 365)?.0).await?;
    for (version, source, copy) in [("3.5.35", "a35", "b35"), ("3.7.3", "a37", "b37")] {
        if source != "a35" {
            w.create(secured(source, 1, version)).await?;
        }
        let object = ready(w, source, 1).await?;
        ensure!(object["status"]["tls"]["peer"]["provider"] == json!("Secret"), "{}", object["status"]["tls"]);
        let app = format!("app-{source}");
        application(w, &app, "operator").await?;
        ask(w, &app, "fill", &qualified(w, source), &["--keys", "300", "--seed", "7"]).await?;
        let before = digest(w, &app, &qualified(w, source)).await?;
        etcdctl_by_name(w, source).await?;
        // A client certificate of the CA that also signs the peers does not open a peer port.
        let member = members(w, source).await?.pop().context("a member")?;
        let peer = format!("https://{member}.{source}.{}.svc:2380", w.ns);
        refused(ask(w, &app, "members", &peer, &["--give-up", "4s"]).await, "a client on the peer port")?;
        let snapshot = format!("s-{source}");
        w.create(make::snapshot(&snapshot, source, json!({ "s3": make::s3() }))).await?;
        w.step("a snapshot", w.wait_complete(&snapshot)).await?;
        let mut restored = secured(copy, 1, version);
        restored["spec"]["bootstrap"] = json!({"restore": {"snapshotRef": {"name": snapshot}}});
        w.create(restored).await?;
        ready(w, copy, 1).await?;
        w.patch("EtcdCluster", copy, json!({"spec": {"replicas": 3}})).await?;
        ready(w, copy, 3).await?;
        ensure!(digest(w, &app, &qualified(w, copy)).await? == before, "the copy differs");
        w.delete_and_wait("EtcdCluster", source).await?;
        if copy == "b37" {
            w.step("a broken Secret changes nothing", broken(w, &pki, &all, &app)).await?;
            ensure!(digest(w, &app, &qualified(w, copy)).await? == before, "data changed");
        }
        w.delete_and_wait("EtcdCluster", copy).await?;
    }
    // Secrets of other owners stay.
    let left = w.names("Secret").await?;
    ensure!(["server", "operator", "peer"].iter().all(|name| left.iter().any(|l| l == name)), "{left:?}");
    Ok(())
}

/// An expired certificate is reported and copied nowhere, and a Pod that is deleted meanwhile comes back. A certificate of another CA
/// reaches every member.
async fn broken(w: &World, pki: &Pki, names: &[String], app: &str) -> Result<()> {
    let running = members(w, "b37").await?;
    replace(w, &pki.secret("server", names, For::Server, -1)?.0).await?;
    w.wait("EtcdCluster", "b37", "told why", |c| degraded(c, "CertificateRejected", "it ended at")).await?;
    let member = running.first().context("a member")?;
    let before = w.get("Pod", member).await?["metadata"]["uid"].clone();
    w.delete("Pod", member).await?;
    // The cluster is ready while a condition reports the flaw.
    until("the Pod comes back", PATIENCE, async || {
        // The Pod before has an address until it is gone, and the status of the cluster may still count it.
        let pods = w.names("Pod").await?;
        let pod = pods.contains(member) && {
            let now = w.get("Pod", member).await?;
            now["metadata"]["uid"] != before && now["status"]["podIP"].is_string()
        };
        let object = w.get("EtcdCluster", "b37").await?;
        let three = object["status"]["readyMembers"] == json!(3);
        Ok(if pod && three { Ok(()) } else { Err(object["status"].to_string()) })
    })
    .await?;
    ask(w, app, "members", &qualified(w, "b37"), &[]).await?;
    replace(w, &pki.secret("server", names, For::Server, 365)?.0).await?;
    w.wait("EtcdCluster", "b37", "well again", |c| !degraded(c, "CertificateRejected", "")).await?;
    // Another CA of the peers: members trust both before the first shows a certificate of the other.
    let old = cas(w, &format!("{member}-tls"), "peer-ca.crt").await?;
    replace(w, &Pki::new()?.secret("peer", names, For::Peer, 365)?.0).await?;
    let begins = w.wait("EtcdCluster", "b37", "exchanging", |c| !step(c, "peer").is_empty());
    w.step("members are to trust the peers' next CA", begins).await?;
    exchanged(w, "b37", 3).await?;
    for member in &running {
        let now = cas(w, &format!("{member}-tls"), "peer-ca.crt").await?;
        ensure!(now.len() == 1 && now != old, "{member} has {} CAs", now.len());
    }
    ask(w, app, "members", &qualified(w, "b37"), &[]).await?;
    // The newest certificate reaches every member, and no member restarts for it.
    let restarts = pods(w).await?;
    let (secret, leaf) = pki.secret("server", names, For::Server, 400)?;
    let begun = Instant::now();
    replace(w, &secret).await?;
    for member in &running {
        let ip = w.get("Pod", member).await?["status"]["podIP"].as_str().context("an address")?.to_owned();
        until("a member shows the newest certificate", PATIENCE, async || {
            Ok(if bare(&shown(&ip)?) == bare(&leaf) { Ok(()) } else { Err(format!("{member} shows another")) })
        })
        .await?;
        eprintln!("e2e: tls_own: {member} shows the new certificate after {:.1} s", begun.elapsed().as_secs_f64());
    }
    ensure!(pods(w).await? == restarts, "a Pod was made anew or restarted");
    Ok(())
}

/// UIDs and restarts of all members' Pods.
async fn pods(w: &World) -> Result<Vec<(Value, Value)>> {
    let mut all = vec![];
    for member in members(w, "b37").await? {
        let pod = w.get("Pod", &member).await?;
        all.push((pod["metadata"]["uid"].clone(), pod["status"]["containerStatuses"][0]["restartCount"].clone()));
    }
    Ok(all)
}

/// The certificate that a server shows, as PEM.
fn shown(ip: &str) -> Result<String> {
    let out = Command::new("timeout")
        .args(["10", "openssl", "s_client", "-connect", &format!("{ip}:2379")])
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let begin = text.find("-----BEGIN CERTIFICATE").with_context(|| format!("no certificate: {text}"))?;
    let end = text.find("-----END CERTIFICATE-----").context("an end")?;
    Ok(text[begin..end].to_owned())
}

/// The body of a PEM certificate.
fn bare(pem: &str) -> String {
    pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect()
}

fn waits(cluster: &Value, reason: &str, words: &str) -> bool {
    told(cluster, "Ready", ("False", reason), words)
}

fn degraded(cluster: &Value, reason: &str, words: &str) -> bool {
    told(cluster, "Degraded", ("True", reason), words)
}

fn told(cluster: &Value, kind: &str, as_told: (&str, &str), words: &str) -> bool {
    condition(cluster, kind)
        .is_some_and(|(status, reason, message)| (status, reason) == as_told && message.contains(words))
}

/// A person's own certificates are for names with the namespace.
fn qualified(w: &World, cluster: &str) -> String {
    service(cluster).replace("-client:", &format!("-client.{}.svc:", w.ns))
}

/// Writes a Secret again, as `kubectl replace` does.
async fn replace(w: &World, secret: &Value) -> Result<()> {
    let name = secret["metadata"]["name"].as_str().context("a name")?;
    w.patch("Secret", name, json!({"stringData": secret["stringData"]})).await.map(drop)?;
    // The API server has the Secret; the operator reads it within seconds.
    tokio::time::sleep(Duration::from_millis(10)).await;
    Ok(())
}

fn secured(name: &str, replicas: i32, version: &str) -> Value {
    let mut cluster = make::cluster(name, replicas);
    cluster["spec"]["version"] = json!(version);
    cluster["spec"]["tls"] = json!({
        "client": {"serverSecretRef": {"name": "server"}, "operatorClientSecretRef": {"name": "operator"}},
        "peer": {"secretRef": {"name": "peer"}},
    });
    cluster
}
