//! A cluster goes back in place whatever goes wrong on the way: lost answers, conflicts, late writes, killed Pods, silent servers, a
//! broken source, Pods that do not start, a lost status, a deleted EtcdRestore, other sizes, and one return after the other.
//!
//! The world itself asserts that no two timelines run etcd, that a timeline is founded by an EtcdRestore alone, and that the claims of
//! an earlier timeline stay for their time. `HOLDFAST_SOAK=1` tries thousands of histories; without it the test tries a seeded sample.

use holdfast_api::timeline::ReturnPhase;
use proptest::prelude::*;

use crate::histories::{crash_one, delete_one_pod, is_quiet, live_through};
use crate::world::{Fault, World};

/// Twenty minutes: a preparation, an outage and a way back have a minute each, and the members grow afterwards.
const PATIENCE: u64 = 12_000;

const SNAPSHOT: &str = "nightly";

#[derive(Clone, Copy, Debug)]
enum Event {
    Fault(Fault),
    DeletePod(usize),
    Crash(usize),
    Silence(u64),
    Scale(i32),
    /// Another EtcdRestore, if none is under way: with a safety snapshot or without.
    Return(bool),
    Forget,
    Break(bool),
    /// Whether new Pods start.
    Hold(bool),
    Pause(bool),
    LoseStatus,
    Idle,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => prop_oneof![Just(Fault::Conflict), Just(Fault::LostAnswer), Just(Fault::Late)].prop_map(Event::Fault),
        2 => (0usize..5).prop_map(Event::DeletePod),
        1 => (0usize..5).prop_map(Event::Crash),
        1 => (1u64..60).prop_map(Event::Silence),
        1 => (1i32..=4).prop_map(Event::Scale),
        4 => any::<bool>().prop_map(Event::Return),
        1 => Just(Event::Forget),
        1 => any::<bool>().prop_map(Event::Break),
        1 => any::<bool>().prop_map(Event::Hold),
        1 => any::<bool>().prop_map(Event::Pause),
        1 => Just(Event::LoseStatus),
        2 => Just(Event::Idle),
    ]
}

#[derive(Clone, Debug)]
struct History {
    replicas: i32,
    /// The events, each this many ticks after the one before.
    events: Vec<(u64, Event)>,
}

fn history() -> impl Strategy<Value = History> {
    let events = proptest::collection::vec((0u64..60, event()), 1..20);
    (1i32..=3, events).prop_map(|(replicas, events)| History { replicas, events })
}

fn happen(world: &mut World, event: Event) {
    match event {
        Event::Fault(fault) => world.faults.push(fault),
        Event::DeletePod(n) => delete_one_pod(world, n),
        Event::Crash(n) => crash_one(world, n),
        Event::Silence(ticks) => world.silent_until = world.now + ticks,
        Event::Scale(replicas) => world.edit(|s| s.replicas = replicas),
        Event::Return(saves) if world.return_has_ended() => world.return_to(SNAPSHOT, world.next_timeline(), saves),
        Event::Return(_) => {}
        Event::Forget => world.forget_return(),
        Event::Break(true) => drop(world.broken.insert(SNAPSHOT.to_owned())),
        Event::Break(false) => drop(world.broken.remove(SNAPSHOT)),
        Event::Hold(held) => world.held = held,
        Event::Pause(paused) => world.edit(|s| s.paused = paused),
        // A cluster without status learns that it has formed from an etcd that answers.
        Event::LoseStatus if world.complete() || world.is_set_aside() => world.lose_status(),
        Event::LoseStatus => {}
        Event::Idle => {}
    }
}

fn formed(replicas: i32) -> World {
    let mut world = World::new(replicas, "3.6.16");
    assert!(world.run_until(PATIENCE, World::complete), "never formed:\n{}", world.log.join("\n"));
    world.back_up(SNAPSHOT);
    world
}

fn live(history: &History) -> Result<(), TestCaseError> {
    let mut world = formed(history.replicas);
    let before = world.serving_group();
    for (after, event) in &history.events {
        world.run_until(*after, |_| false);
        happen(&mut world, *event);
    }
    world.faults.clear();
    world.broken.clear();
    world.held = false;
    world.edit(|s| s.paused = false);
    let ended = |world: &World| world.return_has_ended() && world.complete();
    prop_assert!(world.run_until(3 * PATIENCE, ended), "never at an end:\n{}", world.log.join("\n"));
    if world.next_timeline() == 2 {
        let log = world.log.join("\n");
        prop_assert_eq!(world.serving_group(), before, "without a return the data stay:\n{}", log);
    }
    if world.next_timeline() == 3 && world.is_set_aside() {
        let log = world.log.join("\n");
        prop_assert!(world.knows_earlier(before), "claims of users in {:x?} are forgotten:\n{}", before, log);
    }
    is_quiet(&mut world)
}

#[test]
fn a_cluster_goes_back_whatever_happens() {
    live_through(&history(), live);
}

/// Two of three volumes are gone for good: the cluster goes on from the third, by as many attempts as it takes.
fn live_on(history: &History) -> Result<(), TestCaseError> {
    let mut world = formed(3);
    let survivor = world.members.keys().next().unwrap().clone();
    let attempt = |world: &mut World| {
        if world.return_has_ended() && !world.complete() {
            world.return_from(&survivor, true);
        }
    };
    world.lose_claim(1);
    world.lose_claim(2);
    for (after, event) in &history.events {
        world.run_until(*after, |_| false);
        match event {
            Event::Return(_) => attempt(&mut world),
            Event::Break(true) => drop(world.broken.insert(survivor.clone())),
            Event::Break(false) => drop(world.broken.remove(&survivor)),
            // Without a quorum no cluster learns again that it has formed.
            Event::LoseStatus => {}
            other => happen(&mut world, *other),
        }
    }
    world.faults.clear();
    world.broken.clear();
    world.held = false;
    world.edit(|s| s.paused = false);
    for _ in 0..3 {
        attempt(&mut world);
        world.run_until(PATIENCE, |world| world.complete() || world.return_has_ended());
    }
    prop_assert!(world.run_until(PATIENCE, World::complete), "never whole again:\n{}", world.log.join("\n"));
    is_quiet(&mut world)
}

#[test]
fn a_cluster_goes_on_from_a_survivor_whatever_happens() {
    live_through(&history(), live_on);
}

/// The checks of the world find a plan that reads a survivor's volume beside its etcd.
#[test]
#[should_panic(expected = "a survivor's volume is read while etcd runs")]
fn a_volume_that_is_read_beside_its_etcd_is_found() {
    let world = formed(1);
    world.check_at_rest();
}

fn returning(phase: ReturnPhase) -> World {
    let mut world = formed(3);
    world.return_to(SNAPSHOT, 2, true);
    assert!(world.run_until(PATIENCE, |w| w.has_returned(phase)), "never {phase:?}:\n{}", world.log.join("\n"));
    world
}

/// The checks of the world find a plan that does not wait for the Pods of the earlier timeline.
#[test]
#[should_panic(expected = "two timelines run etcd")]
fn a_timeline_that_starts_beside_the_earlier_one_is_found() {
    returning(ReturnPhase::Saving).start_beside();
}

#[test]
#[should_panic(expected = "a timeline was founded without an EtcdRestore")]
fn a_timeline_without_an_etcd_restore_is_found() {
    returning(ReturnPhase::Preparing).prepare_for_nothing();
}

#[test]
#[should_panic(expected = "claim of an earlier timeline")]
fn claims_that_go_early_are_found() {
    returning(ReturnPhase::Complete).clear_early();
}
