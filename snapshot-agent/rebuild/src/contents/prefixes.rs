//! Groups keys by prefix, with their number and size.
//!
//! This file decides where a prefix ends: after the requested number of separators, counted from the end of the common prefix;
//! a separator directly there does not count. A key with fewer separators is grouped with its neighbours.

use std::collections::HashMap;

use holdfast_contract::ContentsRequest;
use holdfast_contract::error::{Error, Result};
use holdfast_io::table::printable;
use serde::Serialize;

/// More prefixes than a reader needs; they take about 100 MiB with their names.
const MAX_PREFIXES: usize = 500_000;

/// Maximum bytes of all prefixes. Usual prefixes have some tens of bytes; those of a crafted file may have a megabyte (I24).
const MAX_BYTES: usize = 64 << 20;

/// Number and size of the keys below a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prefix {
    /// The prefix. Other bytes than text are written as `\xNN`.
    pub prefix: String,
    /// Number of existing keys.
    pub keys: u64,
    /// Bytes of these keys and their values.
    pub bytes: u64,
    /// Number of records: every stored revision, tombstones included.
    pub records: u64,
    /// Bytes of the keys and values of all these records.
    pub record_bytes: u64,
}

impl Prefix {
    fn record(&mut self, bytes: u64) {
        self.records += 1;
        self.record_bytes += bytes;
    }

    fn live(&mut self, bytes: u64) {
        self.keys += 1;
        self.bytes += bytes;
    }
}

/// Counts records and keys as they are read.
pub(super) struct Prefixes<'a> {
    common: &'a [u8],
    separator: &'a [u8],
    depth: usize,
    total: Prefix,
    found: HashMap<Vec<u8>, Prefix>,
    /// Bytes of the found prefixes.
    bytes: usize,
    too_many: bool,
}

impl<'a> Prefixes<'a> {
    pub(super) fn from_request(request: &'a ContentsRequest) -> Result<Self> {
        if request.separator.is_empty() {
            return Err(Error::config(
                "--separator is empty. Give the text that separates the parts of a key, for example /",
            ));
        }
        Ok(Self {
            common: request.prefix.as_bytes(),
            separator: request.separator.as_bytes(),
            depth: usize::try_from(request.depth).unwrap_or(usize::MAX),
            total: Prefix { prefix: printable(request.prefix.as_bytes()), ..Prefix::default() },
            found: HashMap::new(),
            bytes: 0,
            too_many: false,
        })
    }

    /// Counts a record below the common prefix. Records of a revision bump have no key and do not count.
    pub(super) fn record(&mut self, key: &[u8], value: &[u8]) {
        self.count(key, value, Prefix::record);
    }

    /// Counts an existing key. Returns whether the key is below the common prefix.
    pub(super) fn live(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.count(key, value, Prefix::live)
    }

    fn count(&mut self, key: &[u8], value: &[u8], count: impl Fn(&mut Prefix, u64)) -> bool {
        let Some(rest) = key.strip_prefix(self.common).filter(|_| !key.is_empty()) else { return false };
        let bytes = (key.len() as u64).saturating_add(value.len() as u64);
        count(&mut self.total, bytes);
        let end = self.common.len() + self.end(rest);
        let prefix = key.get(..end).unwrap_or_default();
        if let Some(found) = self.found.get_mut(prefix) {
            count(found, bytes);
        } else if self.found.len() == MAX_PREFIXES || self.bytes + prefix.len() > MAX_BYTES {
            self.too_many = true;
        } else {
            self.bytes += prefix.len();
            count(self.found.entry(prefix.to_vec()).or_default(), bytes);
        }
        true
    }

    /// Returns the bytes after the common prefix that belong to the key's prefix.
    fn end(&self, rest: &[u8]) -> usize {
        let step = self.separator.len();
        // A separator at the start separates nothing.
        let (mut end, mut depth) = if rest.starts_with(self.separator) { (step, 0) } else { (0, 0) };
        while depth < self.depth {
            let from = rest.get(end..).unwrap_or_default();
            let Some(at) = from.windows(step).position(|bytes| bytes == self.separator) else { break };
            end += at + step;
            depth += 1;
        }
        end
    }

