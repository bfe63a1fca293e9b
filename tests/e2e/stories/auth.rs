//! etcd's authentication: turned on by hand it locks the operator out of nothing; data with users come back by a restore; and
//! `spec.auth` turns it on and off while clients write.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::tls::{application, ask, digest, members, ready, service};
use crate::support::kube_helpers::{condition, is_ready};
use crate::support::make;
use crate::support::probe::{Digest, Wrote};
use crate::support::world::World;

/// Users, made by hand as the user root of a member's etcdctl.
const BY_HAND: [&[&str]; 4] = [
    &["user", "add", "root:canary-password"],
    &["role", "add", "root"],
    &["user", "grant-role", "root", "root"],
    &["auth", "enable"],
];

/// A user with a password and its role, made by hand.
const TILL: [&[&str]; 4] = [
    &["user", "add", "till:canary-till"],
    &["role", "add", "till"],
    &["role", "grant-permission", "till", "--prefix=true", "readwrite", "/old/"],
    &["user", "grant-role", "till", "till"],
];

/// A cluster of one member; each story has a minor of its own.
fn of_version(name: &str, version: &str) -> Value {
    let mut cluster = make::secured(name, 1);
    cluster["spec"]["version"] = json!(version);
    cluster
}

async fn by_hand(w: &World, cluster: &str, commands: &[&[&str]]) -> Result<()> {
    for command in commands {
        let member = members(w, cluster).await?.pop().context("a member")?;
        w.etcdctl(&member, command).await?;
    }
    Ok(())
}

/// Waits until the operator reports that somebody else turned authentication on.
async fn unmanaged(w: &World, cluster: &str) -> Result<Value> {
    let reported = w.wait("EtcdCluster", cluster, "AuthUnmanaged", |c| {
        c["status"]["authEnabled"] == json!(true)
            && condition(c, "AtRisk").is_some_and(|(status, reason, _)| status == "True" && reason == "AuthUnmanaged")
    });
    w.step(&format!("{cluster}: authentication is somebody else's"), reported).await
}

async fn is_refused(w: &World, pod: &str, cluster: &str) -> Result<()> {
    let answer = ask(w, pod, "digest", &service(cluster), &["--give-up", "4s"]).await;
    ensure!(answer.as_ref().is_err_and(|error| format!("{error:#}").contains("permission denied")), "{answer:?}");
    Ok(())
}

async fn holds(w: &World, pod: &str, cluster: &str, before: &Digest) -> Result<()> {
    let now = digest(w, pod, &service(cluster)).await?;
    ensure!(now == *before, "{cluster} holds {now:?} instead of {before:?}");
    Ok(())
}

/// Authentication that a person turned on: the cluster grows, rolls and is saved, and a copy of its data with users serves.
pub async fn by_a_person(w: &World) -> Result<()> {
    w.create(of_version("h", "3.7.3")).await?;
    ready(w, "h", 1).await?;
    application(w, "app", "h-client-tls").await?;
    application(w, "root", "h-operator-tls").await?;
    ask(w, "app", "fill", &service("h"), &["--keys", "300", "--seed", "7"]).await?;
    let before = digest(w, "app", &service("h")).await?;
    by_hand(w, "h", &TILL).await?;
    by_hand(w, "h", &BY_HAND).await?;
    is_refused(w, "app", "h").await?;
    unmanaged(w, "h").await?;
    w.patch("EtcdCluster", "h", json!({"spec": {"replicas": 3}})).await?;
    ready(w, "h", 3).await?;
    w.create(make::snapshot("users", "h", json!({ "s3": make::s3() }))).await?;
    let saved = w.step("a snapshot with users", w.wait_complete("users")).await?;
    ensure!(saved["status"]["artifact"]["authEnabled"] == json!(true), "{}", saved["status"]);
    w.patch("EtcdCluster", "h", json!({"spec": {"options": {"snapshotCount": 20000}}})).await?;
    let rolled = w.wait("EtcdCluster", "h", "rolled", |c| {
        c["status"]["updatedMembers"] == json!(3)
            && c["status"]["observedGeneration"] == c["metadata"]["generation"]
            && is_ready(c, 3)
    });
    w.step("every member has the changed option", rolled).await?;
    holds(w, "root", "h", &before).await?;
    w.patch("EtcdCluster", "h", json!({"spec": {"replicas": 1}})).await?;
    ready(w, "h", 1).await?;
    holds(w, "root", "h", &before).await?;

    let mut copy = of_version("copy", "3.7.3");
    copy["spec"]["bootstrap"] = json!({"restore": {"snapshotRef": {"name": "users"}}});
    w.create(copy).await?;
    ready(w, "copy", 1).await?;
    unmanaged(w, "copy").await?;
    application(w, "copied", "copy-operator-tls").await?;
    holds(w, "copied", "copy", &before).await?;
    take_over(w).await?;
    w.patch("EtcdCluster", "copy", json!({"spec": {"auth": {"enabled": false}}})).await?;
    let off = w.wait("EtcdCluster", "copy", "without authentication", |c| c["status"]["authEnabled"] == json!(false));
    w.step("spec.auth turns it off", off).await?;
    holds(w, "anybody", "copy", &before).await
}

