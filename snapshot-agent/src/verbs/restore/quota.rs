//! Checks whether etcd would accept writes after the restore.
//!
//! This file decides which size counts: the size of the file that etcd opens, up to bbolt's high-water mark. etcd compares only
//! this size with its quota, however many of the pages are free (etcd: `BackendQuota.Available`, `backend.Size`). A snapshot
//! ends at that mark (bbolt: `Tx.WriteTo`), etcdutl copies page by page, a graft adds pages, and only a defragmentation lowers
//! the mark. So the restored file is never smaller, and the check can come before the restore.

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
        }
    }
}
