//! A model checker for the plans: it takes every order of steps in a small world and checks that no step breaks a rule and that
//! the world comes to rest from every state.
//!
//! The world has three voters and members that join, edits of `spec.replicas`, servers that crash or are cut off, requests that
//! arrive late, old views, a wiped volume, members in memory, a full database whose members are defragmented. [`plan`](holdfast_plan) and [`safety`](holdfast_plan::safety) are
//! the real code; the model judges I1, I3, I4, I5, I11, I12 (of alarms), I16 and I29 by the facts. `HOLDFAST_SOAK=n` searches further; without it
//! the search is the same each time.
//!
//! A template that arrives late may stop a second voter, until the next pass takes it back. That is no breach here.
//!
//! A pass reads Kubernetes before etcd, so a view of Kubernetes may be older than that of etcd, but never newer. The model omits
//! I27 and the rest of I12: the version of an object is its contents.

mod bugs;
mod facts;
mod passes;
mod requests;
mod search;
mod sight;
mod walk;

use std::time::Instant;

use bugs::Bug;
use facts::{Facts, Luck};
use search::{Model, Searched};

const NONE: Luck = Luck { edits: 0, crashes: 0, cuts: 0, stale: 0, late: 0, wipes: 0, writes: 0, rolls: 0, fills: 0 };

fn soaks() -> bool {
    std::env::var("HOLDFAST_SOAK").is_ok_and(|soak| !soak.is_empty())
}

/// Settled clusters, one for each voter as the leader.
fn settled(voters: u8, luck: Luck) -> Vec<Facts> {
    (0..voters).map(|leader| Facts::settled(voters, leader, luck)).collect()
}

/// A start of the search, and its limits.
struct World {
    name: &'static str,
    voters: u8,
    luck: Luck,
    /// Values of `spec.replicas` that a person may set.
    sizes: &'static [u8],
    /// Limit of the states in a search without `HOLDFAST_SOAK`.
    most: usize,
}

const ALL: &[u8] = &[0, 1, 2, 3, 4];

const WORLDS: [World; 18] = [
    World { name: "an edit", voters: 3, luck: Luck { edits: 1, writes: 1, ..NONE }, sizes: ALL, most: 10_000 },
    World { name: "edits under way", voters: 3, luck: Luck { edits: 2, ..NONE }, sizes: ALL, most: 8_000 },
    World { name: "edits of one", voters: 1, luck: Luck { edits: 3, ..NONE }, sizes: &[0, 1, 2], most: 8_000 },
    World {
        name: "a crash",
        voters: 3,
        luck: Luck { edits: 1, crashes: 1, writes: 1, ..NONE },
        sizes: ALL,
        most: 8_000,
    },
    World {
        name: "two crashes",
        voters: 2,
        luck: Luck { edits: 1, crashes: 2, ..NONE },
        sizes: &[0, 1, 3],
        most: 8_000,
    },
    World {
        name: "a cut",
        voters: 3,
        luck: Luck { edits: 1, cuts: 1, crashes: 1, ..NONE },
        sizes: &[2, 4],
        most: 8_000,
    },
    World {
        name: "a late request",
        voters: 2,
        luck: Luck { edits: 2, late: 1, ..NONE },
        sizes: &[0, 1, 3],
        most: 8_000,
    },
    World {
        name: "late, and a crash",
        voters: 2,
        luck: Luck { edits: 1, late: 1, crashes: 1, ..NONE },
        sizes: &[1, 3],
        most: 8_000,
    },
    World { name: "an old view", voters: 2, luck: Luck { edits: 2, stale: 1, ..NONE }, sizes: &[0, 1, 3], most: 8_000 },
    World { name: "a roll", voters: 3, luck: Luck { rolls: 2, writes: 1, ..NONE }, sizes: &[], most: 10_000 },
    World {
        name: "a roll and a crash",
        voters: 3,
        luck: Luck { rolls: 2, crashes: 1, ..NONE },
        sizes: &[],
        most: 10_000,
    },
    World {
        name: "a roll, an edit, a late request",
        voters: 2,
        luck: Luck { rolls: 1, edits: 1, late: 1, ..NONE },
        sizes: &[1, 3],
        most: 8_000,
    },
    World {
        name: "a wiped volume",
        voters: 3,
        luck: Luck { edits: 1, crashes: 1, wipes: 1, ..NONE },
        sizes: ALL,
        most: 10_000,
    },
    World {
        name: "two wiped volumes",
        voters: 3,
        luck: Luck { crashes: 2, wipes: 2, writes: 1, ..NONE },
        sizes: ALL,
        most: 10_000,
    },
    World {
        name: "a wiped volume and a late request",
        voters: 3,
        luck: Luck { crashes: 1, wipes: 1, late: 1, ..NONE },
        sizes: ALL,
        most: 8_000,
    },
    World {
        name: "a full database and a crash",
        voters: 3,
        luck: Luck { fills: 1, writes: 1, crashes: 1, ..NONE },
        sizes: &[],
        most: 6_000,
    },
    World {
        name: "a full database, a roll, an edit",
        voters: 3,
        luck: Luck { fills: 1, writes: 1, rolls: 1, edits: 1, ..NONE },
        sizes: &[4],
        most: 6_000,
    },
    World {
        name: "a full database and a late request",
        voters: 2,
        luck: Luck { fills: 1, writes: 1, late: 1, ..NONE },
        sizes: &[],
        most: 6_000,
    },
];

