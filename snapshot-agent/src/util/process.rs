//! What a process knows of itself and of its machine: a random UID, its peak memory.

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
