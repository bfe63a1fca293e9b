//! The way up: stored bytes → hash of what was stored → decryption → decompression → proof → file.
//!
//! It decides nothing about the result: it gives back what came out, and the caller compares it with the manifest
//! before anything is used. It never writes more than it was told to expect, so a small object cannot fill a volume. And it
//! waits for no disk: whoever watches it would take that for a store that stands still. Who needs the bytes durable syncs
//! them afterwards.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::OnceLock;

use bytes::{Buf, Bytes};
use flate2::read::MultiGzDecoder;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

use crate::contract::{Compression, ExitClass};
use crate::error::{Error, Result, io_error, task_error};
use crate::format::crypt::{CryptError, Identities, Opening};
use crate::format::trailer::{self, Proven, TRAILER};
use crate::util::pool::Pool;
use crate::util::progress::Progress;
use crate::util::sha256::Sha256;

/// Stored pieces waiting to be decompressed. A download's ranges are in memory anyway; this only bridges jitter.
const PIECES_IN: usize = 8;

/// Decompressed pieces on their way to hash and disk.
const PIECES_OUT: usize = 8;

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// The database, proven by etcd's own hash.
    pub(crate) database: Proven,
    /// Bytes of the stored object.
    pub(crate) stored_bytes: u64,
    /// sha256 of the stored object.
    pub(crate) stored_sha256: [u8; 32],
}

/// What takes an unpacked snapshot, trailer and all.
pub(crate) trait Sink: Send + 'static {
    /// Takes the next bytes.
    fn take(&mut self, bytes: &Bytes) -> io::Result<()>;
}

/// The bytes are in the file, and not yet on its disk.
impl Sink for File {
    fn take(&mut self, bytes: &Bytes) -> io::Result<()> {
        self.write_all(bytes)
    }
}

/// Unpacks a stored snapshot into a sink, whose every step is a sign of life. Without `identities` it is not encrypted.
/// `read`: length and sha256 of what was read, also where it cannot be unpacked.
pub(crate) async fn run<S: Sink>(
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
        // An error of sending: the decoder has ended early, and says why.
        if to_decoder.send(bytes?).await.is_err() {
            break;
        }
    }
    drop(to_decoder);
    let (decoded, whole) = decoding.await.map_err(|error| task_error(&error))?;
    if let Some(whole) = whole {
        read.get_or_init(|| whole);
    }
    // The writer's error comes first: when it ends early, the decoder only sees that nobody listens.
    let (hasher, sink) = writer.await.map_err(|error| task_error(&error))?.map_err(io_error("writing the snapshot"))?;
    decoded?;
    let (stored_bytes, stored_sha256) = whole.ok_or_else(|| Error::transient("the stored object was not read"))?;
    let database = hasher.finish().map_err(|error| Error::corrupt(error.to_string()))?;
    Ok((Unpacked { database, stored_bytes, stored_sha256 }, sink))
}

/// Writes a stream into a sink as it is, and never more than `limit`; the hasher has seen all of it.
pub(crate) async fn plain<S: Sink>(
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
        // An error of sending: the writer has ended early, and says why.
        if to_file.send(bytes).await.is_err() {
            break;
        }
    }
    drop(to_file);
    writer.await.map_err(|error| task_error(&error))?.map_err(io_error("writing the snapshot"))
}

/// What came of it, and what was read: a bad reading is compared with a second one, so all of it is read.
fn decode(
    received: mpsc::Receiver<Bytes>,
    compression: Compression,
    identities: Option<&Identities>,
    limit: u64,
    to_file: mpsc::Sender<Bytes>,
) -> (Result<()>, Option<(u64, [u8; 32])>) {
    let mut inlet = Inlet { received, piece: Bytes::new(), hash: Sha256::new(), bytes: 0 };
    let opened = open(&mut inlet, compression, identities, limit, &to_file);
    // The writer has all there is.
    drop(to_file);
    // Somebody else ended it: nobody waits for the rest.
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
    // A decoder stops where its format ends. What follows has to be proven too, and belongs to the stored object's hash.
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
            // The writer's own error says why.
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
        // What came in one piece may be written for longer than the next one may take to come.
        progress.moved();
    }
    Ok((hasher, sink))
}

/// The stored bytes as something a decoder can read from; counts and hashes them.
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

    use super::*;
    use crate::format::pack::Packing;
    use crate::util::pool::PIECE;

    /// Longer than the watch looks away.
    const STALL: Duration = Duration::from_secs(1);

    /// A disk that takes so long for each piece.
    struct Slow(Duration, usize);

    impl Sink for Slow {
        #[allow(clippy::disallowed_methods, reason = "it stands for a disk")]
        fn take(&mut self, bytes: &Bytes) -> io::Result<()> {
            std::thread::sleep(self.0);
            self.1 += bytes.len();
            Ok(())
        }
    }

    /// Takes what comes, on a disk that is full at no time.
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

    /// Each frame is a zstd file of its own, so zstd has nothing to say about one that is missing.
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
        // A frame of nothing changes nothing of what comes out: the stored object's own hash is another one.
        let empty = Packing::new(Compression::Zstd, Vec::new()).unwrap().finish().unwrap();
        let (longer, file) = unpacked(&[frames.concat(), empty].concat(), database.len()).await.unwrap();
        assert!(file == snapshot && longer.stored_sha256 != whole.stored_sha256);
    }

    fn pieces(number: usize) -> impl Stream<Item = Result<Bytes>> + Send + Unpin {
        iter((0..number).map(|_| Ok(Bytes::from_static(b"piece"))))
    }

    /// The store has given all of it at once; what goes on is the disk's, and it goes on.
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

    /// A large one takes minutes to be durable on a slow disk, and nothing moves meanwhile. This file says at once what
    /// becomes of whoever waits for that here: it cannot be synced.
    #[tokio::test]
    async fn nobody_waits_for_the_disk_while_the_store_is_watched() {
        let null = File::options().write(true).open("/dev/null").unwrap();
        assert!(null.sync_all().is_err());
        let progress = Progress::silent();
        let written = progress.watch(STALL, plain(pieces(4), u64::MAX, (null, &progress))).await;
        assert!(written.is_ok(), "{:?}", written.err());
    }
}
