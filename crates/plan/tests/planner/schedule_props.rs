//! Any history of runs and outages ends with exactly one record for each stored run.

use holdfast_api::snapshot::Phase;
use holdfast_contract::ExitClass;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::world::World;

#[derive(Clone, Debug)]
enum Step {
    /// This many minutes pass.
    Pass(u64),
    Away,
    Back,
    StoreDown,
    StoreUp,
    ByHand,
    LoseStatus,
    Suspend(bool),
    Park(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..4_u64).prop_map(Step::Pass),
        1 => (5..9_u64).prop_map(Step::Pass),
        2 => Just(Step::Away),
        2 => Just(Step::Back),
        1 => Just(Step::StoreDown),
        1 => Just(Step::StoreUp),
        2 => Just(Step::ByHand),
        1 => Just(Step::LoseStatus),
        1 => any::<bool>().prop_map(Step::Suspend),
        1 => any::<bool>().prop_map(Step::Park),
    ]
}

fn minutes(world: &mut World, count: u64) {
    world.run_until(600 * count, |_| false);
}

fn play(steps: &[Step]) -> World {
    let mut world = World::new(1, "3.6.16");
    assert!(world.run_until(1200, World::complete));
    world.secret("keys");
    world.store("vault", "bucket", "keys");
    world.schedule("* * * * *", "vault");
    minutes(&mut world, 1);
    for (n, step) in steps.iter().enumerate() {
        match step {
            Step::Pass(count) => minutes(&mut world, *count),
            Step::Away => world.away = true,
            Step::Back => {
                world.away = false;
                world.wake_all();
            }
            Step::StoreDown => world.store_trouble = Some(ExitClass::Transient),
            Step::StoreUp => world.store_trouble = None,
            Step::ByHand => world.run_by_hand(&format!("by-hand-{n}")),
            Step::LoseStatus => world.lose_schedule_status(false),
            Step::Suspend(yes) => world.suspend(*yes),
            Step::Park(yes) => world.edit(|s| s.replicas = i32::from(!yes)),
        }
    }
    world.away = false;
    world.store_trouble = None;
    world.edit(|s| s.replicas = 1);
    world.suspend(false);
    // The operator repeats questions to a store that was down after minutes.
    minutes(&mut world, 8);
    world.suspend(true);
    minutes(&mut world, 2);
    world
}

/// The assertions at the end of any history.
fn live(steps: &[Step]) -> Result<(), TestCaseError> {
    let world = play(steps);
    let mut stored: Vec<&str> = world.stored.iter().map(|one| one.uid.as_str()).collect();
    let mut recorded = world.complete_records();
    stored.sort_unstable();
    recorded.sort_unstable();
    prop_assert_eq!(recorded, stored, "{}", world.log.join("\n"));
    let records = world.snapshots.values().filter_map(|s| s.spec.run.as_ref().map(|run| &run.uid));
    let mut uids: Vec<_> = records.collect();
    let all = uids.len();
    uids.sort_unstable();
    uids.dedup();
    prop_assert_eq!(uids.len(), all, "a run is recorded once");
    let failed = world.snapshots.values().filter(|s| s.status.as_ref().is_some_and(|s| s.phase == Phase::Failed));
    prop_assert!(failed.count() <= 6, "three are kept beside those whose Jobs are there");
    Ok(())
}

#[test]
fn records_are_the_stored_runs() {
    let soak = std::env::var("HOLDFAST_SOAK").ok().filter(|soak| !soak.is_empty());
    let cases = if soak.is_some() { 1_000 } else { 4 };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 100, ..Config::default() };
    let mut runner = match soak {
        None => TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32])),
        Some(_) => TestRunner::new(config),
    };
    runner.run(&proptest::collection::vec(step(), 1..12), |steps| live(&steps)).unwrap();
}
