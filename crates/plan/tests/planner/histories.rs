//! Histories of a property: how many a run tries, how each of them ends, and the mishaps of Pods that they share.
//!
//! Does not decide what happens in a history.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::world::World;

/// Whether `HOLDFAST_SOAK` asks for the full counts.
pub fn soak() -> bool {
    std::env::var("HOLDFAST_SOAK").is_ok_and(|soak| !soak.is_empty())
}

/// Tries thousands of histories with `HOLDFAST_SOAK`, else a seeded sample.
pub fn live_through<S: Strategy>(histories: &S, live: impl Fn(&S::Value) -> Result<(), TestCaseError>) {
    let cases = if soak() { 5_000 } else { 24 };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = if soak() {
        TestRunner::new(config)
    } else {
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]))
    };
    runner.run(histories, |history| live(&history)).unwrap();
}

/// I17: the operator writes nothing while nothing happens.
pub fn is_quiet(world: &mut World) -> Result<(), TestCaseError> {
    world.run_until(100, |_| false);
    let before = world.writes;
    world.run_until(200, |_| false);
    prop_assert_eq!(world.writes, before, "written while nothing happened:\n{}", world.log.join("\n"));
    Ok(())
}

/// Deletes one of the Pods, if there is one.
pub fn delete_one_pod(world: &mut World, n: usize) {
    if let Some(name) = nth_pod(world, n) {
        world.delete_pod(&name);
    }
}

/// Ends the etcd of one of the Pods, if there is one.
pub fn crash_one(world: &mut World, n: usize) {
    if let Some(name) = nth_pod(world, n) {
        world.crash(&name);
    }
}

fn nth_pod(world: &World, n: usize) -> Option<String> {
    world.pods.keys().nth(n % world.pods.len().max(1)).cloned()
}
