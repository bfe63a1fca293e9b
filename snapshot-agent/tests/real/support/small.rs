//! File systems with little space.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A small file system in memory, unmounted with the test.
pub(crate) struct Small(TempDir);

impl Small {
    pub(crate) fn of(size: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(folder.path());
        assert!(mount.status().is_ok_and(|status| status.success()), "these tests run as root, as the testbed does");
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Resizes the file system.
    pub(crate) fn grow(&self, size: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={size}")]).arg(self.0.path());
        assert!(mount.status().unwrap().success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}
