//! CAs are exchanged whatever goes wrong on the way: lost answers, conflicts, late writes, silent servers, killed Pods, a lost status,
//! deleted Secrets, other sizes, and another exchange in the middle of the first.
//!
//! The world itself asserts that no member is cut off: each certificate that is written, and each file of CAs that a Pod loads, is
//! compared with the CAs that the running members have loaded and with the certificates that they show. `HOLDFAST_SOAK=1` tries
//! thousands of histories; without it the test tries a seeded sample.

use proptest::prelude::*;

use crate::histories::{crash_one, delete_one_pod, is_quiet, live_through, soak};
use crate::world::{Fault, World};

/// Twenty minutes: renewals wait ten seconds for each member, in two planes.
const PATIENCE: u64 = 12_000;

#[derive(Clone, Copy, Debug)]
enum Event {
    Fault(Fault),
    DeletePod(usize),
    Crash(usize),
    Silence(u64),
    LoseStatus,
    LoseSecret(&'static str),
    Scale(i32),
    Rotate(&'static str),
    RenewOne,
    Idle,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => prop_oneof![Just(Fault::Conflict), Just(Fault::LostAnswer), Just(Fault::Late)].prop_map(Event::Fault),
        1 => (0usize..5).prop_map(Event::DeletePod),
        1 => (0usize..5).prop_map(Event::Crash),
        1 => (1u64..60).prop_map(Event::Silence),
        1 => Just(Event::LoseStatus),
        1 => prop_oneof![Just("member"), Just("client-ca"), Just("peer-ca")].prop_map(Event::LoseSecret),
        1 => (1i32..=4).prop_map(Event::Scale),
        2 => prop_oneof![Just("client"), Just("peer"), Just("all")].prop_map(Event::Rotate),
        1 => Just(Event::RenewOne),
        3 => Just(Event::Idle),
    ]
}

#[derive(Clone, Debug)]
struct History {
    replicas: i32,
    /// Whether cert-manager issues the certificates.
    managed: bool,
    grace: u32,
    /// The events, each this many ticks after the one before.
    events: Vec<(u64, Event)>,
}

fn history() -> impl Strategy<Value = History> {
    let events = proptest::collection::vec((0u64..60, event()), 1..25);
    (1i32..=4, any::<bool>(), prop_oneof![Just(0u32), Just(10)], events)
        .prop_map(|(replicas, managed, grace, events)| History { replicas, managed, grace, events })
}

fn happen(world: &mut World, event: Event, managed: bool, number: usize) {
    match event {
        Event::Fault(fault) => world.faults.push(fault),
        Event::DeletePod(n) => delete_one_pod(world, n),
        Event::Crash(n) => crash_one(world, n),
        Event::Silence(ticks) => world.silent_until = world.now + ticks,
        Event::LoseStatus => world.lose_status(),
        // A member's Secret that goes with the CA cannot be written again before members trust another CA.
        Event::LoseSecret(which) if managed || which != "member" => world.delete_secret(which),
        Event::LoseSecret(_) => {}
        Event::Scale(replicas) => world.edit(|s| s.replicas = replicas),
        Event::Rotate(_) if managed => world.exchange_issuer(&format!("ca-of-{number}")),
        Event::Rotate(planes) => world.rotate(&format!("{planes}/{number}")),
        Event::RenewOne if managed => world.issue_one_again(),
        Event::RenewOne | Event::Idle => {}
    }
}

fn live(history: &History) -> Result<(), TestCaseError> {
    let mut world = World::new(history.replicas, "3.6.16");
    if history.managed {
        world.managed();
        world.install_cert_manager();
    } else {
        world.secure();
    }
    world.grace(history.grace);
    prop_assert!(world.run_until(PATIENCE, World::complete), "never formed:\n{}", world.log.join("\n"));
    for (number, (after, event)) in history.events.iter().enumerate() {
        world.run_until(*after, |_| false);
        happen(&mut world, *event, history.managed, number);
    }
    world.faults.clear();
    // A person asks, where Holdfast waits for one: for a lost CA, and for a cluster of one or two members.
    world.rotate("all/last");
    let done = world.run_until(PATIENCE, World::is_exchanged);
    prop_assert!(done, "never exchanged:\n{}", world.log.join("\n"));
    is_quiet(&mut world)
}

#[test]
fn cas_are_exchanged_whatever_happens() {
    live_through(&history(), live);
}

/// Exchanges both CAs, while the nth act meets this fault; returns whether there are that many acts.
fn exchanged(managed: bool, n: u64, fault: Fault) -> bool {
    let mut world = World::new(3, "3.6.16");
    if managed {
        world.managed();
        world.install_cert_manager();
    } else {
        world.secure();
    }
    world.grace(0);
    assert!(world.run_until(PATIENCE, World::complete));
    world.run_until(100, |_| false);
    if managed {
        world.exchange_issuer("ca-2");
        world.issue_one_again();
    } else {
        world.rotate("all/one");
    }
    world.interrupts = Some((n, fault));
    world.run_until(5, |_| false);
    assert!(world.run_until(PATIENCE, World::is_exchanged), "{fault:?} at {n}:\n{}", world.log.join("\n"));
    world.interrupts.is_none()
}

#[test]
fn each_act_of_an_exchange_may_be_interrupted() {
    let stride = if soak() { 1 } else { 5 };
    for (managed, fault) in [(false, Fault::Late), (false, Fault::LostAnswer), (true, Fault::Late)] {
        let acts = (0..).step_by(stride).take_while(|n| exchanged(managed, *n, fault)).count() * stride;
        assert!(acts >= 12, "an exchange has more acts than {acts}");
    }
}

/// The checks of the world find a plan that cuts members off: a certificate of a CA that no member has loaded.
#[test]
#[should_panic(expected = "does not trust")]
fn a_certificate_of_a_ca_that_a_member_does_not_trust_is_found() {
    let mut world = World::new(3, "3.6.16");
    world.secure();
    assert!(world.run_until(PATIENCE, World::complete));
    world.sign_by_a_stranger();
}

/// The same of a CA that leaves the files while a member still shows a certificate of it.
#[test]
#[should_panic(expected = "would be cut off")]
fn a_ca_that_leaves_before_its_certificates_is_found() {
    let mut world = World::new(3, "3.6.16");
    world.secure();
    assert!(world.run_until(PATIENCE, World::complete));
    world.forget_a_ca();
}
