//! TLS is turned on and off below clients that write: clients move while members serve both.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::tls::{application, ask, members, ready, service};
use crate::support::kube_helpers::{condition, is_ready};
use crate::support::make;
use crate::support::probe::Wrote;
use crate::support::world::World;

/// A file whose existence ends the writers of a Pod.
const STOP: &str = "/dev/shm/stop";

fn plain(cluster: &str) -> String {
    format!("http://{cluster}-client:2379")
}

async fn edit(w: &World, cluster: &str, tls: Value) -> Result<()> {
    w.patch("EtcdCluster", cluster, json!({"spec": {"tls": tls}})).await.map(drop)
}

/// Waits until every member stands at this step, and serves.
async fn stands(w: &World, cluster: &str, step: &str, voters: usize) -> Result<()> {
    let stands = |c: &Value| {
        c["status"]["transport"] == json!(step)
            && c["status"]["latches"]["transport"] == json!(step)
            && c["status"]["observedGeneration"] == c["metadata"]["generation"]
            && c["status"]["updatedMembers"] == json!(voters)
            && is_ready(c, voters)
    };
    let waits = w.wait("EtcdCluster", cluster, step, stands);
    w.step(&format!("{cluster}: every member stands at {step}"), waits).await?;
    for member in members(w, cluster).await? {
        let listed = w.etcdctl(&member, &["member", "list"]).await?;
        let scheme = if matches!(step, "Tls" | "ClientsPlaintext") { "https" } else { "http" };
        let right = listed.matches(&format!(" {scheme}://{cluster}-")).count();
        ensure!(listed.matches(":2380").count() == voters && right >= voters, "{member}: {listed}");
    }
    Ok(())
}

/// Starts a Pod of an application that knows no certificate.
async fn without_certificates(w: &World, name: &str) -> Result<()> {
    w.create(make::toolbox(name, &w.env.probe_image, &[])).await?;
    w.wait("Pod", name, "running", |p| p["status"]["phase"] == "Running").await.map(drop)
}

/// Runs the probe in a Pod without certificates.
async fn ask_plain(w: &World, pod: &str, verb: &str, cluster: &str, more: &[&str]) -> Result<String> {
    w.exec(pod, "probe", &[&["holdfast-probe", verb, "--endpoint", &plain(cluster)], more].concat()).await
}

async fn is_refused_in_plaintext(w: &World, pod: &str, cluster: &str) -> Result<()> {
    let answer = ask_plain(w, pod, "digest", cluster, &["--give-up", "4s"]).await;
    ensure!(answer.is_err(), "{cluster} answers in plaintext: {answer:?}");
    Ok(())
}

/// The writers of a Pod until [`STOP`] exists there, each with this prefix; tells and checks their numbers.
async fn write(w: &World, pod: &str, tls: bool, doing: &str) -> Result<Wrote> {
    let prefix = format!("writers-{pod}/");
    let load = ["--duration", "15m", "--until-file", STOP, "--prefix", &prefix];
    let out = if tls {
        ask(w, pod, "writers", &service("t"), &load).await?
    } else {
        ask_plain(w, pod, "writers", "t", &load).await?
    };
    let wrote = Wrote::read(&out)?;
    eprintln!(
        "e2e: {}: {doing}: {} writes, {} failed, longest gap {:.0} ms",
        w.story, wrote.total, wrote.failed, wrote.longest_gap_ms
    );
    Ok(wrote)
}

async fn stop(w: &World, pod: &str) -> Result<()> {
    w.exec(pod, "probe", &["holdfast-probe", "mkdir", STOP]).await.map(drop)
}

/// No acknowledged write is lost.
async fn holds(w: &World, pod: &str, tls: bool, writer: &str, wrote: &Wrote) -> Result<()> {
    let acked = wrote.acked_flag();
    let prefix = format!("writers-{writer}/");
    let more = ["--acked", &acked, "--prefix", &prefix];
    let held = if tls {
        ask(w, pod, "written-by", &service("t"), &more).await
    } else {
        ask_plain(w, pod, "written-by", "t", &more).await
    };
    held.map(drop)
}