/// A user that came with the data: its password works, and its EtcdUser takes it over on request.
async fn take_over(w: &World) -> Result<()> {
    application(w, "anybody", "copy-client-tls").await?;
    let endpoint = service("copy");
    let reads = async |pod: &str, key: &str, login: &[&str], allowed: bool| {
        let answer = ask(w, pod, "get", &endpoint, &[&["--key", key, "--give-up", "10s"], login].concat()).await;
        ensure!(answer.is_ok() == allowed, "{pod} reads {key}: {answer:?}");
        anyhow::Ok(())
    };
    let login = ["--user", "till:canary-till"];
    reads("anybody", "/old/1", &login, true).await?;
    let keys = json!([{"key": "/new/", "match": "Prefix", "access": "ReadWrite"}]);
    w.create(make::user("copy", "till", &json!({"certificate": {}}), &keys)).await?;
    user_is(w, "till", "False", "NameTaken").await?;
    reads("anybody", "/old/1", &login, true).await?;
    w.patch("EtcdUser", "till", json!({"spec": {"takeOver": true}})).await?;
    user_is(w, "till", "True", "AsDesired").await?;
    application(w, "till", "till-etcd-tls").await?;
    reads("till", "/new/1", &[], true).await?;
    reads("till", "/old/1", &[], false).await?;
    reads("anybody", "/old/1", &login, false).await
}

