//! The pipeline of a restore: stored bytes → hash of the stored bytes → decryption → decompression → proof → file.
//!
//! This file does not judge the result: the caller compares it with the manifest before any use. It never writes more than the
//! expected size, so a small object cannot fill a volume. It does not wait for a disk, because the watchdog would take that for
//! a stalled store; a caller that needs durable bytes syncs them afterwards.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::OnceLock;

use bytes::{Buf, Bytes};
use flate2::read::MultiGzDecoder;
use futures::{Stream, StreamExt};
use holdfast_contract::error::{Error, Result, io_error, task_error};
use holdfast_contract::{Compression, ExitClass};
use holdfast_io::pool::Pool;
use holdfast_io::progress::Progress;
use holdfast_io::sha256::Sha256;
use tokio::sync::mpsc;

use crate::crypt::{CryptError, Identities, Opening};
use crate::trailer::{self, Proven, TRAILER};

/// Stored pieces waiting for the decoder. A download's ranges are in memory anyway; this only bridges jitter.
const PIECES_IN: usize = 8;

/// Decompressed pieces under way to hash and disk.
const PIECES_OUT: usize = 8;

/// Result of the unpacking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// The database, proven by etcd's own hash.
    pub database: Proven,
    /// Bytes of the stored object.
    pub stored_bytes: u64,
    /// sha256 of the stored object.
    pub stored_sha256: [u8; 32],
}

/// Destination of an unpacked snapshot with its trailer.
pub trait Sink: Send + 'static {
    /// Takes the next bytes.
    fn take(&mut self, bytes: &Bytes) -> io::Result<()>;
}

/// Writes the bytes to the file without a sync.
impl Sink for File {
    fn take(&mut self, bytes: &Bytes) -> io::Result<()> {
        self.write_all(bytes)
    }
}

/// Unpacks a stored snapshot into a sink; each of the sink's steps counts as progress. Without `identities` the object is not
/// encrypted. `read`: length and sha256 of the stored bytes, also if they cannot be unpacked.
pub async fn run<S: Sink>(
    mut stream: impl Stream<Item = Result<Bytes>> + Send + Unpin,
    (compression, identities): (Compression, Option<Identities>),
    db_bytes: u64,
    (sink, progress): (S, &Progress),
    read: &OnceLock<(u64, [u8; 32])>,
) -> Result<(Unpacked, S)> {
    let (to_decoder, decoder_in) = mpsc::channel::<Bytes>(PIECES_IN);
    let (to_file, file_in) = mpsc::channel::<Bytes>(PIECES_OUT);
    let limit = db_bytes.saturating_add(TRAILER as u64);
    let decoding =
        tokio::task::spawn_blocking(move || decode(decoder_in, compression, identities.as_ref(), limit, to_file));
    let progress = progress.clone();
    let writer = tokio::task::spawn_blocking(move || write(sink, file_in, &progress));
    while let Some(bytes) = stream.next().await {
        // A send error: the decoder has ended early, and returns the reason.
        if to_decoder.send(bytes?).await.is_err() {
            break;
        }
    }
    drop(to_decoder);
    let (decoded, whole) = decoding.await.map_err(|error| task_error(&error))?;
    if let Some(whole) = whole {
        read.get_or_init(|| whole);
    }
    // The writer's error first: when the writer ends early, the decoder only sees a closed channel.
    let (hasher, sink) = writer.await.map_err(|error| task_error(&error))?.map_err(io_error("writing the snapshot"))?;
    decoded?;
    let (stored_bytes, stored_sha256) = whole.ok_or_else(|| Error::transient("the stored object was not read"))?;
    let database = hasher.finish().map_err(|error| Error::corrupt(error.to_string()))?;
    Ok((Unpacked { database, stored_bytes, stored_sha256 }, sink))
}

/// Writes a stream into a sink unchanged, and never more than `limit`; the hasher covers all of it.
pub async fn plain<S: Sink>(
    mut stream: impl Stream<Item = Result<Bytes>> + Send + Unpin,
    limit: u64,
    (sink, progress): (S, &Progress),
) -> Result<(trailer::Hasher, S)> {
    let (to_file, file_in) = mpsc::channel::<Bytes>(PIECES_OUT);
    let progress = progress.clone();
    let writer = tokio::task::spawn_blocking(move || write(sink, file_in, &progress));
    let mut total = 0;
    while let Some(bytes) = stream.next().await {
        let bytes = bytes?;
        total += bytes.len() as u64;
        if total > limit {
            return Err(Error::corrupt(format!("the object has more than the {limit} bytes that the store announced")));
        }
        // A send error: the writer has ended early, and returns the reason.
        if to_file.send(bytes).await.is_err() {
            break;
        }
    }
    drop(to_file);
    writer.await.map_err(|error| task_error(&error))?.map_err(io_error("writing the snapshot"))
}