/// Three members go from plaintext to TLS and back, each time below a hundred clients that write; an edit in the middle walks back.
pub async fn on_and_off(w: &World) -> Result<()> {
    w.create(make::cluster("t", 3)).await?;
    ready(w, "t", 3).await?;
    for pod in ["old", "late", "again"] {
        without_certificates(w, pod).await?;
    }
    for tls in [Value::Null, json!({"insecure": false})] {
        let refused = w.patch("EtcdCluster", "t", json!({"spec": {"tls": tls}})).await;
        let says = |error: &anyhow::Error| format!("{error:#}").contains("turned on and off while both work");
        ensure!(refused.as_ref().is_err_and(says), "{refused:?}");
    }
    let both = json!({"insecure": null, "client": {"allowPlaintext": true}});

    let begun = Instant::now();
    let turns_on = async {
        edit(w, "t", both.clone()).await?;
        stands(w, "t", "ClientsPlaintext", 3).await?;
        let seconds = begun.elapsed().as_secs_f64();
        eprintln!("e2e: {}: TLS on among members in {seconds:.1} s", w.story);
        stop(w, "old").await
    };
    let (old, on) = tokio::join!(write(w, "old", false, "clients in plaintext while TLS is turned on"), turns_on);
    on?;
    let old = old?;
    holds(w, "late", false, "old", &old).await?;
    let object = w.get("EtcdCluster", "t").await?;
    let risk = condition(&object, "AtRisk").context("the condition AtRisk")?;
    ensure!(format!("{risk:?}").contains("allowPlaintext"), "{risk:?}");
    let of_a_person = json!({"client": {"allowPlaintext": true, "serverSecretRef": {"name": "x"}, "operatorClientSecretRef": {"name": "y"}}});
    let refused = w.patch("EtcdCluster", "t", json!({"spec": {"tls": of_a_person}})).await;
    ensure!(refused.as_ref().is_err_and(|error| format!("{error:#}").contains("another source")), "{refused:?}");
    ensure!(object["status"]["endpoint"].as_str().is_some_and(|url| url.starts_with("https://")), "{object}");
    application(w, "new", "t-client-tls").await?;
    holds(w, "new", true, "old", &old).await?;

    let refuses = async {
        edit(w, "t", json!({"client": null})).await?;
        stands(w, "t", "Tls", 3).await?;
        is_refused_in_plaintext(w, "late", "t").await?;
        stop(w, "new").await
    };
    let (new, refused) = tokio::join!(write(w, "new", true, "clients with TLS while plaintext is refused"), refuses);
    refused?;
    let new = new?;
    application(w, "next", "t-client-tls").await?;
    holds(w, "next", true, "new", &new).await?;
    w.create(make::snapshot("secure", "t", json!({ "s3": make::s3() }))).await?;
    w.step("a snapshot with TLS", w.wait_complete("secure")).await?;

    let begun = Instant::now();
    let turns_off = async {
        edit(w, "t", json!({"client": {"allowPlaintext": true}})).await?;
        stands(w, "t", "ClientsPlaintext", 3).await?;
        ask_plain(w, "late", "digest", "t", &[]).await?;
        stop(w, "next").await
    };
    let (next, off) = tokio::join!(write(w, "next", true, "clients with TLS while plaintext is allowed"), turns_off);
    off?;
    holds(w, "late", false, "next", &next?).await?;
    let turns_off = async {
        edit(w, "t", json!({"client": null, "insecure": true})).await?;
        stands(w, "t", "Plaintext", 3).await?;
        eprintln!("e2e: {}: TLS off in {:.1} s", w.story, begun.elapsed().as_secs_f64());
        stop(w, "again").await
    };
    let (again, off) =
        tokio::join!(write(w, "again", false, "clients in plaintext while TLS is turned off"), turns_off);
    off?;
    holds(w, "late", false, "again", &again?).await?;
    for (writer, wrote) in [("old", &old), ("new", &new)] {
        holds(w, "late", false, writer, wrote).await?;
    }

    // An edit is taken back while members restart.
    edit(w, "t", both).await?;
    let midway = |c: &Value| {
        c["status"]["latches"]["transport"] == json!("PeersPlaintext") && c["status"]["updatedMembers"] == json!(1)
    };
    w.step("one member has certificates", w.wait("EtcdCluster", "t", "PeersPlaintext", midway)).await?;
    edit(w, "t", json!({"client": null, "insecure": true})).await?;
    stands(w, "t", "Plaintext", 3).await?;
    w.create(make::snapshot("plain", "t", json!({ "s3": make::s3() }))).await?;
    w.step("a snapshot in plaintext", w.wait_complete("plain")).await.map(drop)
}

/// The same of one member of the other minors, which name flags otherwise.
pub async fn every_minor(w: &World) -> Result<()> {
    without_certificates(w, "old").await?;
    for (name, version) in [("five", "3.5.35"), ("seven", "3.7.3")] {
        let mut cluster = make::cluster(name, 1);
        cluster["spec"]["version"] = json!(version);
        w.create(cluster).await?;
        ready(w, name, 1).await?;
        ask_plain(w, "old", "fill", name, &["--keys", "300", "--seed", "7"]).await?;
        let before = ask_plain(w, "old", "digest", name, &[]).await?;
        edit(w, name, json!({"insecure": null, "client": {"allowPlaintext": true}})).await?;
        stands(w, name, "ClientsPlaintext", 1).await?;
        ensure!(ask_plain(w, "old", "digest", name, &[]).await? == before, "{name}");
        edit(w, name, json!({"client": null})).await?;
        stands(w, name, "Tls", 1).await?;
        is_refused_in_plaintext(w, "old", name).await?;
        application(w, name, &format!("{name}-client-tls")).await?;
        ensure!(ask(w, name, "digest", &service(name), &[]).await? == before, "{name}");
        w.patch("EtcdCluster", name, json!({"spec": {"replicas": 3}})).await?;
        ready(w, name, 3).await?;
        w.patch("EtcdCluster", name, json!({"spec": {"replicas": 1}})).await?;
        ready(w, name, 1).await?;
        edit(w, name, json!({"client": {"allowPlaintext": true}})).await?;
        stands(w, name, "ClientsPlaintext", 1).await?;
        edit(w, name, json!({"client": null, "insecure": true})).await?;
        stands(w, name, "Plaintext", 1).await?;
        ensure!(ask_plain(w, "old", "digest", name, &[]).await? == before, "{name}");
    }
    Ok(())
}
