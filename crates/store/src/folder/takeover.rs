//! Continues with data that a dead run has left without a manifest.
//!
//! This file decides the owner of the data meanwhile: a mark of this run keeps other runs from removing the data while this run
//! reads it back and publishes it. The caller verifies the data.

use std::io;

use cap_std::fs::{Dir, OpenOptions};
use holdfast_contract::error::Result;
use holdfast_contract::layout::{Folder, Key};
use holdfast_io::files::ignore_missing;
use jiff::Timestamp;

use super::FolderStore;
use super::attempts::{is_mark, is_taken, lives_until, mark_name, names, over, taken_name};
use crate::busy_until;

/// A mark that replaces the mark of a dead run.
#[derive(Debug)]
pub struct Taken {
    store: FolderStore,
    attempt: Folder,
    marks: Marks,
}

#[derive(Debug)]
struct Marks {
    own: String,
    /// The mark of the dead run, if it wrote one.
    before: Option<String>,
}

impl FolderStore {
    /// Replaces the mark of a dead run, or writes the first mark: without a mark, another run could finish a started removal
    /// meanwhile.
    pub async fn take_over(&self, data: &Key, at: Timestamp, until: Timestamp) -> Result<Taken> {
        let (doing, attempt) = (format!("continuing the upload of {}", self.uri(data)), data.folder().clone());
        let marks = self.below(doing, move |root| exchange(root, &attempt, until.as_second(), at)).await?;
        Ok(Taken { store: self.clone(), attempt: data.folder().clone(), marks })
    }
}

impl Taken {
    /// Removes the mark of a published snapshot, or restores the earlier mark; best effort.
    pub async fn let_go(self, published: bool) {
        let Self { store, attempt, marks } = self;
        let calls = move |root: &Dir| {
            let folder = root.open_dir(attempt.as_str())?;
            if let Some(before) = marks.before.filter(|_| !published) {
                folder.open_with(before, OpenOptions::new().write(true).create(true))?;
            }
            ignore_missing(folder.remove_file(marks.own))
        };
        if let Err(error) = store.below("releasing the data of a dead run".to_owned(), calls).await {
            tracing::debug!(%error, "the mark stays behind");
        }
    }
}

fn exchange(root: &Dir, attempt: &Folder, until: i64, now: Timestamp) -> io::Result<Marks> {
    let folder = root.open_dir(attempt.as_str())?;
    let there = names(&folder)?;
    if let Some(over) = over(there.iter().map(String::as_str)).filter(|over| *over >= now) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, busy_until(over)));
    }
    // Data that no run may remove stays protected if this run dies too.
    let removable = there.iter().any(|name| lives_until(name).is_some() && !is_taken(name));
    let own = if removable { mark_name(until) } else { taken_name(until) };
    // The data always has a mark: the new one before the old one goes.
    folder.open_with(&own, OpenOptions::new().write(true).create(true))?;
    let mut before = None;
    for mark in there.into_iter().filter(|name| is_mark(name) || is_taken(name)) {
        ignore_missing(folder.remove_file(&mark))?;
        before = before.or(Some(mark).filter(|mark| is_mark(mark)));
    }
    Ok(Marks { own, before })
}
