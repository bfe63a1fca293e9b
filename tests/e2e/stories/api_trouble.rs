//! The API server refuses, delays, loses answers and cuts watches: the run ends like an undisturbed run, and the operator creates
//! nothing twice.
//!
//! Leases are exempt from the faults: an operator that cannot renew its lease stands by, which `zombie` covers.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::support::host_operator::Seat;
use crate::support::kfault::{Call, Cut, Fault, Kfault, Rule, Verb};
use crate::support::ledger::Ledger;
use crate::support::luck::Luck;
use crate::support::oracle::End;
use crate::support::workload::{Ground, Workload};
use crate::support::world::World;

/// Duration of a storm in which a fifth of all calls fails. A pass needs some eight successful calls, so hardly any pass succeeds.
const STORM: Duration = Duration::from_secs(30);

/// Created kinds, with the verb of their creation.
const CREATED: [(&str, Verb, &str); 5] = [
    ("the answer to a new Pod is lost", Verb::Create, "pods"),
    ("the answer to a new claim is lost", Verb::Create, "persistentvolumeclaims"),
    ("the answer to a new member is lost", Verb::Create, "etcdmembers"),
    ("the answer to a new Job is lost", Verb::Create, "jobs"),
    ("the answer to a new Service is lost", Verb::Apply, "services"),
];

const STORMY: &str = "a fifth of all calls fails";

pub async fn tell(w: &World) -> Result<()> {
    let ledger = Ledger::start(w).await?;
    let proxy = Kfault::start(&w.env).await?;
    let seat = Seat::new(w, "host", Some(&proxy.url)).await?;
    let mut operator = seat.start(&[])?;
    let ground = w.step("a source", Workload::Save.prepare(w)).await?;
    let run = async |workload: Workload, name: &'static str| play(w, &ledger, workload, name, &ground).await;
    let grown = w.step("growth, undisturbed", run(Workload::Grow, "g0")).await?;
    let saved = w.step("a snapshot, undisturbed", run(Workload::Save, "s0")).await?;
    Workload::Grow.clear(w, "g0").await?;
    Workload::Save.clear(w, "s0").await?;

    let mut luck = Luck::of(w.story);
    trouble(&proxy, &mut luck);
    let calls = proxy.calls();
    let disturbed = async {
        Workload::Grow.begin(w, "g1").await?;
        Workload::Save.begin(w, "s1").await?;
        Workload::Grow.finish(w, "g1", &ground).await?;
        Workload::Save.finish(w, "s1", &ground).await?;
        End::same(w, &ledger, &Workload::Grow.mask("g1"), &grown).await.context("growth in trouble")?;
        End::same(w, &ledger, &Workload::Save.mask("s1"), &saved).await.context("a snapshot in trouble")
    };
    // The cuts continue until the disturbed run has ended.
    let disturbed = async {
        tokio::select! {
            ended = disturbed => ended,
            never = cuts(&proxy, &mut luck) => never,
        }
    };
    w.step("growth and a snapshot, in trouble", disturbed).await?;
    ensure!(operator.ended()?.is_none(), "the operator ended in the trouble");
    let hits = proxy.hits();
    eprintln!("e2e: {}: {} calls, trouble {hits:?}", w.story, proxy.calls() - calls);
    for (name, times) in &hits {
        ensure!(*times > 0, "there was no trouble of this sort: {name}");
    }

    w.step("nothing is written once all is well", async {
        proxy.clear();
        tokio::time::sleep(Duration::from_secs(3)).await;
        // A probe that a busy machine delays leads to a correct write: one quiet period is enough.
        let mut written = vec![];
        for _ in 0..5 {
            let before = effective(&proxy);
            tokio::time::sleep(Duration::from_secs(12)).await;
            let after = effective(&proxy);
            if after == before {
                return Ok(());
            }
            written.extend_from_slice(&after[before.len()..]);
        }
        bail!("written while settled: {written:?}")
    })
    .await?;
    operator.retire().await?;
    seat.no_defects()
}

async fn play(w: &World, ledger: &Ledger, workload: Workload, run: &str, ground: &Ground) -> Result<End> {
    workload.begin(w, run).await?;
    workload.finish(w, run, ground).await?;
    End::reached(w, ledger, &workload.mask(run)).await
}

/// Adds every fault at once.
fn trouble(proxy: &Kfault, luck: &mut Luck) {
    for (name, verb, resource) in CREATED {
        let fault = if luck.below(2) == 0 { Fault::AnswerTooLate } else { Fault::LoseAnswer };
        proxy.add(Rule::new(name, fault, move |call| call.is(verb, resource)).once());
    }
    let mut updates = 0_u64;
    let third = move |call: &Call| {
        let counts = call.verb == Verb::Update && !call.is_aside();
        updates += u64::from(counts);
        counts && updates.is_multiple_of(3)
    };
    proxy.add(Rule::new("every third update conflicts", Fault::Refuse { code: 409, retry_after: None }, third));
    let mut chance = luck.fork();
    let busy = Fault::Refuse { code: 429, retry_after: Some(1) };
    proxy.add(Rule::new("the server is busy now and then", busy, move |call| !is_lease(call) && chance.below(40) == 0));
    let mut chance = luck.fork();
    let broken = Fault::Refuse { code: 500, retry_after: None };
    proxy.add(Rule::new(STORMY, broken, move |call| !is_lease(call) && chance.below(5) == 0));
    let slow = Fault::Delay(Duration::from_millis(700));
    let mut chance = luck.fork();
    proxy.add(Rule::new("some calls take long", slow, move |call| !is_lease(call) && chance.below(25) == 0));
}

fn is_lease(call: &Call) -> bool {
    call.resource == "leases"
}

/// Cuts watches every few seconds, and ends the storm after its duration.
async fn cuts(proxy: &Kfault, luck: &mut Luck) -> Result<()> {
    let watched = ["etcdclusters", "etcdmembers", "etcdsnapshots", "pods", "persistentvolumeclaims", "jobs"];
    let begun = std::time::Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(1_500 + luck.below(2_500))).await;
        let cut = if luck.below(2) == 0 { Cut::MidFrame } else { Cut::Gone };
        // All watches, or those of one kind.
        let which = usize::try_from(luck.below(watched.len() as u64 + 1))?;
        proxy.cut(watched.get(which).copied(), cut);
        if begun.elapsed() > STORM {
            proxy.lift(STORMY);
        }
    }
}

fn effective(proxy: &Kfault) -> Vec<String> {
    proxy.writes().iter().filter(|write| write.effective).map(|w| format!("{} ({})", w.call, w.code)).collect()
}
