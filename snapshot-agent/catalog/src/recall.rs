//! Reads the manifest of one stored snapshot, for callers outside the agent.

use holdfast_contract::StoreFlags;
use holdfast_contract::error::Result;
use holdfast_io::interrupt::Interrupt;
use holdfast_layout::manifest::Manifest;
use holdfast_store::Store;

use crate::stored;

/// Reads the manifest, and none of the data.
pub async fn manifest(store: &StoreFlags, key: &str, deadline_seconds: u32) -> Result<Manifest> {
    let mut interrupt = Interrupt::after(deadline_seconds.into())?;
    let folder = stored::folder(key)?;
    let store = Store::open(store)?;
    let (manifest, _) = interrupt.unless(stored::manifest_in_its_place(&store, &folder)).await?;
    Ok(manifest)
}
