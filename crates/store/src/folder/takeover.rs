//! Continues with data that a dead run has left without a manifest.
//!
//! This file decides the owner of the data meanwhile: a lease of this run keeps other runs from removing the data while this run
//! reads it back and publishes it. The caller verifies the data.

use std::io;

use cap_std::fs::{Dir, OpenOptions};
use holdfast_contract::error::Result;
use holdfast_io::files::ignore_missing;
use holdfast_layout::{Folder, Key};
use jiff::Timestamp;

use super::FolderStore;
use super::attempts::{is_lease, is_taken, lease_name, lives_until, names, over, taken_name};
use crate::busy_until;

/// A lease that replaces the lease of a dead run.
#[derive(Debug)]
pub struct Taken {
    store: FolderStore,
    attempt: Folder,
    leases: Leases,
}

#[derive(Debug)]
struct Leases {
    own: String,
    /// The lease of the dead run, if it wrote one.
    before: Option<String>,
}

impl FolderStore {
    /// Replaces the lease of a dead run, or writes the first lease: without a lease, another run could finish a started removal
    /// meanwhile.
    pub async fn take_over(&self, data: &Key, at: Timestamp, until: Timestamp) -> Result<Taken> {
        let (doing, attempt) = (format!("continuing the upload of {}", self.uri(data)), data.folder().clone());
        let leases = self.below(doing, move |root| exchange(root, &attempt, until.as_second(), at)).await?;
        Ok(Taken { store: self.clone(), attempt: data.folder().clone(), leases })
    }
}

impl Taken {
    /// Removes the lease of a published snapshot, or restores the earlier lease; best effort.
    pub async fn let_go(self, published: bool) {
        let Self { store, attempt, leases } = self;
        let calls = move |root: &Dir| {
            let folder = root.open_dir(attempt.as_str())?;
            if let Some(before) = leases.before.filter(|_| !published) {
                folder.open_with(before, OpenOptions::new().write(true).create(true))?;
            }
            ignore_missing(folder.remove_file(leases.own))
        };
        if let Err(error) = store.below("releasing the data of a dead run".to_owned(), calls).await {
            tracing::debug!(%error, "the lease stays behind");
        }
    }
}

fn exchange(root: &Dir, attempt: &Folder, until: i64, now: Timestamp) -> io::Result<Leases> {
    let folder = root.open_dir(attempt.as_str())?;
    let there = names(&folder)?;
    if let Some(over) = over(there.iter().map(String::as_str)).filter(|over| *over >= now) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, busy_until(over)));
    }
    // Data that no run may remove stays protected if this run dies too.
    let removable = there.iter().any(|name| lives_until(name).is_some() && !is_taken(name));
    let own = if removable { lease_name(until) } else { taken_name(until) };
    // The data always has a lease: the new one before the old one goes.
    folder.open_with(&own, OpenOptions::new().write(true).create(true))?;
    let mut before = None;
    for lease in there.into_iter().filter(|name| is_lease(name) || is_taken(name)) {
        ignore_missing(folder.remove_file(&lease))?;
        before = before.or(Some(lease).filter(|lease| is_lease(lease)));
    }
    Ok(Leases { own, before })
}
