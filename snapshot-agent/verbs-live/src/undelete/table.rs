//! The selected keys of a point, sorted by key, in files of the scratch folder.
//!
//! etcd's database is sorted by revision. This file decides how its records become a table that is sorted by key, with the newest
//! record of each key: sorted runs within a budget of memory, which are merged into one file. The callers decide which records come in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use holdfast_contract::KeyCount;
use holdfast_contract::error::{Result, io_error};
use holdfast_io::scratch::Scratch;

/// Runs that are merged at a time, each with a buffer of its own.
const MAX_RUNS: usize = 64;

/// Buffer of a file.
const BUFFER: usize = 128 << 10;

/// Bytes of an entry of the map beside key and value.
const ENTRY: usize = 128;

const WRITING: &str = "writing the table of keys in --scratch";
const READING: &str = "reading the table of keys in --scratch";

/// A key at the point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PastKey {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// Revision of the last write.
    pub(super) revision: i64,
    /// ID of the lease; 0: none.
    pub(super) lease: i64,
}

/// The newest record of a key; without a value: the key was deleted.
#[derive(Debug, Default)]
struct Held {
    revision: i64,
    lease: i64,
    value: Option<Vec<u8>>,
}

/// Takes records in the order of their revisions.
pub(super) struct TableBuilder<'a> {
    scratch: &'a Scratch,
    budget: usize,
    held: usize,
    newest: BTreeMap<Vec<u8>, Held>,
    /// Files that are sorted by key, the oldest first.
    runs: Vec<PathBuf>,
    made: usize,
}

/// The finished table.
#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    /// Number and bytes of its keys.
    pub(super) count: KeyCount,
}

impl<'a> TableBuilder<'a> {
    /// `budget`: bytes of memory for the records.
    pub(super) fn new(scratch: &'a Scratch, budget: usize) -> Self {
        Self { scratch, budget, held: 0, newest: BTreeMap::new(), runs: vec![], made: 0 }
    }

    /// Adds the next record; without a value it is a deletion.
    pub(super) fn add(&mut self, key: &[u8], value: Option<&[u8]>, (revision, lease): (i64, i64)) -> Result<()> {
        let held = Held { revision, lease, value: value.map(<[u8]>::to_vec) };
        self.held += value.map_or(0, <[u8]>::len);
        if let Some(slot) = self.newest.get_mut(key) {
            self.held -= slot.value.as_ref().map_or(0, Vec::len);
            *slot = held;
        } else {
            self.held += key.len() + ENTRY;
            self.newest.insert(key.to_vec(), held);
        }
        if self.held >= self.budget {
            self.spill()?;
        }
        if self.runs.len() >= MAX_RUNS {
            self.merge()?;
        }
        Ok(())
    }

    /// Writes the held records as a run.
    fn spill(&mut self) -> Result<()> {
        let (path, mut file) = self.create()?;
        for (key, held) in std::mem::take(&mut self.newest) {
            write(&mut file, &key, &held).map_err(io_error(WRITING))?;
        }
        file.flush().map_err(io_error(WRITING))?;
        self.held = 0;
        self.runs.push(path);
        Ok(())
    }

    /// Merges all runs into one, and removes them. Nothing is older than they are, so no deletion stays.
    fn merge(&mut self) -> Result<KeyCount> {
        let (path, mut file) = self.create()?;
        let runs = std::mem::replace(&mut self.runs, vec![path]);
        let mut readers = runs.iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
        let mut heads: Vec<Option<Held>> = readers.iter().map(|_| None).collect();
        // The smallest key comes first, and of one key the record of the newest run.
        let mut heap = BinaryHeap::new();
        let mut count = KeyCount::default();
        for place in 0..readers.len() {
            advance(&mut readers, &mut heads, &mut heap, place)?;
        }
        let mut last: Option<Vec<u8>> = None;
        while let Some(Reverse((key, Reverse(place)))) = heap.pop() {
            let held = heads.get_mut(place).and_then(Option::take).unwrap_or_default();
            if last.as_ref() != Some(&key) {
                if let Some(value) = &held.value {
                    count.add((key.len() + value.len()) as u64);
                    write(&mut file, &key, &held).map_err(io_error(WRITING))?;
                }
                last = Some(key);
            }
            advance(&mut readers, &mut heads, &mut heap, place)?;
        }
        file.flush().map_err(io_error(WRITING))?;
        for path in runs {
            fs::remove_file(path).map_err(io_error(WRITING))?;
        }
        Ok(count)
    }

    fn create(&mut self) -> Result<(PathBuf, BufWriter<File>)> {
        self.made += 1;
        let (path, file) = self.scratch.file(&format!("keys-{}", self.made))?;
        Ok((path, BufWriter::with_capacity(BUFFER, file)))
    }

    /// Merges the runs into the table.
    pub(super) fn finish(mut self) -> Result<Table> {
        self.spill()?;
        let count = self.merge()?;
        Ok(Table { path: self.runs.pop().unwrap_or_default(), count })
    }
}

impl Table {
    /// Reads the keys in their order.
    pub(super) fn keys(&self) -> Result<impl Iterator<Item = Result<PastKey>> + Send + use<>> {
        let mut file = open(&self.path)?;
        Ok(std::iter::from_fn(move || {
            let next = read(&mut file).map_err(io_error(READING)).transpose()?;
            Some(next.map(|(key, Held { revision, lease, value })| PastKey {
                key,
                value: value.unwrap_or_default(),
                revision,
                lease,
            }))
        }))
    }
}