/// Worlds whose search takes minutes.
const MORE: [World; 3] = [
    World {
        name: "edits and a late request",
        voters: 3,
        luck: Luck { edits: 2, crashes: 1, late: 1, ..NONE },
        sizes: ALL,
        most: 20_000,
    },
    World {
        name: "edits and an old view",
        voters: 3,
        luck: Luck { edits: 2, crashes: 1, stale: 1, ..NONE },
        sizes: ALL,
        most: 20_000,
    },
    World { name: "everything", voters: 3, luck: EVERYTHING, sizes: &[0, 2, 4], most: 20_000 },
];

const EVERYTHING: Luck =
    Luck { edits: 2, crashes: 2, cuts: 1, stale: 1, late: 1, wipes: 1, writes: 2, rolls: 1, fills: 1 };

#[test]
fn no_order_of_steps_breaks_a_rule_and_each_ends_well() {
    let mut model = Model::default();
    let more = MORE.iter().filter(|_| soaks());
    for World { name, voters, luck, sizes, most } in WORLDS.iter().chain(more) {
        let (begun, before) = (Instant::now(), model.planner.plans());
        let most = if soaks() { 10 * most } else { *most };
        let found = model.search(&settled(*voters, *luck), sizes, most);
        let searched = found.unwrap_or_else(|found| panic!("{name}: {:?}\n{}", found.breach, found.history));
        println!(
            "{name}: {} states{}, {} steps, depth {}, {:.1} s, {} plans; ends: {:?}",
            searched.states,
            if searched.whole { " (all)" } else { "" },
            searched.steps,
            searched.depth,
            begun.elapsed().as_secs_f64(),
            model.planner.plans() - before,
            searched.ends,
        );
        assert_eq!(searched.too_small, 0, "the model has too few members for {name}");
    }
}

/// Members in memory: the end of a Pod destroys its data, and a cluster is never scaled to zero.
#[test]
fn no_order_of_steps_breaks_a_rule_in_memory() {
    let worlds = [
        ("a lost Pod", Luck { edits: 1, crashes: 1, writes: 1, ..NONE }),
        ("two lost Pods", Luck { crashes: 2, ..NONE }),
        ("a lost Pod and a late request", Luck { crashes: 1, late: 1, ..NONE }),
        ("a lost Pod and an old view", Luck { crashes: 1, stale: 1, ..NONE }),
    ];
    for (name, luck) in worlds {
        let begun = Instant::now();
        let starts = settled_in_memory(luck);
        // A new model: a state from which an earlier search came to rest need not be such a state here.
        let found = Model::default().search(&starts, &[2, 4], if soaks() { 80_000 } else { 6_000 });
        let searched = found.unwrap_or_else(|found| panic!("{name}: {:?}\n{}", found.breach, found.history));
        let (states, ends) = (searched.states, searched.ends);
        println!("{name}: {states} states, {:.1} s; ends: {ends:?}", begun.elapsed().as_secs_f64());
        assert_eq!(searched.too_small, 0, "the model has too few members for {name}");
        assert!(ends.contains_key("complete"), "{name} never ends whole: {ends:?}");
    }
    let found =
        Model::with(Some(Bug::MakesASecondPod)).search(&settled_in_memory(Luck { crashes: 1, ..NONE }), &[], 10_000);
    assert_eq!(found.map_err(|found| found.breach.0).err(), Some("I3"), "a second Pod goes unnoticed");
}

fn settled_in_memory(luck: Luck) -> Vec<Facts> {
    settled(3, luck).into_iter().map(Facts::in_memory).collect()
}

