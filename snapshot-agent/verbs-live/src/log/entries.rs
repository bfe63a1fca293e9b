//! The entries of a segment on their way: in memory, and in a file once there are many.
//!
//! This file decides when entries go to the file: one revision may be as large as a database, when a lease or a range with most
//! keys ends. The file is compressed, has no name, and lies in the folder of the spool, because that is the volume with room.

use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use holdfast_segment::Body;
use zstd::stream::{read::Decoder, write::Encoder};

/// Bytes in memory once there is a file.
const CHUNK: usize = 1 << 20;

/// Entries whose memory is bounded.
pub(super) struct Entries {
    place: Arc<Place>,
    memory: Vec<u8>,
    file: Option<Encoder<'static, File>>,
    len: usize,
    failed: Option<io::Error>,
}

struct Place {
    folder: Box<Path>,
    /// Bytes in memory before there is a file.
    most: usize,
    next: AtomicU64,
}

impl Entries {
    /// Prepares entries of which at most `most` bytes are in memory.
    pub(super) fn in_folder(folder: &Path, most: usize) -> Self {
        Place { folder: folder.into(), most, next: AtomicU64::new(0) }.entries()
    }

    fn spill(&mut self, most: usize) {
        if self.failed.is_some() {
            self.memory.clear();
        }
        if self.memory.len() <= most {
            return;
        }
        if let Err(error) = self.write_out() {
            self.failed = Some(error);
        }
        self.memory.clear();
    }

    fn write_out(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(Encoder::new(self.place.create()?, 1)?);
        }
        if let Some(file) = &mut self.file { file.write_all(&self.memory) } else { Ok(()) }
    }
}

impl Place {
    fn entries(self) -> Entries {
        let place = Arc::new(self);
        Entries { place, memory: Vec::new(), file: None, len: 0, failed: None }
    }

    /// Creates a file without a name: no end of the process leaves it behind.
    fn create(&self) -> io::Result<File> {
        // A dot: the spool removes such files at its start.
        let path = self.folder.join(format!(".entries-{}", self.next.fetch_add(1, Relaxed)));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    }
}

impl Body for Entries {
    fn empty(&self) -> Self {
        Self { place: Arc::clone(&self.place), memory: Vec::new(), file: None, len: 0, failed: None }
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        self.memory.extend_from_slice(bytes);
        self.len += bytes.len();
        self.spill(if self.file.is_some() { CHUNK } else { self.place.most });
    }

    fn take_in(&mut self, other: Self) {
        if self.len == 0 {
            *self = other;
        } else if other.file.is_none() && other.failed.is_none() {
            self.add_bytes(&other.memory);
        } else if let Err(error) = other.write_to(&mut Appending(self)) {
            self.failed = Some(error);
        }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn write_to(self, out: &mut impl Write) -> io::Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if let Some(file) = self.file {
            let mut file = file.finish()?;
            file.seek(SeekFrom::Start(0))?;
            io::copy(&mut Decoder::new(file)?, out)?;
        }
        out.write_all(&self.memory)
    }
}

/// Entries that take the bytes of others.
struct Appending<'a>(&'a mut Entries);

impl Write for Appending<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.add_bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: Entries) -> Vec<u8> {
        let mut out = Vec::new();
        entries.write_to(&mut out).unwrap();
        out
    }

    #[test]
    fn bytes_come_back_from_memory_and_file_and_no_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let bytes =
            |seed: u8, count: usize| (0..count).map(|at| seed ^ u8::try_from(at % 251).unwrap()).collect::<Vec<_>>();
        for (first, second) in [(10, 10), (10, 3 << 20), (3 << 20, 10), (3 << 20, 2 << 20), (0, 3 << 20)] {
            let mut all = Entries::in_folder(folder.path(), 1000);
            let mut open = all.empty();
            let (first, second) = (bytes(1, first), bytes(2, second));
            first.chunks(777).for_each(|piece| all.add_bytes(piece));
            second.chunks(5000).for_each(|piece| open.add_bytes(piece));
            assert!(all.memory.len() <= CHUNK && open.memory.len() <= CHUNK);
            all.take_in(open);
            assert_eq!(all.len(), first.len() + second.len());
            assert!(all.memory.len() <= CHUNK);
            all.add_bytes(b"end");
            assert!(read(all) == [&first[..], &second, b"end"].concat());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_failure_shows_when_the_bytes_are_written() {
        let mut entries = Entries::in_folder(Path::new("/missing/folder"), 10);
        entries.add_bytes(&[0; 100]);
        entries.add_bytes(&[0; 100]);
        assert_eq!(entries.write_to(&mut Vec::new()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