/// `spec.auth` turns authentication on and off while a hundred clients of an EtcdUser write 200 keys a second.
pub async fn on_and_off(w: &World) -> Result<()> {
    w.create(make::secured("o", 3)).await?;
    ready(w, "o", 3).await?;
    application(w, "app", "o-client-tls").await?;
    application(w, "root", "o-operator-tls").await?;
    ask(w, "app", "members", &service("o"), &[]).await?;
    let writers = json!([{"key": "writers/", "match": "Prefix", "access": "ReadWrite"}]);
    w.create(make::user("o", "writer", &json!({"certificate": {}}), &writers)).await?;
    user_is(w, "writer", "False", "AuthDisabled").await?;
    application(w, "writer", "writer-etcd-tls").await?;
    let endpoint = service("o");
    let writes = ask(w, "writer", "writers", &endpoint, &["--duration", "30s"]);
    let turns = async {
        for enabled in [true, false, true] {
            w.patch("EtcdCluster", "o", json!({"spec": {"auth": {"enabled": enabled}}})).await?;
            let turned = w.wait("EtcdCluster", "o", "authentication", |c| c["status"]["authEnabled"] == json!(enabled));
            w.step(&format!("authentication is {}", if enabled { "on" } else { "off" }), turned).await?;
            if enabled {
                is_refused(w, "app", "o").await?;
            } else {
                ask(w, "app", "digest", &endpoint, &[]).await?;
            }
        }
        anyhow::Ok(())
    };
    let (wrote, turned) = tokio::join!(writes, turns);
    turned?;
    let wrote = wrote?;
    let wrote = Wrote::read(&wrote)?;
    eprintln!(
        "e2e: {}: {} writes, {} failed, longest gap {} ms",
        w.story, wrote.total, wrote.failed, wrote.longest_gap_ms
    );
    ensure!(wrote.failed == 0, "{} of {} writes failed", wrote.failed, wrote.total);
    let acked = wrote.acked_flag();
    ask(w, "writer", "written-by", &endpoint, &["--acked", &acked]).await?;
    w.delete_and_wait("EtcdUser", "writer").await?;
    let before = digest(w, "root", &endpoint).await?;
    w.patch("EtcdCluster", "o", json!({"spec": {"replicas": 1}})).await?;
    ready(w, "o", 1).await?;
    holds(w, "root", "o", &before).await?;
    let mut insecure = make::cluster("plain", 1);
    insecure["spec"]["auth"] = json!({"enabled": true});
    let refused = w.try_create(&insecure).await;
    ensure!(
        refused.as_ref().is_err_and(|error| format!("{error:#}").contains("spec.auth.enabled needs TLS")),
        "{refused:?}"
    );
    Ok(())
}

pub(super) async fn user_is(w: &World, name: &str, status: &str, reason: &str) -> Result<Value> {
    let told = w.wait("EtcdUser", name, reason, |user| {
        condition(user, "Ready").is_some_and(|(is, why, _)| is == status && why == reason)
    });
    w.step(&format!("{name}: {reason}"), told).await
}

/// One request of an application's Pod: it succeeds, or etcd refuses it.
async fn may(w: &World, pod: &str, request: &[&str], allowed: bool) -> Result<()> {
    let (verb, more) = request.split_first().context("a verb")?;
    let answer = ask(w, pod, verb, &service("u"), &[more, &["--give-up", "10s"]].concat()).await;
    let refused = |error: &anyhow::Error| {
        let said = format!("{error:#}");
        said.contains("permission denied") || said.contains("invalid user ID or password")
    };
    match &answer {
        Ok(_) => ensure!(allowed, "{request:?} was allowed"),
        Err(error) => ensure!(!allowed && refused(error), "{request:?}: {error:#}"),
    }
    Ok(())
}

