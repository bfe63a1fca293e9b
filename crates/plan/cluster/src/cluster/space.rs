//! Space of a member's database: its file, the pages in use, the quota, and the room of the volume.
//!
//! Decides how these facts are read, so that a defragmentation, the end of an alarm and a larger quota agree. Decides no act.

use super::{Answer, Member, Observed};
use holdfast_base::{Seen, valid, volumes};

/// Part of the quota in percent from which on a file is nearly full.
const NEARLY_FULL: u64 = 80;

/// Part of the quota in percent below which etcd has room for writes.
const HAS_ROOM: u64 = 90;

/// A member's database file.
pub(super) struct File {
    /// Bytes of the file. They count towards the quota, free pages too.
    pub bytes: u64,
    /// Bytes that the data need.
    pub used: u64,
    /// Quota in the member's spec.
    pub quota: u64,
    /// Whether the volume has room for the copy that a defragmentation writes.
    pub fits_copy: bool,
}

impl File {
    /// Reads the facts about the file of a member that has given this answer; `None` where no etcd could have given them.
    pub(super) fn read(seen: &Observed, member: &Member, answer: &Answer) -> Option<Self> {
        let server = valid::member(&member.object).ok()?;
        let bytes = u64::try_from(answer.db_bytes).ok()?;
        let used = u64::try_from(used(seen, answer)).ok()?.min(bytes);
        Some(Self { bytes, used, quota: server.quota, fits_copy: server.holds_copy(bytes, used) })
    }

    /// Bytes that a defragmentation gives back.
    pub(super) const fn free(&self) -> u64 {
        self.bytes - self.used
    }

    /// Whether at least this part of the file is free, in percent.
    pub(super) fn has_free(&self, percent: u64) -> bool {
        u128::from(self.free()) * 100 >= u128::from(percent) * u128::from(self.bytes.max(1))
    }

    /// Whether the file has used most of the quota.
    pub(super) fn is_nearly_full(&self) -> bool {
        u128::from(self.bytes) * 100 >= u128::from(NEARLY_FULL) * u128::from(self.quota)
    }

    /// Whether a defragmentation brings a file that is too large for writes below the limit: only there a `NOSPACE` alarm ends.
    pub(super) fn gets_room(&self) -> bool {
        !has_room(self.bytes, self.quota) && has_room(self.used, self.quota)
    }
}

/// Whether etcd has room for writes in a file of this size.
pub(super) fn has_room(bytes: u64, quota: u64) -> bool {
    u128::from(bytes) * 100 < u128::from(HAS_ROOM) * u128::from(quota)
}

/// Whether a member's file has room below the quota with which its etcd runs. An etcd with an earlier quota would raise the alarm
/// again.
pub(super) fn has_room_in_force(member: &Member, answer: &Answer) -> bool {
    let quota = member.live_pod().and_then(|pod| volumes::quota_in_force(pod, &member.object));
    let bytes = u64::try_from(answer.db_bytes).ok();
    bytes.zip(quota).is_some_and(|(bytes, quota)| has_room(bytes, quota))
}

/// Returns the bytes of a member's file that its data need: as many as on the member that uses the fewest. All members have the
/// same data, and etcd counts the pages that a compaction has freed only after the next two writes to the file.
pub(super) fn used(seen: &Observed, answer: &Answer) -> i64 {
    let others = seen.answers.values().filter_map(Seen::known).filter(|other| other.cluster_id == answer.cluster_id);
    others.map(|other| other.used_bytes).min().map_or(answer.used_bytes, |least| least.min(answer.used_bytes))
}
