//! The differences between a point and a live etcd: a join of two streams that are sorted by key, and their list on the disk.
//!
//! This file decides which keys are missing, changed and added, and which live keys contradict one history. Values are compared, not
//! revisions alone: a key that was put back is no difference any more. `undelete.rs` decides what goes back.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;

use holdfast_contract::error::{Error, Result, io_error};
use holdfast_etcd::keys::LiveKey;
use holdfast_io::scratch::Scratch;
use holdfast_io::table::printable;
use serde::Serialize;

use super::table::{PastKey, read_bytes, read_number, write_bytes, write_number};

const WRITING: &str = "writing the list of differences in --scratch";
const READING: &str = "reading the list of differences in --scratch";

/// Sort of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Sort {
    /// The live etcd lacks the key.
    Missing,
    /// The live etcd has another value.
    Changed,
    /// The point lacks the key.
    Added,
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Sort.
    pub difference: Sort,
    /// The key; bytes that are no text are written as `\xNN`.
    #[serde(serialize_with = "as_text")]
    pub key: Vec<u8>,
    /// Bytes of key and value at the point; 0: the point lacks the key.
    pub point_bytes: u64,
    /// Bytes of key and value in the live etcd; 0: it lacks the key.
    pub live_bytes: u64,
    /// Revision of the last write at the point; 0: the point lacks the key.
    pub point_revision: i64,
    /// Revision of the last write in the live etcd; 0: it lacks the key.
    pub live_revision: i64,
    /// ID (hex) of the lease at the point; absent: none.
    #[serde(skip_serializing_if = "is_none", serialize_with = "as_hex")]
    pub lease: i64,
}

fn as_text<S: serde::Serializer>(key: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&printable(key))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn as_hex<S: serde::Serializer>(lease: &i64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format!("{lease:x}"))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_none(lease: &i64) -> bool {
    *lease == 0
}

/// Joins the keys of a point with live keys, both in their order.
pub(super) struct Join<P: Iterator<Item = Result<PastKey>>> {
    past: std::iter::Peekable<P>,
    /// Revision of the point, if both have to be one history.
    one_history: Option<i64>,
}

impl<P: Iterator<Item = Result<PastKey>>> Join<P> {
    /// `one_history`: revision of the point, if the live etcd has to be its later state.
    pub(super) fn new(past: P, one_history: Option<i64>) -> Self {
        Self { past: past.peekable(), one_history }
    }

    /// Takes the next live key.
    pub(super) fn live(&mut self, live: &LiveKey, mut found: impl FnMut(&Difference) -> Result<()>) -> Result<()> {
        while let Some(past) = self.next_if(|past| past.key < live.key)? {
            found(&missing(past))?;
        }
        let past = self.next_if(|past| past.key == live.key)?;
        self.check_history(past.as_ref(), live)?;
        match past {
            None => found(&difference(Sort::Added, None, Some(live))),
            Some(past) if past.value != live.value => found(&difference(Sort::Changed, Some(past), Some(live))),
            Some(_) => Ok(()),
        }
    }

    /// Ends the join after the last live key.
    pub(super) fn finish(mut self, mut found: impl FnMut(&Difference) -> Result<()>) -> Result<()> {
        while let Some(past) = self.next_if(|_| true)? {
            found(&missing(past))?;
        }
        Ok(())
    }

    fn next_if(&mut self, fits: impl FnOnce(&PastKey) -> bool) -> Result<Option<PastKey>> {
        match self.past.next_if(|past| past.as_ref().map_or(true, fits)) {
            Some(past) => past.map(Some),
            None => Ok(None),
        }
    }