#[test]
fn long_histories_break_no_rule_and_end_well() {
    let luck = Luck { edits: 4, crashes: 3, cuts: 2, stale: 2, late: 2, writes: 4, rolls: 2, ..NONE };
    let walks = if soaks() { 100_000 } else { 1_000 };
    let (mut model, mut walked, begun) = (Model::default(), Searched::default(), Instant::now());
    for seed in 0..walks {
        let voters = (seed % 3 + 1) as u8;
        let luck = Luck { wipes: (seed % 2) as u8, fills: (seed % 3) as u8, ..luck };
        let start = Facts::settled(voters, (seed / 3 % u64::from(voters)) as u8, luck);
        let found = model.walk(&start, ALL, (seed << 32, 400), &mut walked);
        found.unwrap_or_else(|found| panic!("seed {seed}: {:?}\n{}", found.breach, found.history));
    }
    println!(
        "{} histories, {} steps, {:.1} s, {} plans; ends: {:?}, too small {}",
        walked.states,
        walked.steps,
        begun.elapsed().as_secs_f64(),
        model.planner.plans(),
        walked.ends,
        walked.too_small,
    );
}

/// Each mistake, the rule that it breaks, and the world that shows it.
const BUGS: [(Bug, &str, u8, Luck); 24] = [
    (Bug::RollsAllAtOnce, "I1", 3, Luck { rolls: 1, ..NONE }),
    (Bug::AllAreHealthy, "I1", 3, Luck { edits: 1, crashes: 1, ..NONE }),
    (Bug::CutOffIsHealthy, "I1", 3, Luck { edits: 1, cuts: 1, ..NONE }),
    (Bug::RemovesTheLeader, "I1", 3, Luck { edits: 1, crashes: 1, ..NONE }),
    (Bug::PromotesTheSilent, "I1", 1, Luck { edits: 1, crashes: 1, ..NONE }),
    (Bug::EndsPodsUnparked, "I1", 3, Luck { edits: 1, ..NONE }),
    (Bug::PromotesStrangers, "I3", 1, Luck { edits: 1, ..NONE }),
    (Bug::AllowsEmptyStarts, "I3", 1, Luck { edits: 1, ..NONE }),
    (Bug::ForgetsWhoJoined, "I3", 3, Luck { crashes: 1, wipes: 1, ..NONE }),
    (Bug::ForgetsWhoIsParked, "I3", 1, Luck { edits: 2, ..NONE }),
    (Bug::DeletesTheObjectFirst, "I4", 3, Luck { edits: 1, ..NONE }),
    (Bug::DeletesTheClaimFirst, "I4", 3, Luck { edits: 1, ..NONE }),
    (Bug::UnknownIsAbsent, "I4", 3, Luck { edits: 1, crashes: 2, ..NONE }),
    (Bug::AddsAgain, "I5", 3, Luck { edits: 1, ..NONE }),
    (Bug::ForgetsWhoLeaves, "I11", 3, Luck { edits: 1, crashes: 1, ..NONE }),
    (Bug::RemovesUnlatched, "I11", 3, Luck { edits: 1, ..NONE }),
    (Bug::ForgetsNewcomers, "I11", 3, Luck { edits: 1, ..NONE }),
    (Bug::KeepsClients, "I16", 3, Luck { edits: 1, ..NONE }),
    (Bug::ReplacesTheSilent, "I29", 3, Luck { crashes: 1, ..NONE }),
    (Bug::DefragmentsTwoAtOnce, "I1", 3, Luck { fills: 1, ..NONE }),
    (Bug::DefragmentsBesideAJoiner, "I11", 3, Luck { edits: 1, ..NONE }),
    (Bug::DefragmentsWithClients, "I16", 3, Luck { fills: 1, ..NONE }),
    (Bug::ClearsAlarmsOfFullFiles, "I12", 3, Luck { fills: 1, writes: 1, ..NONE }),
    (Bug::RemovesUnfenced, "I29", 3, Luck { crashes: 1, wipes: 1, ..NONE }),
];

/// Proves that the checker can find a mistake.
#[test]
fn each_mistake_is_found() {
    let mut missed = vec![];
    for (bug, invariant, voters, luck) in BUGS {
        let begun = Instant::now();
        match Model::with(Some(bug)).search(&settled(voters, luck), ALL, 30_000) {
            Err(found) => {
                println!("{bug:?}: {} {:.1} s", found.breach.1, begun.elapsed().as_secs_f64());
                if found.breach.0 != invariant {
                    missed.push(format!("{bug:?} broke {:?} first:\n{}", found.breach, found.history));
                }
            }
            Ok(searched) => missed.push(format!("{bug:?} went unnoticed in {} states", searched.states)),
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
