//! Interrupts each act of a replacement, and of a growth of volumes, once: refused, carried out with its answer lost, or carried out late. A killed operator
//! leaves the same behind, because it remembers nothing. The cluster comes to three voters each time.

use holdfast_api::cluster::Medium;
use holdfast_api::repair::Repair;

use crate::world::volumes::Growth;
use crate::world::{Fault, World};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Five minutes for steps that take seconds undisturbed.
const PATIENCE: u64 = 3_000;

/// Runs a replacement whose nth act meets this fault; returns whether it has that many acts.
fn replaced(in_memory: bool, n: u64, fault: Fault) -> bool {
    let mut world = World::new(3, "3.6.16");
    world.edit(|s| {
        s.repair = Some(Repair { after_seconds: Some(0), keep_claim_seconds: Some(0), ..Repair::default() });
        if in_memory {
            (s.storage.medium, s.storage.size) = (Medium::Memory, Some(Quantity("256Mi".to_owned())));
        }
    });
    assert!(world.run_until(PATIENCE, World::complete));
    world.run_until(100, |_| false);
    let lost = world.members.keys().nth(1).unwrap().clone();
    if !in_memory {
        world.lose_claim(1);
    }
    world.delete_pod(&lost);
    world.interrupts = Some((n, fault));
    let done = world.run_until(PATIENCE, |w| w.complete() && !w.members.contains_key(&lost));
    world.run_until(100, |_| false);
    let counts = (world.members.len(), world.pods.len(), world.volumes.len());
    assert!(done && counts == (3, 3, 3), "{fault:?} at {n}: {counts:?}\n{}", world.log.join("\n"));
    world.interrupts.is_none()
}

#[test]
fn each_act_of_a_replacement_may_be_interrupted() {
    for in_memory in [false, true] {
        for fault in [Fault::Conflict, Fault::LostAnswer, Fault::Late] {
            let acts = (0..).take_while(|n| replaced(in_memory, *n, fault)).count();
            assert!(acts >= 12, "a replacement has more acts than {acts}");
        }
    }
}

/// Grows the volumes of three members, while the nth act meets this fault; returns whether there are that many acts.
fn grown(growth: Growth, n: u64, fault: Fault) -> bool {
    let mut world = World::new(3, "3.6.16");
    assert!(world.run_until(PATIENCE, World::complete));
    world.run_until(100, |_| false);
    world.growth = growth;
    world.edit(|s| s.storage.size = Some(Quantity("16Gi".to_owned())));
    world.interrupts = Some((n, fault));
    let done = world.run_until(PATIENCE, |w| w.complete() && w.have_grown());
    world.run_until(100, |_| false);
    assert!(done && world.have_grown(), "{growth:?}, {fault:?} at {n}:\n{}", world.log.join("\n"));
    world.interrupts.is_none()
}

#[test]
fn each_act_of_a_growth_may_be_interrupted() {
    for growth in [Growth::Online, Growth::AtMount] {
        for fault in [Fault::Conflict, Fault::LostAnswer, Fault::Late] {
            let acts = (0..).take_while(|n| grown(growth, *n, fault)).count();
            assert!(acts >= 12, "a growth has more acts than {acts}");
        }
    }
}