    /// Returns the sum, the largest prefixes, and the number of the others.
    pub(super) fn finish(self, top: usize) -> Result<(Prefix, Vec<Prefix>, usize)> {
        if self.too_many {
            return Err(Error::config(format!(
                "this depth has more than {MAX_PREFIXES} prefixes, or {} MiB of prefixes. Choose a smaller --depth, or \
                 a --prefix",
                MAX_BYTES >> 20
            )));
        }
        let mut found: Vec<(Vec<u8>, Prefix)> = self.found.into_iter().collect();
        found
            .sort_by(|(a, x), (b, y)| (y.bytes, y.record_bytes).cmp(&(x.bytes, x.record_bytes)).then_with(|| a.cmp(b)));
        let more = found.len().saturating_sub(top);
        found.truncate(top);
        let shown = found.into_iter().map(|(key, prefix)| Prefix { prefix: printable(&key), ..prefix });
        Ok((self.total, shown.collect(), more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(prefix: &str, depth: u32, separator: &str, keys: &[&str]) -> Vec<(String, u64)> {
        let request = ContentsRequest {
            prefix: prefix.to_owned(),
            depth,
            separator: separator.to_owned(),
            ..ContentsRequest::default()
        };
        let mut prefixes = Prefixes::from_request(&request).unwrap();
        for key in keys {
            prefixes.record(key.as_bytes(), b"value");
            prefixes.live(key.as_bytes(), b"value");
        }
        let (total, found, more) = prefixes.finish(usize::MAX).unwrap();
        assert_eq!((total.keys, more), (found.iter().map(|p| p.keys).sum(), 0));
        let mut found: Vec<_> = found.into_iter().map(|p| (p.prefix, p.keys)).collect();
        found.sort();
        found
    }

    #[test]
    fn long_prefixes_are_too_many_sooner_than_short_ones() {
        let request = ContentsRequest { depth: 1, separator: "/".to_owned(), ..ContentsRequest::default() };
        let mut prefixes = Prefixes::from_request(&request).unwrap();
        for n in 0..65_u8 {
            let mut key = vec![b'a'; 1 << 20];
            key.extend([n + b'!' + 15, b'/']);
            assert!(prefixes.live(&key, b""));
        }
        assert!(prefixes.bytes <= MAX_BYTES && prefixes.too_many);
        let error = prefixes.finish(10).unwrap_err();
        assert!(error.message().contains("--depth") && error.message().contains("--prefix"), "{error}");
    }

    #[test]
    fn a_prefix_ends_behind_a_separator() {
        let registry =
            ["/registry/pods/a/x", "/registry/pods/a/y", "/registry/pods/b/x", "/registry/health", "flat", ""];
        let all = |pairs: &[(&str, u64)]| pairs.iter().map(|(p, n)| ((*p).to_owned(), *n)).collect::<Vec<_>>();
        assert_eq!(counted("", 1, "/", &registry), all(&[("", 1), ("/registry/", 4)]));
        assert_eq!(counted("", 2, "/", &registry), all(&[("", 1), ("/registry/", 1), ("/registry/pods/", 3)]));
        assert_eq!(
            counted("/registry/pods/", 1, "/", &registry),
            all(&[("/registry/pods/a/", 2), ("/registry/pods/b/", 1)])
        );
        assert_eq!(
            counted("/registry/pods", 1, "/", &registry),
            all(&[("/registry/pods/a/", 2), ("/registry/pods/b/", 1)])
        );
        assert_eq!(counted("", 0, "/", &registry), all(&[("", 1), ("/", 4)]));
        assert_eq!(counted("", 1, "::", &["a::b::c", "a::d", "a:x"]), all(&[("", 1), ("a::", 2)]));
        assert_eq!(counted("none", 1, "/", &registry), all(&[]));
    }

    #[test]
    fn the_largest_are_shown_and_the_others_counted() {
        let request = ContentsRequest { separator: "/".to_owned(), depth: 1, ..ContentsRequest::default() };
        let mut prefixes = Prefixes::from_request(&request).unwrap();
        prefixes.live(b"small/1", b"");
        prefixes.live(b"large/1", &[0; 100]);
        prefixes.record(b"old/1", &[0; 50]);
        let (total, found, more) = prefixes.finish(2).unwrap();
        let names: Vec<_> = found.iter().map(|p| p.prefix.as_str()).collect();
        assert_eq!((names, more), (vec!["large/", "small/"], 1));
        assert_eq!((total.keys, total.bytes, total.records, total.record_bytes), (2, 114, 1, 55));
    }

    #[test]
    fn what_is_no_text_is_written_so() {
        assert_eq!(printable(b"a\xff\x1b[2Jb"), "a\\xff\\x1b[2Jb");
        assert_eq!(printable("schlüssel".as_bytes()), "schlüssel");
    }

    #[test]
    fn an_empty_separator_is_refused() {
        let error = Prefixes::from_request(&ContentsRequest::default()).err().unwrap();
        assert!(error.message().contains("--separator"), "{error}");
    }
}