    /// Refuses a live key that was last written at or before the point, and that the point has otherwise: within one history the
    /// point has this write.
    fn check_history(&self, past: Option<&PastKey>, live: &LiveKey) -> Result<()> {
        let is_later = |point: i64| live.mod_revision > point;
        let is_same = past.is_some_and(|past| past.revision == live.mod_revision && past.value == live.value);
        if self.one_history.is_none_or(is_later) || is_same {
            return Ok(());
        }
        Err(Error::unclear(format!(
            "the point and the live etcd have two histories: {} was last written at revision {}, and the point has not this write. etcd \
             was restored in place, or lost writes. To compare all the same, give --from-another-cluster",
            printable(&live.key),
            live.mod_revision
        )))
    }
}

fn missing(past: PastKey) -> Difference {
    difference(Sort::Missing, Some(past), None)
}

fn difference(difference: Sort, past: Option<PastKey>, live: Option<&LiveKey>) -> Difference {
    let bytes = |key: &[u8], value: &[u8]| (key.len() + value.len()) as u64;
    Difference {
        difference,
        point_bytes: past.as_ref().map_or(0, |past| bytes(&past.key, &past.value)),
        live_bytes: live.map_or(0, |live| bytes(&live.key, &live.value)),
        point_revision: past.as_ref().map_or(0, |past| past.revision),
        live_revision: live.map_or(0, |live| live.mod_revision),
        lease: past.as_ref().map_or(0, |past| past.lease),
        key: past.map_or_else(|| live.map(|live| live.key.clone()).unwrap_or_default(), |past| past.key),
    }
}

/// The differences in a file, in the order of their keys. Removed with the scratch folder.
#[derive(Debug)]
pub struct Differences {
    path: PathBuf,
    /// Keeps the folder.
    _scratch: Scratch,
}

/// Writes the list.
pub(super) struct Writer {
    path: PathBuf,
    to: BufWriter<File>,
}

impl Writer {
    pub(super) fn new(scratch: &Scratch, name: &str) -> Result<Self> {
        let (path, file) = scratch.file(name)?;
        Ok(Self { path, to: BufWriter::new(file) })
    }

    pub(super) fn add(&mut self, difference: &Difference) -> Result<()> {
        write(&mut self.to, difference).map_err(io_error(WRITING))
    }

    pub(super) fn finish(mut self) -> Result<PathBuf> {
        self.to.flush().map_err(io_error(WRITING))?;
        Ok(self.path)
    }
}

impl Differences {
    pub(super) const fn new(path: PathBuf, scratch: Scratch) -> Self {
        Self { path, _scratch: scratch }
    }

    /// Reads the differences in the order of their keys.
    pub fn read(&self) -> Result<impl Iterator<Item = Result<Difference>> + Send + use<>> {
        let mut from = BufReader::new(File::open(&self.path).map_err(io_error(READING))?);
        Ok(std::iter::from_fn(move || read(&mut from).map_err(io_error(READING)).transpose()))
    }
}

fn write(to: &mut impl Write, found: &Difference) -> io::Result<()> {
    let Difference { difference, key, point_bytes, live_bytes, point_revision, live_revision, lease } = found;
    to.write_all(&[match difference {
        Sort::Missing => 0,
        Sort::Changed => 1,
        Sort::Added => 2,
    }])?;
    write_bytes(to, key)?;
    for number in [point_bytes.cast_signed(), live_bytes.cast_signed(), *point_revision, *live_revision, *lease] {
        write_number(to, number)?;
    }
    Ok(())
}

