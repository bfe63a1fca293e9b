//! Writes one file, and ends when the file is durable and, if requested, read back.
//!
//! This file decides that the read-back comes from the disk, and when: each step as soon as it is durable, while the next is
//! written, so that the end waits only for the last step.

use std::io::{self, Write as _};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use cap_std::fs::File;
use crc_fast::CrcAlgorithm;
use holdfast_io::pool::PIECE;
use holdfast_io::writeback::Writeback;
use rustix::fs::Advice;
use tokio::sync::mpsc;

use crate::fingerprint::Fingerprint;

/// Only whole pages leave the kernel's cache (posix_fadvise(2)); multiples of this are whole pages on every architecture.
const PAGES: u64 = 64 << 10;

/// A durable file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) bytes: u64,
    /// Fingerprint of the bytes that were read back.
    pub(super) given_back: Option<Fingerprint>,
}

/// Writes everything and makes it durable.
///
/// `given_up`: the file will be removed, so the writer stops.
pub(super) fn all(
    mut file: File,
    mut received: mpsc::Receiver<Bytes>,
    read_back: bool,
    given_up: &Arc<AtomicBool>,
) -> io::Result<Written> {
    let written = Arc::new(AtomicU64::new(0));
    let back = read_back.then(|| Back::new(given_up));
    let disk = Disk { file: file.try_clone()?, written: Arc::clone(&written), back };
    let mut writeback = Writeback::begin(disk, Disk::step);
    while let Some(piece) = received.blocking_recv() {
        file.write_all(&piece)?;
        written.fetch_add(piece.len() as u64, Ordering::Release);
        writeback.wrote(piece.len());
    }
    let Disk { back, .. } = writeback.end()?;
    if given_up.load(Ordering::Acquire) {
        return Err(io::Error::other("the upload was given up"));
    }
    file.sync_all()?;
    let bytes = written.load(Ordering::Acquire);
    let given_back = back.map(|back| back.rest(&file)).transpose()?;
    Ok(Written { bytes, given_back })
}

/// The file in the thread that syncs it.
struct Disk {
    file: File,
    /// Number of bytes given to the kernel.
    written: Arc<AtomicU64>,
    back: Option<Back>,
}

impl Disk {
    fn step(&mut self) -> io::Result<()> {
        let durable = self.written.load(Ordering::Acquire);
        self.file.sync_data()?;
        match &mut self.back {
            Some(back) => back.read(&self.file, Some(durable - durable % PAGES)),
            None => Ok(()),
        }
    }
}

/// Progress of the read-back.
struct Back {
    bytes: u64,
    crc: crc_fast::Digest,
    space: Vec<u8>,
    given_up: Arc<AtomicBool>,
}

impl Back {
    fn new(given_up: &Arc<AtomicBool>) -> Self {
        let crc = crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme);
        Self { bytes: 0, crc, space: vec![0; PIECE], given_up: Arc::clone(given_up) }
    }

    /// Reads on to `until`, or to the end. All of it is durable.
    fn read(&mut self, file: &impl AsFd, until: Option<u64>) -> io::Result<()> {
        let length = until.map_or(u64::MAX, |until| until.saturating_sub(self.bytes));
        if length == 0 {
            return Ok(());
        }
        forget(file, self.bytes, until.and(NonZero::new(length)));
        let end = until.unwrap_or(u64::MAX);
        while self.bytes < end && !self.given_up.load(Ordering::Acquire) {
            let most = usize::try_from(end - self.bytes).unwrap_or(usize::MAX).min(self.space.len());
            let Some(space) = self.space.get_mut(..most) else { break };
            let got =
                rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *space, self.bytes)).map_err(|error| {
                    let error = io::Error::from(error);
                    io::Error::new(error.kind(), format!("reading the data back: {error}"))
                })?;
            if got == 0 {
                break;
            }
            self.crc.update(space.get(..got).unwrap_or_default());
            self.bytes += got as u64;
        }
        Ok(())
    }

    /// Reads to the end.
    fn rest(mut self, file: &impl AsFd) -> io::Result<Fingerprint> {
        self.read(file, None)?;
        Ok(Fingerprint { bytes: self.bytes, crc64: self.crc.finalize() })
    }
}

/// Drops these bytes, or all from there on, from the kernel's cache: bytes from the cache show nothing about the disk. Pages
/// that are not on the disk yet stay (posix_fadvise(2)), and so do all pages where a file system ignores this call.
pub(super) fn forget(file: &impl AsFd, from: u64, length: Option<NonZero<u64>>) {
    if let Err(error) = rustix::fs::fadvise(file, from, length, Advice::DontNeed) {
        tracing::debug!(%error, "the data that is read back may come from memory");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// As after a broken stream or a signal: there is no time to read a file that is removed next.
    #[test]
    fn what_is_given_up_is_read_no_more() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![7; 3 * PIECE], 0).unwrap();
        let given_up = Arc::new(AtomicBool::new(true));
        let mut back = Back::new(&given_up);
        back.read(&file, None).unwrap();
        assert_eq!(back.bytes, 0);
        let (pieces, received) = mpsc::channel(1);
        pieces.try_send(Bytes::from_static(b"hello")).unwrap();
        drop(pieces);
        all(File::from_std(file), received, true, &given_up).unwrap_err();
    }

    /// In steps, as for a large file, and all at the end, as for a small one: each byte once, in order.
    #[test]
    fn every_byte_is_read_back_once() {
        let content: Vec<u8> = (0..=5 * PAGES).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let crc64 = crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &content);
        for steps in [&[][..], &[1], &[PAGES], &[PAGES, PAGES + 1, 4 * PAGES], &[5 * PAGES + 1]] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&content, 0).unwrap();
            let written = Arc::new(AtomicU64::new(0));
            let file = File::from_std(file);
            let mut disk = Disk { file, written: Arc::clone(&written), back: Some(Back::new(&Arc::default())) };
            for &durable in steps {
                written.store(durable, Ordering::Release);
                disk.step().unwrap();
                assert_eq!(disk.back.as_ref().unwrap().bytes, durable - durable % PAGES, "only whole pages");
            }
            let given_back = disk.back.unwrap().rest(&disk.file).unwrap();
            assert_eq!(given_back, Fingerprint { bytes: content.len() as u64, crc64 }, "{steps:?}");
        }
    }
}
