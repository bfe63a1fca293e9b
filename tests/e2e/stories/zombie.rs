//! An operator sends a write that is long on its way, is frozen for longer than its lease lasts, and another operator leads. When
//! the write arrives and the first operator continues, the write fails its precondition and the first operator stands by.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::host_operator::{HostOperator, Seat};
use crate::support::kfault::{Call, Fault, Hold, Kfault, Rule, Verb};
use crate::support::ledger::Ledger;
use crate::support::make;
use crate::support::workload::Workload;
use crate::support::world::World;

const ARRIVES: Duration = Duration::from_mins(2);

pub async fn tell(w: &World) -> Result<()> {
    let ledger = Ledger::start(w).await?;
    let proxy = Kfault::start(&w.env).await?;
    let first = Seat::new(w, "first", Some(&proxy.url)).await?;
    let second = Seat::new(w, "second", None).await?;
    let mask = Workload::Restore.mask("z");
    let counted = || ledger.counts(|name| mask.owns(name).then(|| mask.text(name)));

    // A latch of the first member: the next leader writes the same value.
    let hold = Hold::new();
    proxy.add(Rule::new("a latch is held", Fault::Hold(hold.clone()), |c| c.is(Verb::Patch, "etcdmembers")).once());
    let mut zombie = first.start(&[])?;
    zombie.until_leading().await?;
    let mut other = second.start(&[])?;
    w.create(make::cluster("z", 1)).await?;
    w.step("a latch is on its way", held(w, &hold)).await?;
    zombie.freeze()?;
    w.step("another operator leads", other.until_leading()).await?;
    w.step("the world moves on", w.wait_ready("z", 1)).await?;
    started(w, 1).await?;
    let before = (state(w).await?, counted());
    w.step("the latch comes too late", late(&hold, &mut zombie)).await?;
    unchanged(w, &before, &counted).await?;

    // The DELETE of an ended Pod: when it arrives, a new Pod has the name.
    let hold = Hold::new();
    proxy.clear();
    proxy.add(Rule::new("a deletion is held", Fault::Hold(hold.clone()), |c| c.is(Verb::Delete, "pods")).once());
    let mut zombie = first.start(&[])?;
    other.retire().await?;
    zombie.until_leading().await?;
    let mut other = second.start(&[])?;
    let member = w.names_with("EtcdMember", "holdfast.dev/cluster=z").await?.pop().context("a member")?;
    let old = w.get("Pod", &member).await?["metadata"]["uid"].clone();
    // kubelet ends the Pod for good.
    w.patch("Pod", &member, json!({"spec": {"activeDeadlineSeconds": 1}})).await?;
    let call = w.step("a deletion is on its way", held(w, &hold)).await?;
    ensure!(call.name.as_deref() == Some(&member), "held {call}");
    zombie.freeze()?;
    w.step("another operator leads again", other.until_leading()).await?;
    let anew = |pod: &Value| {
        pod["metadata"]["uid"] != old
            && pod["metadata"]["deletionTimestamp"].is_null()
            && pod["status"]["phase"] == "Running"
    };
    w.step("the Pod is made anew", async {
        w.wait("Pod", &member, "another one", anew).await?;
        w.wait_ready("z", 1).await
    })
    .await?;
    started(w, 2).await?;
    let before = (state(w).await?, counted());
    w.step("the deletion comes too late", late(&hold, &mut zombie)).await?;
    unchanged(w, &before, &counted).await?;
    ensure!(counted().get("Pod CLUSTER-*") == Some(&(2, 1)), "one Pod, made anew once: {:?}", counted());
    ensure!(other.ended()?.is_none(), "the second operator ended");
    other.retire().await?;
    first.no_defects()?;
    second.no_defects()
}

/// Waits until a call is held.
async fn held(w: &World, hold: &Hold) -> Result<Call> {
    let call = hold.arrived(ARRIVES).await?;
    eprintln!("e2e: {}: held: {call}", w.story);
    Ok(call)
}

/// The held write arrives and its sender continues: the API server refuses the write, and the sender stands by.
async fn late(hold: &Hold, zombie: &mut HostOperator) -> Result<()> {
    let code = hold.release(ARRIVES).await?;
    ensure!(code == 409, "the late write was answered with {code}, and should fail its precondition");
    zombie.thaw()?;
    zombie.until_standing_by().await.context("a leader that lost its lease has to stand by")?;
    zombie.retire().await
}

/// Waits until the member's start is counted, which may come after the cluster is ready.
async fn started(w: &World, times: u64) -> Result<()> {
    let member = w.names_with("EtcdMember", "holdfast.dev/cluster=z").await?.pop().context("a member")?;
    let counted = |m: &Value| m["spec"]["startCount"].as_u64() >= Some(times);
    w.wait("EtcdMember", &member, "its start counted", counted).await.map(drop)
}

/// Versions of every object that a late write might touch.
async fn state(w: &World) -> Result<Vec<(String, Value, Value)>> {
    let mut all = vec![];
    for kind in ["EtcdMember", "Pod", "PersistentVolumeClaim"] {
        for name in w.names_with(kind, "holdfast.dev/cluster=z").await? {
            let object = w.get(kind, &name).await?;
            all.push((format!("{kind} {name}"), object["metadata"]["uid"].clone(), object["spec"].clone()));
        }
    }
    Ok(all)
}

async fn unchanged<C: PartialEq + std::fmt::Debug>(
    w: &World,
    before: &(Vec<(String, Value, Value)>, C),
    counted: &impl Fn() -> C,
) -> Result<()> {
    // Consequences of a late write would show within a few passes.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let now = (state(w).await?, counted());
    ensure!(now == *before, "something changed:\n{before:?}\n{now:?}");
    w.wait_ready("z", 1).await
}
