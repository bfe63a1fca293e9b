//! A store that two clusters' snapshots name before it exists: each reason is shown, each snapshot continues once the cause is
//! gone, a store with a new place moves no snapshot, and an exchanged store is used only after a person accepts it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::probe::Digest;
use crate::support::stored::manifests;
use crate::support::world::World;

/// A pair of keys made for this story; they protect nothing.
const PUBLIC: &str = "age1xmwwc06ly3ee5rytxm9mflaz2u56jjj36s0mypdrwsvlul66mv4q47ryef";
const PRIVATE: &str = "AGE-SECRET-KEY-1EGTZVFFV20835NWYV6270LXYVK2VKNX2MMDKWYKLMGR48UAWX40Q2P2LM0";

/// Wrong value in the story's Secret at first.
const CANARY: &str = "not-the-secret-canary";

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("one", 1)).await?;
    w.create(make::cluster("two", 1)).await?;
    let vault = json!({"storeRef": {"name": "vault"}});
    w.create(make::snapshot("of-one", "one", vault.clone())).await?;
    let mut encrypted = make::snapshot("of-two", "two", vault);
    encrypted["spec"]["encryption"] = json!({"age": {"recipients": [PUBLIC]}});
    encrypted["spec"]["spool"] = json!({"size": "128Mi"});
    w.create(encrypted).await?;
    for (cluster, keys) in [("one", 300), ("two", 500)] {
        w.wait_ready(cluster, 1).await?;
        w.fill(cluster, keys).await?;
    }
    w.step("they wait for a store that is not there", both(w, "WaitingForReference", "EtcdBackupStore vault")).await?;

    w.create(store("house")).await?;
    w.step("the store waits for its Secret", ready(w, "False", "WaitingForReference")).await?;
    w.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vault-keys"},
        "stringData": {"accessKeyID": "testbed-access", "secretAccessKey": CANARY},
    }))
    .await?;
    let denied = w.step("wrong credentials are told", ready(w, "False", "StoreAccessDenied")).await?;
    ensure!(denied["status"]["probe"]["class"] == "Denied", "{}", denied["status"]);
    let told = w.step("and so in the snapshots", both(w, "WaitingForStore", "StoreAccessDenied")).await?;
    for object in told.iter().chain([&denied]) {
        ensure!(object["status"].get("completedAt").is_none(), "it waits, and has not failed: {}", object["status"]);
        ensure!(!object.to_string().contains(CANARY), "a secret leaked into {object}");
    }

    let right = w.get("Secret", "s3-credentials").await?["data"].clone();
    w.patch("Secret", "vault-keys", json!({ "data": right })).await?;
    let usable = w.step("a corrected Secret is enough", ready(w, "True", "StoreUsable")).await?;
    ensure!(tried(&usable, "readAfterWrite") == Some("Yes"), "{}", usable["status"]["probe"]);
    ensure!(usable["status"]["uri"] == "s3://backups/house", "{}", usable["status"]);
    let one = w.step("a snapshot completes", w.wait_complete("of-one")).await?;
    let two = w.step("an encrypted one completes", w.wait_complete("of-two")).await?;
    let files = w.bucket().await?;
    for snapshot in [&one, &two] {
        ensure!(manifests(&files, snapshot)?.len() == 1, "one artifact: {files:?}");
        ensure!(snapshot["status"]["store"]["s3"]["prefix"] == "house", "{}", snapshot["status"]["store"]);
    }
    ensure!(!files.iter().any(|file| file.contains(".holdfast-probe-")), "a probe takes everything back: {files:?}");
    ensure!(two["status"]["artifact"]["encrypted"] == true, "{}", two["status"]["artifact"]);
    let key = two["status"]["artifact"]["key"].as_str().unwrap_or_default();
    ensure!(files.iter().any(|file| file.contains(&format!("house/{key}/snapshot.db.zst.age"))), "{files:?}");

    outside(w).await?;
    restores(w, &one).await?;
    exchanged(w).await
}

/// A snapshot of an external etcd: here a cluster of Holdfast, addressed as external.
async fn outside(w: &World) -> Result<()> {
    let mut snapshot = make::snapshot("outside", "one", json!({"storeRef": {"name": "vault"}}));
    snapshot["spec"]["external"] = json!({"endpoints": [format!("http://one-client.{}.svc:2379", w.ns)]});
    snapshot["spec"]["spool"] = json!({"size": "128Mi", "storageClassName": "standard"});
    if let Some(spec) = snapshot["spec"].as_object_mut() {
        spec.remove("clusterRef");
    }
    w.create(snapshot).await?;
    let done = w.step("an etcd of somebody else's is saved", w.wait_complete("outside")).await?;
    let key = done["status"]["artifact"]["key"].as_str().unwrap_or_default();
    let lineage = format!("{}/external/etcd-", w.ns);
    ensure!(key.starts_with(&lineage), "{key} is not below {lineage}");
    Ok(())
}

