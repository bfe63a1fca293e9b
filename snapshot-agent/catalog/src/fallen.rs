//! Two snapshots of one etcd that contradict each other: revisions never fall.
//!
//! Decides from the times of the saves and their revisions. The callers say which snapshots are of one etcd, and what follows.

use jiff::Timestamp;

/// Times and revision of a save.
#[derive(Clone, Copy)]
pub struct Saved {
    /// When the save began.
    pub began: Timestamp,
    /// When the save ended.
    pub ended: Timestamp,
    /// The revision of the snapshot.
    pub revision: Option<i64>,
}

/// Returns one of the later snapshots, and a snapshot that ended before its beginning and has a higher revision.
pub fn find_fallen<'a, T>(
    later: impl IntoIterator<Item = &'a T>,
    all: &[&'a T],
    of: impl Fn(&T) -> Saved,
) -> Option<(&'a T, &'a T)> {
    let fell =
        |late: &Saved, one: &Saved| late.revision.is_some() && one.ended <= late.began && one.revision > late.revision;
    later.into_iter().find_map(|later| {
        let late = of(later);
        all.iter().find(|one| fell(&late, &of(one))).map(|higher| (later, *higher))
    })
}
