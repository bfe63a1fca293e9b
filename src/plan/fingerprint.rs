//! Short names for what something was made of.
//!
//! Decides how parts become one: 16 hex digits that stand in objects, so they stay the same in every version of Holdfast.

use sha2::{Digest, Sha256};

/// Of these parts, in this order.
pub fn of<P: AsRef<str>>(parts: impl IntoIterator<Item = P>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        // Lengths keep two different lists from reading the same.
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())[..16].to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_what_earlier_versions_wrote_down() {
        assert_eq!(super::of(["a", "bc"]), "3fafa1cf2f19a7c1");
        assert_ne!(super::of(["ab", "c"]), super::of(["a", "bc"]));
        assert_ne!(super::of(["a", "bc", ""]), super::of(["a", "bc"]));
    }
}