type Heap = BinaryHeap<Reverse<(Vec<u8>, Reverse<usize>)>>;

/// Puts the next record of a run on the heap.
fn advance(readers: &mut [BufReader<File>], heads: &mut [Option<Held>], heap: &mut Heap, place: usize) -> Result<()> {
    let Some(reader) = readers.get_mut(place) else { return Ok(()) };
    if let Some((key, held)) = read(reader).map_err(io_error(READING))? {
        if let Some(head) = heads.get_mut(place) {
            *head = Some(held);
        }
        heap.push(Reverse((key, Reverse(place))));
    }
    Ok(())
}

fn open(path: &Path) -> Result<BufReader<File>> {
    Ok(BufReader::with_capacity(BUFFER, File::open(path).map_err(io_error(READING))?))
}

fn write(to: &mut impl Write, key: &[u8], Held { revision, lease, value }: &Held) -> io::Result<()> {
    write_bytes(to, key)?;
    write_number(to, *revision)?;
    write_number(to, *lease)?;
    to.write_all(&[u8::from(value.is_some())])?;
    write_bytes(to, value.as_deref().unwrap_or_default())
}

fn read(from: &mut impl BufRead) -> io::Result<Option<(Vec<u8>, Held)>> {
    if from.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let key = read_bytes(from)?;
    let (revision, lease) = (read_number(from)?, read_number(from)?);
    let mut has_value = [0];
    from.read_exact(&mut has_value)?;
    let value = read_bytes(from)?;
    Ok(Some((key, Held { revision, lease, value: (has_value != [0]).then_some(value) })))
}

/// Writes bytes with their length.
pub(super) fn write_bytes(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)
}

/// Reads bytes that [`write_bytes`] has written.
pub(super) fn read_bytes(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut bytes = vec![];
    // A length of a damaged file reserves nothing.
    from.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Writes a number.
pub(super) fn write_number(to: &mut impl Write, number: i64) -> io::Result<()> {
    to.write_all(&number.to_le_bytes())
}

/// Reads a number that [`write_number`] has written.
pub(super) fn read_number(from: &mut impl Read) -> io::Result<i64> {
    let mut number = [0; 8];
    from.read_exact(&mut number)?;
    Ok(i64::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of 3,000 records of 500 keys, with a budget.
    fn table(budget: usize) -> (Vec<PastKey>, KeyCount, usize) {
        let below = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(below.path(), 1).unwrap();
        let mut builder = TableBuilder::new(&scratch, budget);
        let mut most = 0;
        for revision in 1..=3_000_i64 {
            let key = format!("key-{:03}", revision * 7_919 % 500);
            let value = format!("{revision}-{}", "v".repeat(usize::try_from(revision % 97).unwrap()));
            let value = (revision % 5 != 0).then_some(value.as_bytes());
            builder.add(key.as_bytes(), value, (revision, revision % 3)).unwrap();
            most = most.max(builder.runs.len());
        }
        let table = builder.finish().unwrap();
        let files = std::fs::read_dir(std::fs::read_dir(below.path()).unwrap().next().unwrap().unwrap().path());
        assert_eq!(files.unwrap().count(), 1, "the runs are gone");
        (table.keys().unwrap().collect::<Result<_>>().unwrap(), table.count, most)
    }

    #[test]
    fn the_newest_record_of_each_key_in_the_order_of_the_keys() {
        let mut model = BTreeMap::new();
        for revision in 1..=3_000_i64 {
            model.insert(format!("key-{:03}", revision * 7_919 % 500), revision);
        }
        model.retain(|_, revision| *revision % 5 != 0);
        let (whole, count, most) = table(usize::MAX);
        let found: Vec<(String, i64)> =
            whole.iter().map(|key| (String::from_utf8(key.key.clone()).unwrap(), key.revision)).collect();
        assert_eq!(found, model.into_iter().collect::<Vec<_>>());
        assert!(whole.iter().all(|key| key.value.starts_with(key.revision.to_string().as_bytes())));
        assert!(whole.iter().all(|key| key.lease == key.revision % 3));
        assert_eq!((count.keys, most), (whole.len() as u64, 0));
        // So small that the runs are merged in between.
        let (spilled, spilled_count, most) = table(2_000);
        assert!(most >= MAX_RUNS - 1, "{most}");
        assert_eq!((spilled, spilled_count), (whole, count));
    }

    #[test]
    fn an_empty_point_has_no_keys_and_a_cut_file_is_an_error() {
        let below = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(below.path(), 1).unwrap();
        let table = TableBuilder::new(&scratch, 1).finish().unwrap();
        assert_eq!((table.keys().unwrap().count(), table.count.keys), (0, 0));
        let mut builder = TableBuilder::new(&scratch, usize::MAX);
        builder.made = 10;
        builder.add(b"a", Some(b"value"), (1, 0)).unwrap();
        let table = builder.finish().unwrap();
        let length = std::fs::metadata(&table.path).unwrap().len();
        File::options().write(true).open(&table.path).unwrap().set_len(length - 1).unwrap();
        assert!(table.keys().unwrap().next().unwrap().is_err());
    }
}
