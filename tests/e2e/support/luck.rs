//! Reproducible random numbers, from a seed that is printed. Decides nothing else.
//!
//! `HOLDFAST_SEED` sets the seed. The order of requests is not under our control, so a seed repeats the choices but not every
//! interleaving.

/// A source of numbers (splitmix64: the same numbers on every machine and with every version of the dependencies).
#[derive(Clone, Debug)]
pub struct Luck(u64);

impl Luck {
    /// Creates a source from `HOLDFAST_SEED`, else from the clock, and prints the seed. Each story has its own sequence.
    pub fn of(story: &str) -> Self {
        let given = std::env::var("HOLDFAST_SEED").ok().and_then(|s| s.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(1, |t| u64::from(t.subsec_nanos()))
        });
        eprintln!("e2e: {story}: HOLDFAST_SEED={seed}");
        Self(story.bytes().fold(seed, |all, byte| all.wrapping_mul(31).wrapping_add(u64::from(byte))))
    }

    /// A number that all stories of a run share: `HOLDFAST_SEED`, else a different number in each run.
    pub fn turn() -> u64 {
        let given = std::env::var("HOLDFAST_SEED").ok().and_then(|s| s.parse().ok());
        given.unwrap_or_else(|| u64::from(std::process::id()))
    }

    /// Creates another source with independent numbers.
    pub fn fork(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }

    /// The next number below `bound`, which is at least one.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}
