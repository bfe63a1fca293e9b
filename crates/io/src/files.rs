//! Writes files atomically: to a temporary name, then sync, rename, and sync of the folder.
//!
//! A rename alone is neither durable nor ordered after the file's content: after a power failure an empty file may have the
//! final name. This file does not know the files' content.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use holdfast_contract::error::{Result, io_error};

/// Writes a whole file under this name, replaces an existing file, and returns when the new file survives a power failure.
pub fn put(path: &Path, mode: u32, content: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    let doing = format!("writing {}", path.display());
    let put = || -> io::Result<()> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = folder_of(path);
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(".new");
        let beside = folder.join(beside);
        // A leftover of a run that died halfway, known by its name.
        ignore_missing(fs::remove_file(&beside))?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        content(&mut file)?;
        file.flush()?;
        // The umask limits the mode given to open.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        drop(file);
        fs::rename(&beside, path)?;
        sync_folder(folder)
    };
    put().map_err(io_error(doing))
}

/// Ignores a missing file in a removal or a rename.
pub fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Returns the folder of a path.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// Returns the bytes that a user other than root may still write.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Makes the names in a folder survive a power failure.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes every file below a folder, and the folder itself, survive a power failure.
pub fn sync_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            File::open(entry.path())?.sync_all()?;
        }
    }
    sync_folder(folder)
}

/// Returns the names in a folder, sorted, without those of the file system itself. `None`: the folder does not exist.
pub fn names(folder: &Path) -> io::Result<Option<Vec<String>>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name != LOST_AND_FOUND);
    names.sort_unstable();
    Ok(Some(names))
}

/// mkfs creates this folder on every ext4 volume; it is not data.
pub const LOST_AND_FOUND: &str = "lost+found";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_put_whole_over_an_old_one_and_over_a_leftover() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "old").unwrap();
        fs::write(folder.path().join(".f.new"), "half").unwrap();
        put(&path, 0o640, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()).unwrap().unwrap(), ["f"]);
    }

    #[test]
    fn a_failed_put_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "old").unwrap();
        put(&path, 0o640, |_| Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }
}
