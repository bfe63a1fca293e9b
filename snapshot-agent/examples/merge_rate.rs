//! How fast the merge is by itself: a snapshot file and so many revisions of values of 300 bytes, on one core.
//!
//! Prints the seconds of the merge with the bytes on the disk, the revisions in a second, the largest memory of the process in
//! MiB, and the seconds of the proof of the result, which is not part of the merge.

use std::io::{BufWriter, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::time::Instant;
use std::{env, fs};

use holdfast_bbolt::merge::Merge;
use holdfast_bbolt::scan::Reader;
use holdfast_segment::{KeyValue, Record};

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BUDGET: usize = 64 << 20;

/// Returns the record of a put of one of 10,000 keys, as etcd stores it.
fn value(main: i64) -> Vec<u8> {
    let key = format!("/registry/things/{:05}", main % 10_000);
    let value = [main.to_le_bytes(); 38].as_flattened().iter().take(300).copied().collect::<Vec<u8>>();
    let mut out = Vec::with_capacity(400);
    KeyValue { key: key.as_bytes(), create_revision: main, mod_revision: main, version: 1, value: &value, lease: 0 }
        .encode(&mut out);
    out
}

/// Returns the largest memory of this process in MiB.
fn largest_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() >> 10
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: merge_rate FILE REVISIONS";
    let path = env::args().nth(1).ok_or(usage)?;
    let revisions: i64 = env::args().nth(2).ok_or(usage)?.parse()?;
    let merged_path = format!("{path}.merged");
    fs::copy(&path, &merged_path)?;
    let file = fs::OpenOptions::new().read(true).write(true).open(&merged_path)?;
    // Whole pages, and etcd's sha256 behind them.
    let bytes = file.metadata()?.len() / 512 * 512;
    file.set_len(bytes)?;
    let base = Reader::open(&file, bytes, BUDGET)?.prove(None)?.revision;
    let started = Instant::now();
    let mut merge = Merge::begin(&file, bytes, base + revisions, BUDGET)?;
    let mut out = BufWriter::with_capacity(1 << 20, &file);
    out.seek(SeekFrom::Start(merge.offset()))?;
    for main in base + 1..=base + revisions {
        let value = value(main);
        merge.add(&Record { main, sub: 0, tombstone: false, value: &value }, &mut out)?;
    }
    let merged = merge.finish(&mut out)?;
    let computed = started.elapsed().as_secs_f64();
    file.sync_data()?;
    for page in &merged.metas {
        file.write_all_at(&page.bytes, page.id * page.bytes.len() as u64)?;
    }
    file.sync_all()?;
    let seconds = started.elapsed().as_secs_f64();
    let memory = largest_memory();
    let proving = Instant::now();
    let proven = Reader::open(&file, merged.bytes, 1 << 30)?.prove(None)?;
    assert_eq!(proven.revision, base + revisions);
    let rate = |seconds: f64| f64::from(i32::try_from(revisions).unwrap_or(i32::MAX)) / seconds;
    println!(
        "{seconds:.2} s with the sync, {:.0} revisions/s; {computed:.2} s without, {:.0} revisions/s; {memory} MiB; proof {:.2} s",
        rate(seconds),
        rate(computed),
        proving.elapsed().as_secs_f64()
    );
    fs::remove_file(merged_path)?;
    Ok(())
}
