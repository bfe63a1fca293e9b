//! Facts about this process and its machine: a random UID, the peak memory, the paths of programs.

use std::ffi::OsStr;
use std::path::PathBuf;

use holdfast_contract::error::{Result, io_error};

/// Returns a text as unique as a Pod's UID, for runs outside Kubernetes.
pub fn random_uid() -> Result<String> {
    let uid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(io_error("making a random UID"))?;
    Ok(uid.trim().to_owned())
}

/// Returns the peak memory of this process (proc(5): `VmHWM`, in KiB).
pub fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix("kB")?;
    Some(kib.trim().parse::<u64>().ok()? << 10)
}

/// Asks a child to end (SIGTERM). Only for a child that the caller has not waited for: after that its ID may be another process's.
pub fn terminate(child: u32) -> Result<()> {
    let asking = "ending a program";
    let pid = i32::try_from(child).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| io_error(asking)(std::io::ErrorKind::InvalidInput.into()))?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).map_err(|error| io_error(asking)(error.into()))
}

/// Folder of the programs in etcd's own image.
pub const IMAGES_BIN: &str = "/usr/local/bin";

/// Finds a program in PATH, or in the folder of etcd's own image.
pub fn find_program(name: &str) -> Option<PathBuf> {
    in_folders(&std::env::var_os("PATH").unwrap_or_default(), name)
}

/// Finds a program in these folders, or in the folder of etcd's own image.
pub fn in_folders(path: &OsStr, name: &str) -> Option<PathBuf> {
    let folders = std::env::split_paths(path).chain([PathBuf::from(IMAGES_BIN)]);
    folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)).find(|program| program.is_file())
}