fn read(from: &mut impl BufRead) -> io::Result<Option<Difference>> {
    if from.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut sort = [0];
    from.read_exact(&mut sort)?;
    let difference = match sort {
        [0] => Sort::Missing,
        [1] => Sort::Changed,
        [2] => Sort::Added,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let key = read_bytes(from)?;
    let [point_bytes, live_bytes] = [read_number(from)?, read_number(from)?].map(i64::cast_unsigned);
    let [point_revision, live_revision, lease] = [read_number(from)?, read_number(from)?, read_number(from)?];
    Ok(Some(Difference { difference, key, point_bytes, live_bytes, point_revision, live_revision, lease }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(key: &str, value: &str, revision: i64) -> PastKey {
        PastKey { key: key.into(), value: value.into(), revision, lease: i64::from(key == "leased") * 7 }
    }

    fn live(key: &str, value: &str, mod_revision: i64) -> LiveKey {
        LiveKey { key: key.into(), value: value.into(), mod_revision }
    }

    fn join(point: &[PastKey], keys: &[LiveKey], one_history: Option<i64>) -> Result<Vec<Difference>> {
        let mut found = vec![];
        let mut join = Join::new(point.iter().cloned().map(Ok), one_history);
        let mut add = |difference: &Difference| {
            found.push(difference.clone());
            Ok(())
        };
        keys.iter().try_for_each(|key| join.live(key, &mut add))?;
        join.finish(&mut add)?;
        Ok(found)
    }

    fn names(found: &[Difference]) -> Vec<(Sort, String)> {
        found.iter().map(|it| (it.difference, String::from_utf8(it.key.clone()).unwrap())).collect()
    }

    #[test]
    fn a_key_is_missing_changed_added_or_equal() {
        let point = [past("a", "1", 2), past("c", "1", 3), past("d", "1", 4), past("leased", "1", 5)];
        let keys = [live("b", "1", 11), live("c", "2", 12), live("d", "1", 13), live("e", "1", 14)];
        let found = join(&point, &keys, Some(10)).unwrap();
        let expected = [
            (Sort::Missing, "a"),
            (Sort::Added, "b"),
            (Sort::Changed, "c"),
            (Sort::Added, "e"),
            (Sort::Missing, "leased"),
        ];
        assert_eq!(names(&found), expected.map(|(sort, key)| (sort, key.to_owned())));
        let [_, added, changed, _, leased] = &found[..] else { panic!() };
        assert_eq!((added.point_bytes, added.live_bytes, added.point_revision, added.live_revision), (0, 2, 0, 11));
        assert_eq!((changed.point_revision, changed.live_revision, leased.lease), (3, 12, 7));
        assert_eq!(names(&join(&point, &[], Some(10)).unwrap()).len(), 4, "an empty etcd lacks all");
        assert_eq!(names(&join(&[], &keys, Some(10)).unwrap()).len(), 4, "an empty point has none");
    }

    #[test]
    fn a_write_before_the_point_that_the_point_lacks_is_another_history() {
        let point = [past("a", "1", 2)];
        assert_eq!(join(&point, &[live("a", "1", 2)], Some(10)).unwrap(), []);
        for other in [live("a", "1", 3), live("a", "2", 2), live("b", "1", 10)] {
            let error = join(&point, std::slice::from_ref(&other), Some(10)).unwrap_err();
            assert!(error.message().contains("--from-another-cluster"), "{error}");
            join(&point, &[other], None).unwrap();
        }
        assert_eq!(join(&point, &[live("a", "1", 11)], Some(10)).unwrap(), [], "written again with the same value");
    }

    #[test]
    fn an_error_of_the_table_ends_the_join() {
        let mut join = Join::new([Err(Error::full("disk"))].into_iter(), None);
        assert!(join.live(&live("a", "1", 1), |_| Ok(())).is_err());
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let below = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(below.path(), 1).unwrap();
        let mut writer = Writer::new(&scratch, "differences").unwrap();
        let found = join(&[past("leased", "1", 2), past("z\u{7f}", "x", 3)], &[live("b", "1", 11)], None).unwrap();
        for difference in &found {
            writer.add(difference).unwrap();
        }
        let list = Differences::new(writer.finish().unwrap(), scratch);
        assert_eq!(list.read().unwrap().collect::<Result<Vec<_>>>().unwrap(), found);
        let json = serde_json::to_string(&found[1]).unwrap();
        assert!(json.contains(r#""difference":"missing","key":"leased""#) && json.contains(r#""lease":"7""#), "{json}");
        assert!(serde_json::to_string(&found[2]).unwrap().contains(r#""key":"z\\x7f""#));
    }
}
