//! File permissions of this process: files for the owner only, or for the owner and the group.
//!
//! This file decides with the umask, once and before the first writing thread, so that neither this process nor a program that
//! it starts creates files that every user of the host can read. Modes of existing files and folders stay.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use holdfast_contract::StoreFlags;
use rustix::fs::Mode;

/// Timeout: a network volume that is gone never answers. The store itself reports that later.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Whether the group may read new files of this store: by the flag, or because the group may write to the folder (as kubelet
/// sets up a volume for `fsGroup`). Otherwise Pods that share a volume could not read files that root writes there by hand.
pub fn is_shared(store: &StoreFlags) -> bool {
    let folder = store.url.strip_prefix("file://").map(PathBuf::from);
    let folder = store.mount.clone().or(folder).filter(|_| store.url.starts_with("file://"));
    store.group_access || folder.is_some_and(is_the_groups)
}

fn is_the_groups(folder: PathBuf) -> bool {
    const BY_GROUP: u32 = 0o2020;
    let (sender, mode) = mpsc::sync_channel(1);
    let asked = std::thread::Builder::new().spawn(move || {
        let _receiver_is_gone = sender.send(fs::metadata(folder).map(|about| about.mode()));
    });
    let mode = asked.ok().and_then(|_| mode.recv_timeout(ANSWERS_WITHIN).ok()?.ok());
    mode.is_some_and(|mode| mode & BY_GROUP == BY_GROUP || mode & 0o1022 == 0o020)
}

/// Makes new files 0600 and folders 0700, whatever the umask was; with the group 0660 and 0770.
pub fn make_private(for_group: bool) {
    let cut = if for_group { Mode::RWXO } else { Mode::RWXG | Mode::RWXO };
    let _before = rustix::process::umask(cut);
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_that_is_the_groups_to_write_is_shared() {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreFlags { url: format!("file://{}", folder.path().display()), ..StoreFlags::default() };
        for (mode, shared) in [(0o700, false), (0o755, false), (0o1777, false), (0o770, true), (0o2775, true)] {
            fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_shared(&store), shared, "{mode:o}");
        }
        let bucket = StoreFlags { url: "s3://bucket".to_owned(), mount: Some("/".into()), ..StoreFlags::default() };
        assert!(!is_shared(&bucket));
        assert!(is_shared(&StoreFlags { group_access: true, ..bucket }));
    }
}
