//! Reproducible random numbers, from a seed that is printed. Decides nothing else.
//!
//! `HOLDFAST_SEED` sets the seed. The order of requests is not under our control, so a seed repeats the choices but not every
//! interleaving.

use std::sync::OnceLock;

/// A source of numbers (splitmix64: the same on every machine and with every version of everything).
#[derive(Clone, Debug)]
pub struct Luck(u64);

impl Luck {
    /// From the run's seed. Each story has its own sequence.
    pub fn of(story: &str) -> Self {
        let seed = Self::turn();
        eprintln!("e2e: {story}: HOLDFAST_SEED={seed}");
        Self(story.bytes().fold(seed, |all, byte| all.wrapping_mul(31).wrapping_add(u64::from(byte))))
    }

    /// The seed that all stories of a run share: `HOLDFAST_SEED`, or else the clock when the first story asks.
    pub fn turn() -> u64 {
        static SEED: OnceLock<u64> = OnceLock::new();
        *SEED.get_or_init(|| {
            let given = std::env::var("HOLDFAST_SEED").ok().and_then(|s| s.parse().ok());
            let since = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            given.unwrap_or_else(|| since().map_or(1, |t| u64::from(t.subsec_nanos())))
        })
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
