//! A person's first mistakes, corrected in place: a StorageClass and a version that do not exist. After that the same fields
//! are refused. And etcdctl in the member's Pod, with and without flags.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::world::World;

pub async fn tell(w: &World) -> Result<()> {
    let mut wrong = make::cluster("alpha", 1);
    wrong["spec"]["version"] = json!("3.6.99");
    wrong["spec"]["storage"]["storageClassName"] = json!("no-such-class");
    w.create(wrong).await?;
    let held = w.wait("EtcdCluster", "alpha", "held up", |c| {
        condition(c, "Degraded").is_some_and(|(status, reason, message)| {
            status == "True" && reason == "PodHeldUp" && message.contains("StorageClass no-such-class does not exist")
        })
    });
    w.step("the condition names the StorageClass", held).await?;
    w.patch("EtcdCluster", "alpha", json!({"spec": {"storage": {"storageClassName": null}}})).await?;
    let held = w.wait("EtcdCluster", "alpha", "another cause", |c| {
        condition(c, "Degraded").is_some_and(|(status, reason, message)| {
            status == "True" && reason == "PodHeldUp" && message.contains("3.6.99")
        })
    });
    w.step("the class corrected, the condition names the unknown version", held).await?;
    let version = make::cluster("alpha", 1)["spec"]["version"].clone();
    w.patch("EtcdCluster", "alpha", json!({"spec": {"version": version}})).await?;
    w.step("the version corrected, it forms", w.wait_ready("alpha", 1)).await?;
    let edit = json!({"spec": {"storage": {"size": "512Mi"}}});
    let why = w.patch("EtcdCluster", "alpha", edit).await.err().context("the size shrank after it has formed")?;
    let why = format!("{why:#}");
    ensure!(why.contains("the cluster has formed") && why.contains("size"), "{why}");
    // Patches below the floor of their minor are refused by the condition.
    w.patch("EtcdCluster", "alpha", json!({"spec": {"version": "3.6.1"}})).await?;
    let refused = w.wait("EtcdCluster", "alpha", "refused", |c| {
        condition(c, "Degraded")
            .is_some_and(|(_, reason, message)| reason == "InvalidSpec" && message.contains("3.6.11"))
    });
    w.step("the condition names the floor", refused).await?;
    let version = make::cluster("alpha", 1)["spec"]["version"].clone();
    w.patch("EtcdCluster", "alpha", json!({"spec": {"version": version}})).await?;
    w.step("the version corrected again", w.wait_ready("alpha", 1)).await?;

    let member = w.members("alpha").await?.members[0].name.clone();
    for flags in [&[][..], &["--endpoints=http://127.0.0.1:2379"], &["--endpoints", "http://alpha-client:2379"]] {
        let said = w.etcdctl(&member, &[flags, &["member", "list"]].concat()).await?;
        ensure!(said.contains(&member), "etcdctl {flags:?} says {said}");
    }
    let pod = w.get("Pod", &member).await?;
    ensure!(pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] == "etcd", "{}", pod["metadata"]);
    Ok(())
}
