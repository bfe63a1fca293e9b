//! Seeds of random tests: the same each time, so that a failure repeats; another one each time with `HOLDFAST_SOAK`; and the given
//! one with `HOLDFAST_SEED`.

use crate::soak::soak;

/// The seed of one test; printed on standard output.
pub(crate) fn seed(what: &str, usually: u64) -> u64 {
    let given = std::env::var("HOLDFAST_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = given.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        soak(usually, u64::from(since.subsec_nanos()))
    });
    println!("{what}: HOLDFAST_SEED={seed}");
    // A generator with the seed 0 stays at 0.
    seed.max(1)
}
