//! The keys of stored snapshots.
//!
//! Decides the part of a key that agents know. `crates/layout/src/lib.rs` decides the layout.

/// Returns the last four parts of the key of a snapshot, or of a file in its folder: namespace, cluster, lineage, attempt.
pub fn attempt_of(key: &str) -> String {
    let mut parts: Vec<&str> = key.split('/').filter(|part| !part.is_empty()).collect();
    // The name of an attempt has no dot.
    parts.pop_if(|last| last.contains('.'));
    parts.split_off(parts.len().saturating_sub(4)).join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_compare_wherever_they_begin_and_whatever_file_they_name() {
        let key = "ns/a/0000/20260101T000000Z-00000001-x";
        for same in [key, &format!("backups/{key}"), &format!("{key}/snapshot.db"), &format!("/x/y/{key}/a.db.zst/")] {
            assert_eq!(attempt_of(same), key, "{same}");
        }
        assert_eq!((attempt_of("a/snapshot.db").as_str(), attempt_of("").as_str()), ("a", ""));
    }
}
