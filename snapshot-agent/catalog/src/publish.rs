//! The last step of a save and of a copy: writes the manifest, which makes the data a snapshot.
//!
//! This file decides what follows from a failure. From here on the agent removes data only on proof: the store may have written
//! the manifest although its answer was lost, and then the data must stay.

use bytes::Bytes;
use holdfast_contract::ExitClass;
use holdfast_contract::error::{Error, Result};
use holdfast_io::interrupt::Interrupt;
use holdfast_layout::Key;
use holdfast_store::{Store, Upload};

/// Writes the manifest of this data, whose upload this run began, or an earlier one.
pub async fn run(
    store: &Store,
    upload: Option<&mut Upload>,
    data: &Key,
    manifest: Bytes,
    interrupt: &mut Interrupt,
) -> Result<()> {
    let key = data.folder().manifest();
    // A final error class proves that the manifest does not exist: after a lost answer `put_new` has read the object back.
    if let Err(error) = unless(store, interrupt, store.put_new(&key, manifest)).await {
        if let Some(upload) = upload {
            upload.unpublished(store, &key).await;
        }
        return Err(error.context("the manifest could not be written, and there is no snapshot without a manifest"));
    }
    // The intent or lease is no longer needed: beside a manifest no run removes data because of it.
    let report = async {
        if let Some(upload) = upload {
            upload.published().await;
        }
    };
    // A run that stood still past its time may have been cleaned up after meanwhile (I6).
    let (seen, ()) = tokio::join!(unless(store, interrupt, store.stat(data)), report);
    match seen {
        // Write-only credentials.
        Err(error) if error.class() != ExitClass::Denied => Err(unseen(error, interrupt.came())),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Interrupts `work` only on a bucket. Calls on a folder continue after they are dropped, and a manifest must not appear after
/// its data was removed.
async fn unless<T>(store: &Store, interrupt: &mut Interrupt, work: impl Future<Output = Result<T>>) -> Result<T> {
    match store {
        Store::Bucket(_) => interrupt.unless(work).await,
        Store::Folder(_) => work.await,
    }
}

/// Returns the reason for which the agent does not know whether manifest and data exist together.
fn unseen(error: Error, interrupted: bool) -> Error {
    let what = match error.class() {
        ExitClass::NotFound => "and its data is gone: another run has removed the data of this run",
        _ if interrupted => "and the agent was stopped before the check of its data",
        _ => "and its data could not be checked",
    };
    // Any other class would mean that nothing is published, and the snapshot may exist and be complete (I18).
    let error = match error.class() {
        ExitClass::NotFound | ExitClass::Transient | ExitClass::Deadline => error,
        _ => Error::transient(error.message()),
    };
    error.context(format!("the manifest is written, {what}"))
}

#[cfg(test)]
mod tests {
    use holdfast_contract::{Compression, StoreFlags};
    use holdfast_io::clock;
    use holdfast_layout::Folder;
    use holdfast_store::Plan;

    use super::*;

    #[tokio::test]
    async fn what_has_begun_in_a_folder_is_ended_however_late_it_is() {
        let mount = tempfile::tempdir().unwrap();
        let flags = StoreFlags { url: format!("file://{}", mount.path().display()), ..StoreFlags::default() };
        let store = Store::open(&flags).unwrap();
        let at = clock::now();
        for number in 0..50 {
            let folder = Folder::parse("key", &format!("shop/orders/1a2b3c4d/{number}")).unwrap();
            let data = folder.data(Compression::None);
            let plan = Plan { estimate: 1, at, until: at, read_back: true, patient: false };
            let mut upload = store.begin(&data, plan).await.unwrap();
            upload.write(Bytes::from_static(b"data")).await.unwrap();
            upload.complete().await.unwrap();
            let mut over = Interrupt::after(0).unwrap();
            run(&store, Some(&mut upload), &data, Bytes::from_static(b"{}"), &mut over).await.unwrap();
            let left = std::fs::read_dir(mount.path().join(folder.to_string())).unwrap();
            let mut left: Vec<_> = left.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            left.sort();
            assert_eq!(left, ["manifest.json", "snapshot.db"]);
        }
    }

    #[test]
    fn what_is_told_of_data_that_was_not_seen_is_what_is_known() {
        let told = |error: Error, interrupted| unseen(error, interrupted).message().to_owned();
        assert!(told(Error::not_found("no such key"), false).contains("is gone"));
        assert!(told(Error::transient("stopped by SIGTERM"), true).contains("was stopped before the check"));
        assert!(told(Error::transient("503"), false).contains("could not be checked"));
        for class in ExitClass::ALL {
            let final_still = unseen(Error::new(class, "no"), false).class() != ExitClass::Transient;
            assert_eq!(final_still, matches!(class, ExitClass::NotFound | ExitClass::Deadline), "{class:?}");
        }
    }
}
