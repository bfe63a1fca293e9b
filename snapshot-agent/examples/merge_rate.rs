//! How fast the merge is by itself: a snapshot file and so many revisions of values of 300 bytes, on one core.
//!
//! Prints the seconds of the merge with the bytes on the disk, the revisions in a second, the largest memory of the process in
//! MiB, and the seconds of the proof of the result, which is not part of the merge. With `compacted` etcd has compacted at the end
//! of the log: both passes count.

use std::io::{BufWriter, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::time::Instant;
use std::{env, fs};

use holdfast_bbolt::merge::{Merge, Survey};
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
    let usage = "usage: merge_rate FILE REVISIONS [compacted]";
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
    let until = base + revisions;
    let values = || (base + 1..=until).map(|main| (main, value(main)));
    let compact = (env::args().nth(3).as_deref() == Some("compacted")).then_some(until);
    let mut survey = Survey::begin(&file, bytes, until, compact, BUDGET)?;
    let kept = loop {
        for (main, value) in values() {
            survey.add(&Record { main, sub: 0, tombstone: false, value: &value })?;
        }
        if let Some(surveyed) = survey.end_pass()? {
            break surveyed.kept;
        }
    };
    let result_path = format!("{path}.result");
    let options = || fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).to_owned();
    let (mut merge, result) = match kept {
        Some(kept) => (Merge::compact(&file, bytes, until, kept, BUDGET)?, options().open(&result_path)?),
        None => (Merge::begin(&file, bytes, until, BUDGET)?, file.try_clone()?),
    };
    let mut out = BufWriter::with_capacity(1 << 20, &result);
    out.seek(SeekFrom::Start(merge.offset()))?;
    for (main, value) in values() {
        merge.add(&Record { main, sub: 0, tombstone: false, value: &value }, &mut out)?;
    }
    let merged = merge.finish(&mut out)?;
    let computed = started.elapsed().as_secs_f64();
    result.sync_data()?;
    for page in &merged.metas {
        result.write_all_at(&page.bytes, page.id * page.bytes.len() as u64)?;
    }
    result.sync_all()?;
    let seconds = started.elapsed().as_secs_f64();
    let memory = largest_memory();
    let proving = Instant::now();
    let proven = Reader::open(&result, merged.bytes, 1 << 30)?.prove(None)?;
    assert_eq!(proven.revision, base + revisions);
    let rate = |seconds: f64| f64::from(i32::try_from(revisions).unwrap_or(i32::MAX)) / seconds;
    println!(
        "{seconds:.2} s with the sync, {:.0} revisions/s; {computed:.2} s without, {:.0} revisions/s; {memory} MiB; proof {:.2} s; {} MiB",
        rate(seconds),
        rate(computed),
        proving.elapsed().as_secs_f64(),
        merged.bytes >> 20
    );
    if compact.is_some() {
        fs::remove_file(result_path)?;
    }
    fs::remove_file(merged_path)?;
    Ok(())
}
