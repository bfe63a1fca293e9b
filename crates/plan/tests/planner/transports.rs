//! TLS is turned on and off whatever goes wrong on the way: edits in the middle of a step, lost answers, conflicts, late writes, silent
//! servers, killed Pods and other sizes.
//!
//! The world itself asserts that each new Pod reaches every running one, and that at most one voter is dialled with another scheme than
//! it serves. `HOLDFAST_SOAK=1` tries thousands of histories; without it the test tries a seeded sample.

use holdfast_api::cluster::Options;
use holdfast_api::transport::Transport;
use proptest::prelude::*;

use crate::histories::{crash_one, delete_one_pod, is_quiet, live_through};
use crate::world::{Fault, World};

/// Twenty minutes: three rolls of four members, with two restarts each for a corrected edit.
const PATIENCE: u64 = 12_000;

#[derive(Clone, Copy, Debug)]
enum Event {
    Fault(Fault),
    DeletePod(usize),
    Crash(usize),
    Silence(u64),
    Scale(i32),
    Allow,
    /// The present end: TLS where plaintext is allowed, plaintext the next time.
    Refuse,
    Insecure,
    /// An option with which no etcd starts, and its end.
    BadOption(bool),
    LoseStatus,
    Idle,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => prop_oneof![Just(Fault::Conflict), Just(Fault::LostAnswer), Just(Fault::Late)].prop_map(Event::Fault),
        1 => (0usize..5).prop_map(Event::DeletePod),
        1 => (0usize..5).prop_map(Event::Crash),
        1 => (1u64..60).prop_map(Event::Silence),
        1 => (1i32..=4).prop_map(Event::Scale),
        3 => Just(Event::Allow),
        1 => Just(Event::Refuse),
        1 => Just(Event::Insecure),
        1 => any::<bool>().prop_map(Event::BadOption),
        1 => Just(Event::LoseStatus),
        3 => Just(Event::Idle),
    ]
}

#[derive(Clone, Debug)]
struct History {
    replicas: i32,
    /// Whether the cluster is born with TLS.
    secure: bool,
    /// The events, each this many ticks after the one before.
    events: Vec<(u64, Event)>,
}

fn history() -> impl Strategy<Value = History> {
    let events = proptest::collection::vec((0u64..80, event()), 1..20);
    (1i32..=4, any::<bool>(), events).prop_map(|(replicas, secure, events)| History { replicas, secure, events })
}

/// Edits `spec.tls` as the API server allows it: TLS is turned on and off only through `allowPlaintext`.
fn edit(world: &mut World, wanted: Transport) {
    let present = world.cluster.as_ref().map(|cluster| cluster.spec.transport()).unwrap();
    let between = present == Transport::ClientsPlaintext || wanted == Transport::ClientsPlaintext;
    if between {
        world.transport(wanted);
    }
}

fn happen(world: &mut World, event: Event) {
    match event {
        Event::Fault(fault) => world.faults.push(fault),
        Event::DeletePod(n) => delete_one_pod(world, n),
        Event::Crash(n) => crash_one(world, n),
        Event::Silence(ticks) => world.silent_until = world.now + ticks,
        Event::Scale(replicas) => world.edit(|s| s.replicas = replicas),
        Event::Allow => edit(world, Transport::ClientsPlaintext),
        Event::Refuse => edit(world, Transport::Tls),
        Event::Insecure => edit(world, Transport::Plaintext),
        Event::BadOption(bad) => set_option(world, bad),
        // A cluster without status learns that it has formed from an etcd that answers.
        Event::LoseStatus if world.complete() => world.lose_status(),
        Event::LoseStatus => {}
        Event::Idle => {}
    }
}

fn set_option(world: &mut World, bad: bool) {
    world.edit(|s| s.options = bad.then(|| Options { snapshot_count: Some(13), ..Options::default() }));
}

/// Whether every member stands at the end of the way.
fn arrived(world: &World) -> bool {
    let wanted = world.cluster.as_ref().map(|cluster| cluster.spec.transport());
    world.complete() && world.members.values().all(|m| Some(m.spec.transport()) == wanted)
}

fn formed(replicas: i32, secure: bool) -> World {
    let mut world = World::new(replicas, "3.6.16");
    if secure {
        world.secure();
    }
    assert!(world.run_until(PATIENCE, World::complete), "never formed:\n{}", world.log.join("\n"));
    world
}

fn live(history: &History) -> Result<(), TestCaseError> {
    let mut world = formed(history.replicas, history.secure);
    for (after, event) in &history.events {
        world.run_until(*after, |_| false);
        happen(&mut world, *event);
    }
    world.faults.clear();
    set_option(&mut world, false);
    for end in [Transport::ClientsPlaintext, Transport::Tls, Transport::ClientsPlaintext, Transport::Plaintext] {
        edit(&mut world, end);
        let done = world.run_until(PATIENCE, arrived);
        prop_assert!(done, "never {:?}:\n{}", end, world.log.join("\n"));
    }
    is_quiet(&mut world)
}

#[test]
fn tls_is_turned_on_and_off_whatever_happens() {
    live_through(&history(), live);
}

/// The checks of the world find a plan that skips a step.
#[test]
#[should_panic(expected = "does not reach")]
fn a_member_that_skips_a_step_is_found() {
    formed(3, false).skip_to_tls();
}
