//! Whether etcd would take a write into what is restored.
//!
//! It decides which size counts: that of the file which etcd will open, up to bbolt's high-water mark. etcd compares
//! nothing else with its quota, however many of these pages are free (etcd: `BackendQuota.Available`, `backend.Size`). A
//! snapshot ends at that mark (bbolt: `Tx.WriteTo`), etcdutl copies it page by page, a graft adds to it, and only a
//! defragmentation takes it back. So what is restored is never smaller, and this is known before anything is made of it.

use crate::contract::RestoreRequest;
use crate::error::{Error, Result};

/// Refuses a database whose first write would be refused. `used`: its bytes up to the high-water mark.
pub(super) fn check(request: &RestoreRequest, used: u64) -> Result<()> {
    match quota_of(request) {
        Some(quota) if used >= quota => Err(refusal(&format!("has {used} bytes"), quota)),
        // Of what is below it nothing is certain: a small write may fit.
        Some(_) | None => Ok(()),
    }
}

/// The longest file whose database may be below the quota, and the refusal of a longer one: bbolt makes its file longer by
/// 16 MiB at a time (bbolt: `DB.AllocSize`), so a member's own one is longer than what is in use of it.
pub(super) fn longest(request: &RestoreRequest) -> Option<(u64, Error)> {
    let quota = quota_of(request)?;
    let longest = quota.saturating_add(GROWTH);
    Some((longest, refusal(&format!("has more than {longest} bytes"), quota)))
}

/// More than bbolt's file is ahead of what is in use of it.
const GROWTH: u64 = 64 << 20;

/// 0 is etcd's word for its own default, which is etcd's to know.
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
    use super::*;
    use crate::contract::ExitClass;

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
