//! Reads the manifest of one stored snapshot, for callers outside the agent.

use crate::catalog::stored;
use crate::contract::StoreFlags;
use crate::error::Result;
use crate::format::manifest::Manifest;
use crate::store::Store;
use crate::util::interrupt::Interrupt;

/// Reads the manifest, and none of the data.
pub async fn manifest(store: &StoreFlags, key: &str, deadline_seconds: u32) -> Result<Manifest> {
    let mut interrupt = Interrupt::after(deadline_seconds.into())?;
    let folder = stored::folder(key)?;
    let store = Store::open(store)?;
    let (manifest, _) = interrupt.unless(stored::manifest_in_its_place(&store, &folder)).await?;
    Ok(manifest)
}