/// Users of applications as objects: with a certificate, with a password that changes, and none that is somebody else's.
pub async fn users(w: &World) -> Result<()> {
    w.create(of_version("u", "3.5.35")).await?;
    ready(w, "u", 1).await?;
    by_hand(w, "u", &[&["user", "add", "hand:canary-password"]]).await?;
    let (certificate, password) = (json!({"certificate": {}}), json!({"passwordSecretRef": {"name": "till-login"}}));
    let secret = |word: &str| json!({"stringData": {"password": word}});
    let mut login = secret("canary-one");
    login["apiVersion"] = json!("v1");
    login["kind"] = json!("Secret");
    login["metadata"] = json!({"name": "till-login"});
    w.create(login).await?;
    let below = |key: &str, access: &str| json!([{"key": key, "match": "Prefix", "access": access}]);
    w.create(make::user("u", "shop", &certificate, &below("/shop/", "ReadWrite"))).await?;
    w.create(make::user("u", "till", &password, &below("/shop/", "Read"))).await?;
    w.create(make::user("u", "hand", &certificate, &below("", "ReadWrite"))).await?;
    let shop = user_is(w, "shop", "False", "AuthDisabled").await?;
    ensure!(shop["status"]["keys"] == json!("rw /shop/*"), "{}", shop["status"]);
    user_is(w, "till", "False", "AuthDisabled").await?;
    user_is(w, "hand", "False", "NameTaken").await?;
    let root = w.try_create(&make::user("u", "root", &certificate, &json!([]))).await;
    ensure!(root.as_ref().is_err_and(|error| format!("{error:#}").contains("spec.name")), "{root:?}");

    application(w, "app", "u-client-tls").await?;
    application(w, "shop", "shop-etcd-tls").await?;
    may(w, "shop", &["put", "--key", "/other/1", "--value", "x"], true).await?;
    w.patch("EtcdCluster", "u", json!({"spec": {"auth": {"enabled": true}}})).await?;
    user_is(w, "shop", "True", "AsDesired").await?;
    user_is(w, "till", "True", "AsDesired").await?;
    may(w, "shop", &["put", "--key", "/shop/1", "--value", "x"], true).await?;
    may(w, "shop", &["get", "--key", "/shop/1"], true).await?;
    may(w, "shop", &["get", "--key", "/other/1"], false).await?;
    may(w, "shop", &["put", "--key", "/other/1", "--value", "y"], false).await?;
    may(w, "app", &["get", "--key", "/shop/1"], false).await?;
    may(w, "app", &["get", "--key", "/shop/1", "--user", "till:canary-one"], true).await?;
    may(w, "app", &["put", "--key", "/shop/1", "--value", "y", "--user", "till:canary-one"], false).await?;

    // Another password: the old one ends.
    w.patch("Secret", "till-login", secret("canary-two")).await?;
    w.patch("EtcdUser", "till", json!({"spec": {"permissions": below("/shop/1", "Read")}})).await?;
    let applied = w.wait("EtcdUser", "till", "changed", |user| {
        user["status"]["keys"] == json!("r /shop/1*") && condition(user, "Ready").is_some_and(|(is, ..)| is == "True")
    });
    w.step("the password and the keys have changed", applied).await?;
    may(w, "app", &["get", "--key", "/shop/1", "--user", "till:canary-two"], true).await?;
    may(w, "app", &["get", "--key", "/shop/1", "--user", "till:canary-one"], false).await?;
    may(w, "app", &["get", "--key", "/shop/2", "--user", "till:canary-two"], false).await?;

    // Two ranges of one key: etcd would keep the earlier access of the second.
    let ranges = |access: &str| json!([{"key": "/shop/a", "access": "Read"}, {"key": "/shop/a", "match": "Prefix", "access": access}]);
    for (access, allowed) in [("ReadWrite", true), ("Read", false)] {
        let edited = w.patch("EtcdUser", "shop", json!({"spec": {"permissions": ranges(access)}})).await?;
        let applied = w.wait("EtcdUser", "shop", "edited", |user| {
            user["status"]["observedGeneration"] == edited["metadata"]["generation"]
                && condition(user, "Ready").is_some_and(|(is, ..)| is == "True")
        });
        w.step(&format!("shop has {access}"), applied).await?;
        may(w, "shop", &["put", "--key", "/shop/ab", "--value", "x"], allowed).await?;
        may(w, "shop", &["get", "--key", "/shop/ab"], true).await?;
    }

    // A deleted object takes its user along, and `Retain` leaves the user there.
    w.patch("EtcdUser", "till", json!({"spec": {"reclaimPolicy": "Retain"}})).await?;
    for name in ["shop", "till", "hand"] {
        w.delete_and_wait("EtcdUser", name).await?;
    }
    let member = members(w, "u").await?.pop().context("a member")?;
    let left = w.etcdctl(&member, &["user", "list"]).await?;
    let left: Vec<&str> = left.split_whitespace().collect();
    ensure!(left == ["hand", "root", "till"], "{left:?}");
    w.patch("EtcdCluster", "u", json!({"spec": {"auth": {"enabled": false}}})).await?;
    let off = w.wait("EtcdCluster", "u", "without authentication", |c| c["status"]["authEnabled"] == json!(false));
    w.step("authentication is off", off).await?;
    may(w, "app", &["get", "--key", "/other/1"], true).await
}
