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
    // 0 is etcd's word for its own default, which is etcd's to know.
    let Some(quota) = request.quota_backend_bytes.filter(|quota| *quota != 0) else { return Ok(()) };
    // Of what is below it nothing is certain: a small write may fit.
    if used < quota {
        return Ok(());
    }
    Err(Error::config(format!(
        "the database has {used} bytes and etcd's quota is {quota}: etcd would refuse every write. Restore into a \
         cluster with a larger spec.storage.size (the quota is half of the size above 1 GiB), or with a larger \
         spec.options.quotaBackendBytes (by hand: --quota-backend-bytes)"
    )))
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
