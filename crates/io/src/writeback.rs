//! Writes a file back to the disk while more is written.
//!
//! This file decides when written bytes go to the disk. A complete file is synced, and that sync would otherwise wait for all
//! bytes at once.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Bytes between two syncs: much less than a machine keeps in memory, and enough that the disk's cache is flushed some dozen
/// times per gigabyte instead of some thousand times.
const STEP: u64 = 32 << 20;

/// Syncs a file step by step, on a thread of its own, which owns a `D` meanwhile.
#[derive(Debug)]
pub struct Writeback<D> {
    unsynced: u64,
    /// One step may wait while the disk runs the step before; it covers all bytes written until it starts.
    steps: SyncSender<()>,
    disk: JoinHandle<io::Result<D>>,
}

impl<D: Send + 'static> Writeback<D> {
    /// Starts the thread; `sync` writes the bytes so far to the disk.
    pub fn begin(mut disk: D, sync: impl Fn(&mut D) -> io::Result<()> + Send + 'static) -> Self {
        let (steps, asked) = sync_channel(1);
        let disk = thread::spawn(move || asked.iter().try_for_each(|()| sync(&mut disk)).map(|()| disk));
        Self { unsynced: 0, steps, disk }
    }

    /// Counts written bytes.
    pub fn wrote(&mut self, bytes: usize) {
        self.unsynced += bytes as u64;
        if self.unsynced >= STEP {
            self.hurry();
        }
    }

    /// Starts a sync of all written bytes, without waiting.
    pub fn hurry(&mut self) {
        // A send error: a step waits already, or the disk has failed, which `end` reports.
        if self.steps.try_send(()).is_ok() {
            self.unsynced = 0;
        }
    }

    /// Waits for the started steps. The kernel reports a write error to a single call, once (fsync(2)), so this may be the only
    /// report.
    pub fn end(self) -> io::Result<D> {
        let Self { steps, disk, .. } = self;
        drop(steps);
        disk.join().map_err(|_| io::Error::other("the sync thread has panicked"))?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn every_step_is_synced_and_the_last_one_on_demand() {
        let (synced, syncs) = channel();
        let mut writeback = Writeback::begin(0, move |steps| {
            *steps += 1;
            synced.send(()).unwrap();
            Ok(())
        });
        let step = usize::try_from(STEP).unwrap();
        writeback.wrote(step - 1);
        assert!(syncs.try_recv().is_err(), "too early");
        writeback.wrote(1);
        syncs.recv().unwrap();
        writeback.wrote(step - 1);
        writeback.hurry();
        assert_eq!(writeback.end().unwrap(), 2);
        assert_eq!(syncs.iter().count(), 1);
    }

    #[test]
    fn a_broken_disk_is_told_at_the_end() {
        let mut writeback = Writeback::begin((), |()| Err(io::ErrorKind::StorageFull.into()));
        writeback.hurry();
        while writeback.steps.send(()).is_ok() {}
        writeback.wrote(usize::MAX);
        assert_eq!(writeback.end().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
