//! Clusters reach their spec and no step breaks a rule, whatever goes wrong on the way: random sizes and versions, lost answers,
//! conflicts, late writes, silent servers, killed Pods, lost status, corrected restores, larger volumes.
//!
//! The world itself asserts that these never happen: a second founding, a voter on an empty volume, a deleted live volume, a plan
//! that breaks a safety rule, a status that is written again and again. `HOLDFAST_SOAK=n` tries n histories; without it the test
//! tries a seeded sample, the same each time.

use crate::world::volumes::Growth;
use crate::world::{Fault, World};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Five minutes for steps that take seconds undisturbed: nine members one by one, each after a back-off or two.
const PATIENCE: u64 = 3_000;

#[derive(Clone, Copy, Debug)]
enum Event {
    Fault(Fault),
    DeletePod(usize),
    EvictPod(usize),
    Crash(usize),
    Silence(u64),
    LoseStatus,
    CorrectRestore(bool),
    Scale(i32),
    Grow(usize),
    Idle,
}

/// Sizes of volumes, in their order.
const SIZES: [&str; 5] = ["8Gi", "9Gi", "16Gi", "32Gi", "64Gi"];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => prop_oneof![Just(Fault::Conflict), Just(Fault::LostAnswer), Just(Fault::Late)].prop_map(Event::Fault),
        1 => (0usize..9).prop_map(Event::DeletePod),
        1 => (0usize..9).prop_map(Event::EvictPod),
        1 => (0usize..9).prop_map(Event::Crash),
        1 => (1u64..60).prop_map(Event::Silence),
        1 => Just(Event::LoseStatus),
        1 => any::<bool>().prop_map(Event::CorrectRestore),
        2 => (0i32..=9).prop_map(Event::Scale),
        1 => (1usize..SIZES.len()).prop_map(Event::Grow),
        4 => Just(Event::Idle),
    ]
}

/// Source of the restore.
#[derive(Clone, Copy, Debug)]
enum Asked {
    ByKey,
    Latest,
}

#[derive(Clone, Debug)]
struct History {
    replicas: i32,
    version: &'static str,
    restore: Option<Asked>,
    /// Whether a file system grows only when it is mounted.
    at_mount: bool,
    /// The events, each this many ticks after the one before.
    events: Vec<(u64, Event)>,
}

fn history() -> impl Strategy<Value = History> {
    (
        0i32..=9,
        prop_oneof![Just("3.5.35"), Just("3.6.16"), Just("3.7.3")],
        proptest::option::of(prop_oneof![Just(Asked::ByKey), Just(Asked::Latest)]),
        any::<bool>(),
        proptest::collection::vec((0u64..25, event()), 0..30),
    )
        .prop_map(|(replicas, version, restore, at_mount, events)| History {
            replicas,
            version,
            restore,
            at_mount,
            events,
        })
}

fn pick(world: &World, n: usize) -> Option<String> {
    let names: Vec<&String> = world.pods.keys().collect();
    names.get(n % names.len().max(1)).map(|n| (*n).clone())
}

fn happen(world: &mut World, event: Event) {
    match event {
        Event::Fault(fault) => world.faults.push(fault),
        Event::DeletePod(n) => {
            if let Some(name) = pick(world, n) {
                world.delete_pod(&name);
            }
        }
        Event::EvictPod(n) => {
            if let Some(name) = pick(world, n) {
                world.evict_pod(&name);
            }
        }
        Event::Crash(n) => {
            if let Some(name) = pick(world, n) {
                world.crash(&name);
            }
        }
        Event::Silence(ticks) => world.silent_until = world.now + ticks,
        Event::LoseStatus => world.lose_status(),
        Event::CorrectRestore(broken) => {
            // After the cluster has formed the API server refuses this edit.
            if !world.has_formed {
                world.restore_from(Some(if broken { "bad" } else { "good" }));
            }
        }
        Event::Scale(replicas) => world.edit(|s| s.replicas = replicas),
        Event::Grow(n) => {
            let latched = |c: &holdfast_api::EtcdCluster| c.status.as_ref().is_some_and(|s| s.latches.formed.is_some());
            let size = world.cluster.as_ref().filter(|c| latched(c)).map(|c| c.spec.storage.size().0);
            // The API server refuses a smaller size.
            if size.is_some_and(|size| SIZES.iter().position(|s| *s == size) < Some(n)) {
                world.edit(|s| s.storage.size = Some(Quantity(SIZES[n].to_owned())));
            }
        }
        Event::Idle => {}
    }
}

fn live(history: &History) -> Result<(), TestCaseError> {
    let mut world = World::new(history.replicas, history.version);
    world.broken.insert("bad".to_owned());
    world.growth = if history.at_mount { Growth::AtMount } else { Growth::Online };
    match history.restore {
        Some(Asked::ByKey) => world.restore_from(Some("good")),
        Some(Asked::Latest) => world.restore_latest("backups"),
        None => {}
    }
    for (after, event) in &history.events {
        world.run_until(*after, |_| false);
        happen(&mut world, *event);
    }
    // The last edit of the restore can succeed.
    let stuck_on_bad = world
        .cluster
        .as_ref()
        .and_then(|c| c.spec.bootstrap.as_ref())
        .is_some_and(|b| b.restore.as_ref().and_then(|r| r.source.as_ref()).is_some_and(|s| s.key == "bad"));
    if stuck_on_bad {
        happen(&mut world, Event::CorrectRestore(false));
    }
    world.faults.clear();
    let done = world.run_until(PATIENCE, World::complete);
    let state = || {
        let conditions = world.cluster.as_ref().and_then(|c| c.status.clone()).map(|s| s.conditions);
        format!("{}\n{conditions:#?}\n{:#?}", world.log.join("\n"), world.groups)
    };
    prop_assert!(done, "it never came to what was asked for:\n{}", state());
    // A cluster comes back from zero at any size.
    if world.cluster.as_ref().is_some_and(|c| c.spec.replicas == 0) {
        let (members, volumes) = (world.members.len(), world.volumes.len());
        world.run_until(200, |_| false);
        prop_assert_eq!((world.members.len(), world.volumes.len(), world.pods.len()), (members, volumes, 0));
        world.edit(|s| s.replicas = history.replicas.max(1));
        let woke = world.run_until(PATIENCE, World::complete);
        prop_assert!(woke, "it never woke:\n{}\n{:#?}", world.log.join("\n"), world.groups);
    }
    prop_assert!(world.have_grown(), "volumes have not grown:\n{}", world.log.join("\n"));
    // I21: no object is left over.
    let replicas = usize::try_from(world.cluster.as_ref().map_or(0, |c| c.spec.replicas)).unwrap();
    world.run_until(100, |_| false);
    prop_assert_eq!(world.members.len(), replicas);
    prop_assert_eq!(world.pods.len(), replicas);
    prop_assert_eq!(world.volumes.len(), replicas);
    // I17: from now on the operator writes nothing.
    let before = world.writes;
    world.run_until(200, |_| false);
    prop_assert_eq!(world.writes, before, "written while nothing happened");
    Ok(())
}

#[test]
fn clusters_come_to_what_is_asked_for_whatever_happens() {
    let soak = std::env::var("HOLDFAST_SOAK").ok().filter(|soak| !soak.is_empty());
    let cases = if soak.is_some() { 20_000 } else { 24 };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let sample = || TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = match soak {
        None => TestRunner::new_with_rng(config, sample()),
        Some(_) => TestRunner::new(config),
    };
    runner.run(&history(), |history| live(&history)).unwrap();
}
