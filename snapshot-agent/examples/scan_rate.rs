//! How fast the page scan is by itself: a snapshot file, out of memory, several times. `make bench-save` runs it.

use std::time::Instant;
use std::{env, fs};

use holdfast_bbolt::scan::{Options, Proven, Scan, ScanError};

const RUNS: usize = 5;

/// As the stream brings them.
const PIECE: usize = 1 << 20;

fn scan(database: &[u8], compact_revision: Option<i64>) -> Result<Proven, ScanError> {
    let mut scan = Scan::new(Options { compact_revision, budget_bytes: 1 << 30 });
    database.chunks(PIECE).for_each(|piece| scan.push(piece));
    scan.finish()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = env::args().nth(1).ok_or("usage: scan_rate FILE")?;
    let bytes = fs::read(path)?;
    // Whole pages, and etcd's sha256 behind them.
    let database = bytes.get(..bytes.len() - bytes.len() % 512).unwrap_or_default();
    // A save asks for the compact revision beforehand.
    let proven = scan(database, None)?;
    let compacted = proven.compact_revision.unwrap_or(-1);
    let mut seconds = Vec::new();
    for _ in 0..RUNS {
        let started = Instant::now();
        let again = scan(database, Some(compacted))?;
        seconds.push(started.elapsed().as_secs_f64());
        assert_eq!(again.hash_kv, proven.hash_kv);
    }
    seconds.sort_by(f64::total_cmp);
    let median = seconds[RUNS / 2];
    let mib = u32::try_from(database.len() >> 20)?;
    println!("{median:.3} {:.0}", f64::from(mib) / median);
    Ok(())
}
