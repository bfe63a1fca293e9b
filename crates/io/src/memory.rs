//! Memory budget of a scan, from the limit of this process.
//!
//! This file decides the budget of a scan of a stream or of a file. The kernel kills a container at its limit, so the scan gets
//! the memory that the other parts of a save leave. Without a limit, as on a machine, it may take the memory that proves any
//! database that etcd supports. Both are upper bounds: the real use grows with the number of records, about 25 bytes each.

use std::fs;

/// Memory of everything except the scan, with the kernel's buffers of its connections (`verbs/save/pipe.rs`; measured: up to
/// 118 MiB with a slow store).
const OTHERS: u64 = 144 << 20;

/// Budget for the smallest database, and where the limit leaves nothing.
const LEAST: u64 = 16 << 20;

/// 20 million records: 8 GiB, the maximum that etcd suggests, of 400 bytes each.
const MOST: u64 = 512 << 20;

/// Without a limit: memory for ten million records per gigabyte of database, so of about 100 bytes each.
const PART_OF_DATABASE: u64 = 4;

/// Files with the kernel's limit of this process: cgroup v2, then v1. A container sees its own cgroup as the root.
const LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// Returns the budget in bytes for the scan of a database of about this size.
pub fn scan_budget(db_bytes: u64) -> usize {
    let limit = LIMITS.iter().find_map(|file| fs::read_to_string(file).ok()).and_then(|text| limit(&text));
    usize::try_from(budget(db_bytes, limit)).unwrap_or(usize::MAX)
}

/// Returns the budget for a local file of any size: more proves no database that etcd supports.
pub fn file_budget() -> usize {
    scan_budget(u64::MAX)
}

/// Parses such a file's limit. Without a limit it holds the word `max`, or in v1 a number beyond any machine.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|limit| *limit < 1 << 50)
}

fn budget(db_bytes: u64, limit: Option<u64>) -> u64 {
    match limit {
        // All of it: a higher limit gives a higher budget.
        Some(limit) => limit.saturating_sub(OTHERS).clamp(LEAST, MOST),
        None => (LEAST + db_bytes / PART_OF_DATABASE).min(MOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_scan_takes_what_the_other_parts_leave() {
        for (db_mib, limit_mib, budget_mib) in [
            // On a machine: by the database's size.
            (0, None, 16),
            (1024, None, 272),
            (8192, None, 512),
            // A Job's usual limit, the limit for 16 GiB, and limits that a user has set.
            (0, Some(256), 112),
            (1024, Some(256), 112),
            (16_384, Some(384), 240),
            (8192, Some(1024), 512),
            (8192, Some(512), 368),
            (8192, Some(64), 16),
            // Of any size, as for a file.
            (u64::MAX >> 20, None, 512),
            (u64::MAX >> 20, Some(256), 112),
        ] {
            let budget = budget(db_mib * MIB, limit_mib.map(|limit| limit * MIB));
            assert_eq!(budget, budget_mib * MIB, "{db_mib} MiB within {limit_mib:?}");
        }
    }

    #[test]
    fn a_limit_is_a_number_that_a_machine_can_have() {
        for (text, found) in
            [("268435456\n", Some(256 * MIB)), ("max\n", None), ("9223372036854771712\n", None), ("", None)]
        {
            assert_eq!(limit(text), found, "{text:?}");
        }
    }
}