/// Returns the result, and length and sha256 of the stored bytes. Reads all bytes even after an error, because a bad reading is
/// compared with a second one.
fn decode(
    received: mpsc::Receiver<Bytes>,
    compression: Compression,
    identities: Option<&Identities>,
    limit: u64,
    to_file: mpsc::Sender<Bytes>,
) -> (Result<()>, Option<(u64, [u8; 32])>) {
    let mut inlet = Inlet { received, piece: Bytes::new(), hash: Sha256::new(), bytes: 0 };
    let opened = open(&mut inlet, compression, identities, limit, &to_file);
    // The writer has all pieces.
    drop(to_file);
    // Another step has failed: the rest is not needed.
    if opened.as_ref().is_err_and(|error| !matches!(error.class(), ExitClass::Corrupt | ExitClass::Config)) {
        return (opened, None);
    }
    match io::copy(&mut inlet, &mut io::sink()) {
        Ok(_) => (opened, Some((inlet.bytes, inlet.hash.finalize()))),
        Err(error) => (opened.and(Err(broken(error))), None),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is for `map_err`")]
fn broken(error: io::Error) -> Error {
    Error::corrupt(format!("the stored object cannot be unpacked: {error}"))
}

fn open(
    inlet: &mut Inlet,
    compression: Compression,
    identities: Option<&Identities>,
    limit: u64,
    to_file: &mpsc::Sender<Bytes>,
) -> Result<()> {
    let mut opened = Opening::new(identities, inlet).map_err(|error| match error {
        CryptError::NoMatch => Error::config("none of the identities given can decrypt the stored object"),
        other => broken(other.into()),
    })?;
    match compression {
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::new(&mut opened).map_err(broken)?;
            copy(decoder, limit, to_file, broken)?;
        }
        Compression::Gzip => copy(MultiGzDecoder::new(&mut opened), limit, to_file, broken)?,
        Compression::None => copy(&mut opened, limit, to_file, broken)?,
    }
    // A decoder stops at the end of its format. The bytes after it are checked too, and belong to the stored object's hash.
    io::copy(&mut opened, &mut io::sink()).map_err(broken)?;
    Ok(())
}

fn copy(
    mut from: impl Read,
    limit: u64,
    to_file: &mpsc::Sender<Bytes>,
    broken: impl Fn(io::Error) -> Error,
) -> Result<()> {
    let pool = Pool::default();
    let mut total = 0;
    loop {
        let mut piece = pool.take();
        while !piece.is_full() {
            match from.read(piece.room()).map_err(&broken)? {
                0 => break,
                got => piece.advance(got),
            }
        }
        let piece = piece.freeze();
        total += piece.len() as u64;
        if total > limit {
            return Err(Error::corrupt(format!("the stored object unpacks to more than the {limit} bytes recorded")));
        }
        if piece.is_empty() {
            return Ok(());
        }
        if to_file.blocking_send(piece).is_err() {
            // The writer's own error names the reason.
            return Err(Error::transient("the snapshot's file is closed"));
        }
    }
}

fn write<S: Sink>(
    mut sink: S,
    mut received: mpsc::Receiver<Bytes>,
    progress: &Progress,
) -> io::Result<(trailer::Hasher, S)> {
    let mut hasher = trailer::Hasher::default();
    while let Some(piece) = received.blocking_recv() {
        sink.take(&piece)?;
        hasher.update(&piece);
        // Writing a piece may take longer than the arrival of the next.
        progress.moved();
    }
    Ok((hasher, sink))
}

/// The stored bytes as a reader for a decoder; counts and hashes them.
struct Inlet {
    received: mpsc::Receiver<Bytes>,
    piece: Bytes,
    hash: Sha256,
    bytes: u64,
}

impl Read for Inlet {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let Some(piece) = self.received.blocking_recv() else { return Ok(0) };
            self.hash.update(&piece);
            self.bytes += piece.len() as u64;
            self.piece = piece;
        }
        let length = into.len().min(self.piece.len());
        let (into, _) = into.split_at_mut(length);
        self.piece.copy_to_slice(into);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::stream::iter;
    use holdfast_io::pool::PIECE;

    use super::*;
    use crate::pack::Packing;

    /// Longer than the watchdog's interval.
    const STALL: Duration = Duration::from_secs(1);

    /// A disk that takes this long for each piece.
    struct Slow(Duration, usize);

    impl Sink for Slow {
        #[allow(clippy::disallowed_methods, reason = "it stands for a disk")]
        fn take(&mut self, bytes: &Bytes) -> io::Result<()> {
            std::thread::sleep(self.0);
            self.1 += bytes.len();
            Ok(())
        }
    }

    /// A sink that never fills.
    impl Sink for Vec<u8> {
        fn take(&mut self, bytes: &Bytes) -> io::Result<()> {
            self.extend_from_slice(bytes);
            Ok(())
        }
    }

    async fn unpacked(stored: &[u8], db_bytes: usize) -> Result<(Unpacked, Vec<u8>)> {
        let stream = iter(stored.chunks(100_000).map(|part| Ok(Bytes::copy_from_slice(part))).collect::<Vec<_>>());
        let read = OnceLock::new();
        let unpacked =
            run(stream, (Compression::Zstd, None), db_bytes as u64, (Vec::new(), &Progress::silent()), &read).await;
        let whole = (stored.len() as u64, Sha256::digest(stored));
        assert_eq!(read.get(), Some(&whole), "what was read is known, whatever came of it");
        unpacked
    }

    /// Each frame is a zstd file of its own, so zstd does not detect a missing frame.
    #[tokio::test]
    async fn a_stored_object_that_ends_or_lacks_or_repeats_a_frame_is_refused() {
        let database: Vec<u8> = (0..PIECE * 3).map(|i| u8::try_from(i / 700 % 251).unwrap()).collect();
        let mut hash = Sha256::new();
        hash.update(&database);
        let snapshot = [&database[..], &hash.finalize()].concat();
        let frames: Vec<Vec<u8>> = snapshot
            .chunks(PIECE)
            .map(|piece| {
                let mut packing = Packing::new(Compression::Zstd, Vec::new()).unwrap();
                packing.write_all(piece).unwrap();
                packing.finish().unwrap()
            })
            .collect();
        assert_eq!(frames.len(), 4, "three, and one of the trailer alone");
        let (whole, file) = unpacked(&frames.concat(), database.len()).await.unwrap();
        assert!(file == snapshot && whole.database.db_bytes == database.len() as u64);

        for at in 0..frames.len() {
            let cut = frames[..at].concat();
            assert!(at == 0 || zstd::decode_all(&cut[..]).is_ok(), "zstd alone does not mind");
            let lacking = [&frames[..at], &frames[at + 1..]].concat().concat();
            let twice = [&frames[..=at], &frames[at..]].concat().concat();
            for (what, stored) in [("cut", cut), ("lacking", lacking), ("twice", twice)] {
                let refused = unpacked(&stored, database.len()).await.unwrap_err();
                assert_eq!(refused.class(), ExitClass::Corrupt, "{what} at frame {at}: {refused}");
            }
        }
        // An empty frame does not change the output, but the stored object's hash.
        let empty = Packing::new(Compression::Zstd, Vec::new()).unwrap().finish().unwrap();
        let (longer, file) = unpacked(&[frames.concat(), empty].concat(), database.len()).await.unwrap();
        assert!(file == snapshot && longer.stored_sha256 != whole.stored_sha256);
    }

    fn pieces(number: usize) -> impl Stream<Item = Result<Bytes>> + Send + Unpin {
        iter((0..number).map(|_| Ok(Bytes::from_static(b"piece"))))
    }

    /// The store has returned all bytes; only the disk still works.
    #[tokio::test]
    async fn a_disk_that_is_slow_is_not_a_store_that_stands_still() {
        let progress = Progress::silent();
        let sink = Slow(STALL / 3, 0);
        let written = progress.watch(STALL, plain(pieces(4), u64::MAX, (sink, &progress))).await;
        let (_, sink) = written.expect("it moved all the time");
        assert_eq!(sink.1, 4 * b"piece".len());
        let stuck = Slow(STALL * 2, 0);
        let error = progress.watch(STALL, plain(pieces(1), u64::MAX, (stuck, &progress))).await.err();
        assert!(error.is_some_and(|error| error.message().contains("no byte has moved")), "this one stands still");
    }

    /// A large file takes minutes to become durable on a slow disk, without progress meanwhile. Syncing this file fails at
    /// once, so a wait for durability would show.
    #[tokio::test]
    async fn nobody_waits_for_the_disk_while_the_store_is_watched() {
        let null = File::options().write(true).open("/dev/null").unwrap();
        assert!(null.sync_all().is_err());
        let progress = Progress::silent();
        let written = progress.watch(STALL, plain(pieces(4), u64::MAX, (null, &progress))).await;
        assert!(written.is_ok(), "{:?}", written.err());
    }
}
