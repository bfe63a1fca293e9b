//! Where chance begins: always at the same place, so that what fails fails again; somewhere else each time where
//! `HOLDFAST_SOAK` is set; and where `HOLDFAST_SEED` says.

use crate::soak::soak;

/// The seed of one test, which is told on standard output.
pub(crate) fn seed(what: &str, usually: u64) -> u64 {
    let given = std::env::var("HOLDFAST_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = given.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        soak(usually, u64::from(since.subsec_nanos()))
    });
    println!("{what}: HOLDFAST_SEED={seed}");
    // A generator that begins with nothing stays there.
    seed.max(1)
}
