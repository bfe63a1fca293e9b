//! Short names made from the parts of a value.
//!
//! Decides the hash: 16 hex digits. Objects hold these names, so the hash stays the same in every version of Holdfast.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// Returns the fingerprint of these parts, in this order.
pub fn hash_parts<P: AsRef<str>>(parts: impl IntoIterator<Item = P>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        // The lengths keep two different lists from the same hash.
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())[..16].to_owned()
}

/// Returns a short hash of a value.
pub fn short(value: &impl Serialize) -> String {
    // Serializing Holdfast's own types to JSON cannot fail.
    hex::encode(Sha256::digest(serde_json::to_string(value).unwrap_or_default()))[..16].to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_what_earlier_versions_wrote_down() {
        assert_eq!(super::hash_parts(["a", "bc"]), "3fafa1cf2f19a7c1");
        assert_ne!(super::hash_parts(["ab", "c"]), super::hash_parts(["a", "bc"]));
        assert_ne!(super::hash_parts(["a", "bc", ""]), super::hash_parts(["a", "bc"]));
    }
}
