//! What a process knows of itself and of its machine: a random UID, its peak memory, where programs are.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::error::{Result, io_error};

/// Something as unique as a Pod's UID, for runs outside of Kubernetes.
pub(crate) fn random_uid() -> Result<String> {
    let uid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(io_error("making a random UID"))?;
    Ok(uid.trim().to_owned())
}

/// The high-water mark of this process's memory (proc(5): `VmHWM`, in KiB).
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix("kB")?;
    Some(kib.trim().parse::<u64>().ok()? << 10)
}

/// Where etcd's own image has its programs.
pub(crate) const IMAGES_BIN: &str = "/usr/local/bin";

/// A program of this name in PATH, or where etcd's own image has it.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    in_folders(&std::env::var_os("PATH").unwrap_or_default(), name)
}

/// A program of this name in these folders, or where etcd's own image has it.
pub(crate) fn in_folders(path: &OsStr, name: &str) -> Option<PathBuf> {
    let folders = std::env::split_paths(path).chain([PathBuf::from(IMAGES_BIN)]);
    folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)).find(|program| program.is_file())
}
