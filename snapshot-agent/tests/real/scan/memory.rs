//! The memory of a scan, as the kernel counts it, in a process of its own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    missing_docs,
    reason = "tests end by panicking, and know their numbers"
)]

use holdfast_bbolt::scan::{Options, Scan, ScanError};

use crate::scan::support::bolt::{Bolt, header, key_value, leaf_body, rev};
use crate::support::{child_input, run_child};

/// Resets the kernel's peak of resident memory (proc_pid_clear_refs(5)); returns the present size.
fn begin() -> usize {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak()
}

/// Peak of resident memory since then, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn a_crafted_stream_stays_in_its_budget() {
    print!("{}", String::from_utf8_lossy(&run_child("scan::memory::reads_a_crafted_stream", "").stdout));
}

/// A gigabyte of pages that fill the scan's memory: leaves full of tiny records, branches, rows that never end, and pages that are
/// kept whole. Generated one at a time.
#[ignore = "the child half of a test"]
#[test]
fn reads_a_crafted_stream() {
    child_input();
    const PAGE: usize = 4_096;
    const PAGES: u64 = (1 << 30) / PAGE as u64;
    const BUDGET: usize = 16 << 20;
    let mut sound = Bolt::new(PAGE);
    sound.page(2, 0, &[]);
    let mut sound = sound.finish(&[("key", 2)], &[]);
    // The meta pages claim a gigabyte.
    for id in 0..2 {
        let at = id * PAGE + 16;
        sound[at + 40..at + 48].copy_from_slice(&PAGES.to_le_bytes());
        let body = &sound[at..at + 56];
        let sum = body
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        sound[at + 56..at + 64].copy_from_slice(&sum.to_le_bytes());
    }
    let records: Vec<_> = (0..60).map(|i| (rev(2 + i, 0, false), key_value(&i.to_be_bytes(), b""))).collect();
    let names: Vec<_> = (0..100_u32).map(|i| (i.to_be_bytes().to_vec(), b"v".to_vec())).collect();
    let leaf = leaf_body(&records, 0);
    let raw = leaf_body(&names, 0);
    let wide = leaf_body(&[(rev(1, 0, false), vec![0; 3 << 20])], 0);
    for kinds in [&[0][..], &[1], &[2], &[3], &[0, 1, 2, 3]] {
        let before = begin();
        let mut scan = Scan::new(Options { compact_revision: Some(1 << 40), budget_bytes: BUDGET });
        scan.push(&sound);
        let mut page = Vec::new();
        for id in (sound.len() / PAGE) as u64..PAGES {
            page.clear();
            match kinds[usize::try_from(id).unwrap() % kinds.len()] {
                0 => page.extend([&header(id, 2, records.len(), 0), &leaf[..]].concat()),
                1 => page.extend([&header(id, 2, names.len(), 0), &raw[..]].concat()),
                2 => page.extend([&header(id, 2, 1, 768), &wide[..PAGE - 16]].concat()),
                _ => {
                    // Children far from each other, so that their IDs are long.
                    page.extend(header(id, 1, 110, 0));
                    for i in 0..110_u32 {
                        page.extend((16 * (110 - i) + 17 * i).to_le_bytes());
                        page.extend(17_u32.to_le_bytes());
                        page.extend((u64::from(i % 2) << 60).to_le_bytes());
                    }
                    (0..110).for_each(|i| page.extend(rev(i, 0, false)));
                }
            }
            page.resize(PAGE, 0);
            scan.push(&page);
        }
        let failed = scan.failed().cloned();
        let held = peak().saturating_sub(before);
        println!(
            "{kinds:?}: {} KiB more resident, {failed:?}, {:?}",
            held >> 10,
            scan.finish().map(|proven| proven.keys)
        );
        assert!(held < BUDGET + (4 << 20), "{kinds:?}: {held}");
        assert!(failed.is_none_or(|error| error == ScanError::OverBudget { budget: BUDGET }));
    }
}
