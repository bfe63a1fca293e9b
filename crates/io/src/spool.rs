//! A spool: a file of bounded size between the stream and a slow store.
//!
//! While a snapshot streams, etcd keeps a read transaction open and cannot reuse the space of deleted data. With a spool the
//! stream runs at its own speed and the upload follows; a full spool slows the stream down like a direct upload. The spool
//! holds the bytes of the stored object: compressed, and encrypted if requested.
//!
//! The file has no name, so a killed process leaves nothing, and its space is allocated at the start, so a volume that is too
//! small gives an error before etcd sends a byte.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use holdfast_contract::error::{Error, Result, io_error};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::pool::Pool;

/// An empty spool.
#[derive(Debug)]
pub struct Spool {
    file: File,
    size: u64,
}

impl Spool {
    /// Allocates this many bytes on the folder's volume.
    pub fn open(folder: &Path, size: u64) -> Result<Self> {
        let doing = || format!("making a spool of {} MiB in {} (--spool-dir)", size >> 20, folder.display());
        if size == 0 {
            return Err(Error::config(format!("{}: --spool-mib has to be at least 1", doing())));
        }
        let path = folder.join(format!(".spool-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(io_error(doing()))?;
        fs::remove_file(&path).map_err(io_error(doing()))?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
            // A file system without this call reports a full volume later.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Self::over(file, size)),
            Err(error) => Err(io_error(doing())(error.into())),
        }
    }

    /// Returns a spool over an open file, of which this many bytes are allocated.
    pub const fn over(file: File, size: u64) -> Self {
        Self { file, size }
    }

    /// Returns two blocking halves that pass all bytes on in order; each ends when the other has failed.
    pub fn halves(self, pool: Pool) -> (Filling, Draining) {
        let ring = Arc::new(Ring {
            file: self.file,
            size: self.size,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        });
        (Filling(Arc::clone(&ring)), Draining(ring, pool))
    }
}

#[derive(Debug, Default)]
struct State {
    written: u64,
    read: u64,
    /// The writer has ended.
    ended: bool,
    /// The reader has ended.
    abandoned: bool,
}

#[derive(Debug)]
struct Ring {
    file: File,
    size: u64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Ring {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Waits for an amount, and returns its position and its contiguous length.
    fn wait(
        &self,
        amount: impl Fn(&State) -> u64,
        position: impl Fn(&State) -> u64,
        over: impl Fn(&State) -> bool,
    ) -> (u64, usize) {
        let mut state = self.state();
        while amount(&state) == 0 && !over(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let at = position(&state) % self.size;
        (at, usize::try_from(amount(&state).min(self.size - at)).unwrap_or(usize::MAX))
    }
}

/// The writing half.
#[derive(Debug)]
pub struct Filling(Arc<Ring>);

impl Filling {
    /// Runs until the input ends, or the reader has ended.
    pub fn run(self, mut received: mpsc::Receiver<Bytes>) -> io::Result<()> {
        let ring = &*self.0;
        while let Some(mut piece) = received.blocking_recv() {
            while !piece.is_empty() {
                let room = |state: &State| if state.abandoned { 0 } else { ring.size - (state.written - state.read) };
                let (at, room) = ring.wait(room, |state| state.written, |state| state.abandoned);
                if room == 0 {
                    return Ok(());
                }
                let part = piece.split_to(piece.len().min(room));
                ring.file.write_all_at(&part, at)?;
                ring.change(|state| state.written += part.len() as u64);
            }
        }
        Ok(())
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.0.change(|state| state.ended = true);
    }
}

/// The reading half.
#[derive(Debug)]
pub struct Draining(Arc<Ring>, Pool);

impl Draining {
    /// Runs until all is read, or the receiver is gone.
    pub fn run(self, to_store: &mpsc::Sender<Bytes>) -> io::Result<()> {
        let ring = &*self.0;
        loop {
            let (at, ready) = ring.wait(|state| state.written - state.read, |state| state.read, |state| state.ended);
            if ready == 0 {
                return Ok(());
            }
            let mut piece = self.1.take();
            let room = piece.room();
            let length = room.len().min(ready);
            ring.file.read_exact_at(room.get_mut(..length).unwrap_or_default(), at)?;
            piece.advance(length);
            ring.change(|state| state.read += length as u64);
            if to_store.blocking_send(piece.freeze()).is_err() {
                return Ok(());
            }
        }
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        self.0.change(|state| state.abandoned = true);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdfast_contract::ExitClass;
    use proptest::prelude::*;

    use super::*;

    /// Sends these pieces through a spool of this size, and returns the output.
    fn through(size: u64, pieces: &[Vec<u8>]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path(), size).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        let (filling, draining) = spool.halves(Pool::default());
        let (to_spool, received) = mpsc::channel(1);
        let (to_store, mut stored) = mpsc::channel(1);
        std::thread::scope(|scope| {
            scope.spawn(|| filling.run(received).unwrap());
            scope.spawn(move || draining.run(&to_store).unwrap());
            scope.spawn(move || pieces.iter().for_each(|piece| to_spool.blocking_send(piece.clone().into()).unwrap()));
            let mut out = Vec::new();
            while let Some(piece) = stored.blocking_recv() {
                out.extend_from_slice(&piece);
            }
            out
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_goes_in_comes_out(
            size in 1u64..3000,
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..2000), 0..12),
        ) {
            prop_assert_eq!(through(size, &pieces), pieces.concat());
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "that something does not happen takes a moment to see")]
    fn a_full_spool_waits_until_something_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (filling, draining) = Spool::open(folder.path(), 1 << 20).unwrap().halves(Pool::default());
        let (to_spool, received) = mpsc::channel(1);
        let (to_store, mut stored) = mpsc::channel(1);
        let filler = std::thread::spawn(move || filling.run(received));
        let feeder = std::thread::spawn(move || {
            (0..8).filter(|_| to_spool.blocking_send(vec![7_u8; 1 << 20].into()).is_ok()).count()
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!filler.is_finished() && !feeder.is_finished(), "8 MiB do not fit");
        let drainer = std::thread::spawn(move || draining.run(&to_store));
        let mut bytes = 0;
        while let Some(piece) = stored.blocking_recv() {
            bytes += piece.len();
        }
        assert_eq!((bytes, feeder.join().unwrap()), (8 << 20, 8));
        filler.join().unwrap().unwrap();
        drainer.join().unwrap().unwrap();
    }

    #[test]
    fn nobody_waits_for_a_store_that_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        let (filling, draining) = Spool::open(folder.path(), 4096).unwrap().halves(Pool::default());
        let (to_spool, received) = mpsc::channel(1);
        let filler = std::thread::spawn(move || filling.run(received));
        to_spool.blocking_send(vec![1; 5000].into()).unwrap();
        drop(draining);
        filler.join().unwrap().unwrap();
        assert!(to_spool.blocking_send(Bytes::new()).is_err());
    }

    #[test]
    fn a_spool_needs_a_size_and_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Spool::open(folder.path(), 0).unwrap_err().class(), ExitClass::Config);
        let missing = Spool::open(&folder.path().join("x"), 1).unwrap_err();
        assert_eq!(missing.class(), ExitClass::NotFound);
        assert!(missing.message().contains("--spool-dir"), "{missing}");
    }
}
