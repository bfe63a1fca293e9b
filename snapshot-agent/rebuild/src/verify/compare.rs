//! Compares a database with its manifest, and decides which steps a proof may claim.

use holdfast_bbolt::scan::Proven;
use holdfast_contract::error::Result;
use holdfast_store::Store;

use holdfast_catalog::proof::{Proof, Step};
use holdfast_catalog::stored::Stored;

/// Compares the proven database with the manifest's records.
pub(super) fn compare(store: &Store, stored: &Stored, found: &Proven, proof: &mut Proof) -> Result<()> {
    proof.revision = Some(found.revision);
    proof.compact_revision = found.compact_revision;
    proof.keys = found.keys;
    proof.hash_kv = found.hash_kv.ok().map(|found| found.hash);
    stored.structure_agrees(store, found)?;
    proof.proven.push(Step::Structure);
    match stored.hash_agrees(store, found)? {
        None => proof.proven.push(Step::HashKV),
        Some(why) => proof.left_out.push(format!("HashKV: {why}")),
    }
    Ok(())
}
