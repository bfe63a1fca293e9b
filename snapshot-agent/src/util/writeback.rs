//! Keeps the disk busy while a file is written.
//!
//! It decides when what is written goes to the disk. When a file is complete it is made durable, and what would wait for
//! that end waits all at once otherwise.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// The disk is told to write after so many bytes: much less than a machine keeps back by itself, and enough that its
/// cache is flushed some dozen times in a gigabyte and not some thousand.
const STEP: u64 = 32 << 20;

/// Has a file synced step by step, on a thread of its own, which owns a `D` meanwhile.
#[derive(Debug)]
pub(crate) struct Writeback<D> {
    unsynced: u64,
    /// One step may wait while the disk is at the one before: it takes what is written until it begins.
    steps: SyncSender<()>,
    disk: JoinHandle<io::Result<D>>,
}

impl<D: Send + 'static> Writeback<D> {
    /// Begins; `sync` takes what is written by then to the disk.
    pub(crate) fn begin(mut disk: D, sync: impl Fn(&mut D) -> io::Result<()> + Send + 'static) -> Self {
        let (steps, asked) = sync_channel(1);
        let disk = thread::spawn(move || asked.iter().try_for_each(|()| sync(&mut disk)).map(|()| disk));
        Self { unsynced: 0, steps, disk }
    }

    /// So many more bytes have been written.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.unsynced += bytes as u64;
        if self.unsynced >= STEP {
            self.hurry();
        }
    }

    /// Has all that is written taken to the disk, and does not wait for it.
    pub(crate) fn hurry(&mut self) {
        // An error of sending: a step waits already, or the disk is broken, and that is told at the end.
        if self.steps.try_send(()).is_ok() {
            self.unsynced = 0;
        }
    }

    /// Waits until the steps that were begun are done. An error of writing is told to one of those who ask, once
    /// (fsync(2)): it may be told here and nowhere else.
    pub(crate) fn end(self) -> io::Result<D> {
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