async fn restores(w: &World, one: &Value) -> Result<()> {
    let (first, second) = (w.digest("one").await?, w.digest("two").await?);
    let source = json!({"storeRef": {"name": "vault"}, "key": one["status"]["artifact"]["key"]});
    w.create(make::restored("again", 1, json!({ "source": source }))).await?;
    w.step("restored from the store", w.wait_ready("again", 1)).await?;
    ensure!(w.digest("again").await? == first, "what was restored is what was saved");

    w.step("with a Secret of another name it is restored all the same", renamed(w, &first)).await?;

    let moved = store("moved");
    w.patch("EtcdBackupStore", "vault", json!({ "spec": moved["spec"] })).await?;
    let there = |s: &Value| {
        s["status"]["uri"] == "s3://backups/moved"
            && s["status"]["observedGeneration"] == s["metadata"]["generation"]
            && condition(s, "Ready").is_some_and(|(status, ..)| status == "True")
    };
    w.step("a store that moved is probed", w.wait("EtcdBackupStore", "vault", "Ready again", there)).await?;
    w.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "identity"}, "stringData": {"key.txt": PRIVATE},
    }))
    .await?;
    let restore = json!({"snapshotRef": {"name": "of-two"}, "identitySecretRefs": [{"name": "identity"}]});
    w.create(make::restored("opened", 1, restore)).await?;
    w.step("an encrypted snapshot is restored from where it was saved", w.wait_ready("opened", 1)).await?;
    ensure!(w.digest("opened").await? == second, "what was decrypted is what was saved");
    w.create(make::snapshot("later", "again", json!({"storeRef": {"name": "vault"}}))).await?;
    let later = w.step("the next one goes to the new place", w.wait_complete("later")).await?;
    let files = w.bucket().await?;
    let at = manifests(&files, &later)?;
    ensure!(at.len() == 1 && at[0].contains("moved/"), "{at:?}");
    Ok(())
}

/// The store's Secret gets another name after a snapshot was saved, and the old one goes.
async fn renamed(w: &World, saved: &Digest) -> Result<()> {
    let secret = |name: &str, data: &Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data});
    let keys = w.get("Secret", "vault-keys").await?["data"].clone();
    w.create(secret("other-keys", &keys)).await?;
    w.patch("EtcdBackupStore", "vault", json!({"spec": {"credentials": {"write": "other-keys"}}})).await?;
    w.delete_and_wait("Secret", "vault-keys").await?;
    w.create(make::restored("renamed", 1, json!({"snapshotRef": {"name": "of-one"}}))).await?;
    w.wait_ready("renamed", 1).await?;
    ensure!(w.digest("renamed").await? == *saved, "what was restored is what was saved");
    w.delete_and_wait("EtcdCluster", "renamed").await?;
    w.create(secret("vault-keys", &keys)).await.map(drop)
}

/// The store ID is removed from the place without the operator's knowledge: no snapshot goes there before a person accepts that.
async fn exchanged(w: &World) -> Result<()> {
    let store = w.get("EtcdBackupStore", "vault").await?;
    let mark = store["status"]["identity"]["id"].as_str().context("a mark")?.to_owned();
    let file = "/data/backups/moved/holdfast-store.json";
    let files = w.bucket().await?;
    ensure!(files.iter().any(|there| there.contains(file)), "{files:?}");
    w.exec(&w.s3_pod().await?, "versitygw", &["holdfast-probe", "rm", file]).await?;
    // Any value of the annotation starts a new probe at once.
    let accept = |mark: &str| json!({"metadata": {"annotations": {"holdfast.dev/accept-store": mark}}});
    w.patch("EtcdBackupStore", "vault", accept(&mark)).await?;
    w.step("a place without its mark is told", ready(w, "False", "StoreExchanged")).await?;
    w.create(make::snapshot("meanwhile", "again", json!({"storeRef": {"name": "vault"}}))).await?;
    let waits = |s: &Value| {
        let told = condition(s, "Ready");
        told.is_some_and(|(_, why, message)| why == "WaitingForStore" && message.contains("StoreExchanged"))
    };
    w.step("a snapshot waits for it", w.wait("EtcdSnapshot", "meanwhile", "WaitingForStore", waits)).await?;
    w.patch("EtcdBackupStore", "vault", accept("new")).await?;
    let accepted = w.step("accepted, it is another store", ready(w, "True", "StoreUsable")).await?;
    let id = &accepted["status"]["identity"]["id"];
    ensure!(id.is_string() && *id != mark, "{mark} is still {id}");
    let done = w.step("and the snapshot goes there", w.wait_complete("meanwhile")).await?;
    ensure!(done["status"]["store"]["id"] == *id, "{}", done["status"]["store"]);
    Ok(())
}

/// The store, at this prefix of the bucket.
fn store(prefix: &str) -> Value {
    let mut s3 = make::s3();
    s3["prefix"] = json!(prefix);
    if let Some(s3) = s3.as_object_mut() {
        s3.remove("credentialsSecretRef");
    }
    json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdBackupStore", "metadata": {"name": "vault"},
        "spec": {"s3": s3, "credentials": {"write": "vault-keys"}},
    })
}

/// Waits until the store's `Ready` has this status and reason.
async fn ready(w: &World, status: &str, reason: &str) -> Result<Value> {
    let said = |s: &Value| condition(s, "Ready").is_some_and(|(is, why, _)| is == status && why == reason);
    w.wait("EtcdBackupStore", "vault", reason, said).await
}

/// Waits until both snapshots are pending for this reason, in these words.
async fn both(w: &World, reason: &str, words: &str) -> Result<Vec<Value>> {
    let said = |s: &Value| {
        let told = condition(s, "Ready").is_some_and(|(_, why, message)| why == reason && message.contains(words));
        s["status"]["phase"] == "Pending" && told
    };
    let mut all = vec![];
    for name in ["of-one", "of-two"] {
        all.push(w.wait("EtcdSnapshot", name, reason, said).await?);
    }
    Ok(all)
}

/// The outcome of a trial of the store's probe.
fn tried<'a>(store: &'a Value, name: &str) -> Option<&'a str> {
    let trials = store["status"]["probe"]["trials"].as_array()?;
    trials.iter().find(|tried| tried["name"] == name)?["outcome"].as_str()
}
