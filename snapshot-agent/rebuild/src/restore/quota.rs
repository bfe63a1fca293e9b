//! Checks whether etcd would accept writes after the restore.
//!
//! This file decides which size counts: the size of the file that etcd opens, up to bbolt's high-water mark. etcd compares only
//! this size with its quota, however many of the pages are free (etcd: `BackendQuota.Available`, `backend.Size`). A snapshot
//! ends at that mark (bbolt: `Tx.WriteTo`), etcdutl copies page by page, a graft adds pages, and only a defragmentation lowers
//! the mark. So the restored file is never smaller, and the check can come before the restore. A merge with a log writes another
//! file: its size is known before it is written (`crates/bbolt/src/merge/survey.rs`).

use holdfast_contract::RestoreRequest;
use holdfast_contract::error::{Error, Result};

/// Refuses a database whose first write etcd would refuse. `used`: its bytes up to the high-water mark.
pub(super) fn check(request: &RestoreRequest, used: u64) -> Result<()> {
    match quota_of(request) {
        Some(quota) if used >= quota => Err(refusal(&format!("has {used} bytes"), quota)),
        // Below the quota the outcome is open: a small write may fit.
        Some(_) | None => Ok(()),
    }
}

/// Joins the judgements of the quota and of the volume's space to one refusal with all numbers.
pub(super) fn check_beside(quota: Result<()>, room: Result<()>) -> Result<()> {
    match (quota, room) {
        (Err(quota), Err(room)) => Err(Error::config(format!("{}; {}", quota.message(), room.message()))),
        (quota, room) => quota.and(room),
    }
}

/// Refuses a merged database that the cluster of its snapshots could not restore.
pub(super) fn check_merged(quota: Option<u64>, used: u64) -> Result<()> {
    match quota.filter(|quota| *quota != 0) {
        Some(quota) if used >= quota => Err(Error::config(format!(
            "the merged database has at least {used} bytes and the quota of the cluster's etcd is {quota}: the cluster could \
             not restore it, so nothing was published. Save a full snapshot (kubectl holdfast schedule run, by hand: \
             `holdfast agent save`), or set a larger spec.storage.size or spec.options.quotaBackendBytes (by hand: \
             --quota-backend-bytes)"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Returns the longest file whose database may be below the quota, and the refusal of a longer file. bbolt grows its file by 16
/// MiB at a time (bbolt: `DB.AllocSize`), so a member's own file is longer than its used part.
pub(super) fn longest(request: &RestoreRequest) -> Option<(u64, Error)> {
    let quota = quota_of(request)?;
    let longest = quota.saturating_add(GROWTH);
    Some((longest, refusal(&format!("has more than {longest} bytes"), quota)))
}

/// More than the unused end of bbolt's file.
const GROWTH: u64 = 64 << 20;

/// Returns the quota. 0 means etcd's own default, which the agent does not know.
fn quota_of(request: &RestoreRequest) -> Option<u64> {
    request.quota_backend_bytes.filter(|quota| *quota != 0)
}

fn refusal(has: &str, quota: u64) -> Error {
    Error::config(format!(
        "the database {has} and etcd's quota is {quota}: etcd would refuse every write. Restore into a cluster with a \
         larger spec.storage.size (the quota is half of the size above 1 GiB), or with a larger \
         spec.options.quotaBackendBytes (by hand: --quota-backend-bytes)"
    ))
}

#[cfg(test)]
mod tests {
    use holdfast_contract::ExitClass;

    use super::*;

    #[test]
    fn a_database_has_to_leave_something_of_its_quota() {
        let with = |quota_backend_bytes, used| {
            check(&RestoreRequest { quota_backend_bytes, ..RestoreRequest::default() }, used)
        };
        for used in [4096, 4097, u64::MAX] {
            let error = with(Some(4096), used).unwrap_err();
            assert_eq!(error.class(), ExitClass::Config);
            for part in [&used.to_string(), "4096", "spec.storage.size", "spec.options.quotaBackendBytes"] {
                assert!(error.message().contains(part), "no {part:?} in {error}");
            }
        }
        assert_eq!(with(Some(4096), 4095), Ok(()));
        for by_hand in [None, Some(0)] {
            assert_eq!(with(by_hand, u64::MAX), Ok(()));
            assert_eq!(check_merged(by_hand, u64::MAX), Ok(()));
        }
        let error = check_merged(Some(4096), 4097).unwrap_err();
        assert_eq!(error.class(), ExitClass::Config);
        for part in ["4097", "4096", "nothing was published", "spec.storage.size", "--quota-backend-bytes"] {
            assert!(error.message().contains(part), "no {part:?} in {error}");
        }
    }

    #[test]
    fn one_refusal_names_the_numbers_of_the_quota_and_of_the_volume() {
        let (quota, room) = (Err(Error::config("quota 7 of 5")), Err(Error::full("room 9 of 8")));
        let both = check_beside(quota.clone(), room.clone()).unwrap_err();
        assert_eq!((both.class(), both.message()), (ExitClass::Config, "quota 7 of 5; room 9 of 8"));
        assert_eq!(check_beside(quota.clone(), Ok(())), quota);
        assert_eq!(check_beside(Ok(()), room.clone()), room);
        assert_eq!(check_beside(Ok(()), Ok(())), Ok(()));
    }
}
