//! Stored snapshots for the tests of catalog and verbs.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

#[path = "../../../crates/layout/src/manifest/sample.rs"]
mod json;

pub(crate) use json::{DATA, but, manifest};

/// Writes a complete snapshot below a store's root, with this manifest, which may name another key. Returns its folder.
pub(crate) fn put(store: &Path, key: &str, manifest: &Value) -> PathBuf {
    let folder = store.join(key);
    fs::create_dir_all(&folder).expect("the snapshot's folder");
    fs::write(folder.join("snapshot.db.zst"), DATA).expect("the snapshot's data");
    fs::write(folder.join("manifest.json"), manifest.to_string()).expect("the snapshot's manifest");
    folder
}
