//! The audit log of the testbed's API server.
//!
//! The API server begins another file at 50 MiB and keeps three old ones, so a story reads them all: its own requests may be in two.

use std::path::Path;

use anyhow::{Context, Result};

/// Returns the log, oldest request first; `None` on a cluster that is not the testbed.
pub fn read() -> Result<Option<String>> {
    let Some(newest) = std::env::var_os("HOLDFAST_TESTBED_AUDIT") else { return Ok(None) };
    let newest = Path::new(&newest);
    let stem = newest.file_stem().and_then(|stem| stem.to_str()).context("the name of the audit log")?;
    let folder = newest.parent().context("the folder of the audit log")?;
    let mut files = vec![];
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(&format!("{stem}-")) {
            files.push(path);
        }
    }
    // The time of the rotation is in the name.
    files.sort();
    files.push(newest.to_owned());
    let mut log = String::new();
    for file in files {
        // A file may be rotated away meanwhile.
        match std::fs::read_to_string(&file) {
            Ok(text) => log.push_str(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| file.display().to_string()),
        }
    }
    Ok(Some(log))
}
