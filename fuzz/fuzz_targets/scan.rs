//! Any bytes as a database, with the memory that a scan holds counted at the allocator.

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[path = "../src/oracle.rs"]
#[allow(dead_code, reason = "the other target has its part")]
mod oracle;
#[path = "../src/pages.rs"]
mod pages;

/// What does not depend on the database: the beginning that is held until a meta page is found, the children of the
/// branches on the way down.
const FIXED: usize = 4 << 20;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, and how much of it is in use.
struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(held, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    oracle::scan(input, &mut |budget, run| {
        let before = HELD.load(Relaxed);
        PEAK.store(before, Relaxed);
        run();
        let most = PEAK.load(Relaxed) - before;
        // Room for a row of pages is asked for before it is filled, and counted when it is.
        assert!(most <= budget + budget / 2 + FIXED, "{most} bytes were held with a budget of {budget}");
    });
});

// Half of the changes are libFuzzer's own, to bytes; half are to pages, which bytes alone hardly ever hit.
libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % 2 == 0 {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let mut input = data.get(..size).unwrap_or_default().to_vec();
    let steering = input.split_off(size.saturating_sub(oracle::STEERING));
    pages::change(&mut input, max_size.saturating_sub(steering.len()), seed);
    input.extend(steering);
    data[..input.len()].copy_from_slice(&input);
    input.len()
});
