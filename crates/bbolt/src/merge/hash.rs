//! HashKV of a base and a log at a revision, from their records: a merge beyond a later compaction no longer holds all of them.
//!
//! This file decides which records count, after a survey for HashKV. The rule is that of `scan/hashkv.rs`.

use crc_fast::{CrcAlgorithm, Digest};
use holdfast_segment::Record;

use super::order::{Order, Taken};
use super::{Kept, MergeError, Opened, open};
use crate::graft::read::{Database, bucket};
use crate::graft::{KEY, Unfit};
use crate::scan::ReadAt;
use crate::scan::records::Rev;

/// A hash that takes records.
#[derive(Debug)]
pub struct LogHash<R> {
    base: Database<R>,
    /// Value of the base's bucket `key`.
    key: Vec<u8>,
    order: Order,
    kept: Option<Kept>,
    digest: Digest,
}

impl<R: ReadAt> LogHash<R> {
    /// Begins with the records of a base of this size. `kept`: of the survey for HashKV at this revision.
    pub fn begin(base: R, bytes: u64, revision: i64, kept: Option<Kept>) -> Result<Self, MergeError> {
        let Opened { base, buckets, newest, .. } = open(base, bytes, revision)?;
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(KEY);
        let key = bucket(&buckets, KEY)?.to_vec();
        let mut hash = Self { base, key, order: Order::after(newest, revision), kept, digest };
        let Self { base, key, kept, digest, .. } = &mut hash;
        base.each(key, |key, value| {
            let rev = Rev::parse(key).ok_or_else(|| Unfit::new("a revision of the bucket `key` cannot be read"))?;
            if kept.as_mut().is_none_or(|kept| kept.stays(rev.main)) {
                digest.update(key);
                digest.update(value);
            }
            Ok::<_, MergeError>(())
        })?;
        Ok(hash)
    }

    /// Takes the next record of the log.
    pub fn add(&mut self, record: &Record<'_>) -> Result<(), MergeError> {
        let Record { main, sub, tombstone, value } = *record;
        if let Taken::Next(_) = self.order.take(record)?
            && self.kept.as_mut().is_none_or(|kept| kept.stays(main))
        {
            self.digest.update(Rev { main, sub, tombstone }.key().bytes());
            self.digest.update(value);
        }
        Ok(())
    }

    /// Ends a segment of the log.
    pub fn end_segment(&mut self) {
        self.order.end_segment();
    }

    /// Returns the hash after the last record.
    pub fn finish(self) -> Result<u32, MergeError> {
        self.order.check_end()?;
        // The algorithm has 32 bits.
        Ok(u32::try_from(self.digest.finalize()).unwrap_or_default())
    }
}
