//! What a probe has found: rows, for people as a table and for programs as JSON.
//!
//! It decides which trials there are, and which of them nothing works without.

use serde::{Deserialize, Serialize};

use super::FailedReport;

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Trial {
    /// An object that was written is there at once, and is what was written.
    ReadAfterWrite,
    /// An object is not overwritten when it must not be there yet.
    CreateOnly,
    /// What was written is in a listing at once.
    ListAfterWrite,
    /// An object of several parts is whole, read by ranges.
    Multipart,
    /// An older version of an object is kept.
    Versions,
    /// An object is kept from being removed, where that is asked for.
    ObjectLock,
    /// An object that was removed is gone.
    Delete,
    /// The store has a mark of its own, and it is the one that is expected.
    Mark,
}

impl Trial {
    /// All of them, in the order they are told in.
    pub const ALL: [Self; 8] = [
        Self::ReadAfterWrite,
        Self::CreateOnly,
        Self::ListAfterWrite,
        Self::Multipart,
        Self::Versions,
        Self::ObjectLock,
        Self::Delete,
        Self::Mark,
    ];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadAfterWrite => "readAfterWrite",
            Self::CreateOnly => "createOnly",
            Self::ListAfterWrite => "listAfterWrite",
            Self::Multipart => "multipart",
            Self::Versions => "versions",
            Self::ObjectLock => "objectLock",
            Self::Delete => "delete",
            Self::Mark => "mark",
        }
    }

    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadAfterWrite => "read after write",
            Self::CreateOnly => "create-only put",
            Self::ListAfterWrite => "list after write",
            Self::Multipart => "multipart upload",
            Self::Versions => "versions kept",
            Self::ObjectLock => "object lock",
            Self::Delete => "delete",
            Self::Mark => "mark",
        }
    }

    /// Whether nothing can be saved or restored without it.
    pub const fn needed(self) -> bool {
        matches!(self, Self::ReadAfterWrite | Self::Multipart)
    }
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The store does it.
    Yes,
    /// It does not.
    No,
    /// It need not: this kind of store has no such thing.
    NotThere,
    /// It could not be tried.
    NotTried,
}

/// One row of what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What was tried.
    pub trial: Trial,
    /// How it went.
    pub outcome: Outcome,
    /// Whether nothing can be saved or restored without it.
    pub needed: bool,
    /// What was seen, and what follows from it.
    pub detail: String,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probed {
    /// The store.
    pub store: String,
    /// Whether snapshots can be saved there and restored from there.
    pub usable: bool,
    /// All trials, in the order of [`Trial`].
    pub findings: Vec<Finding>,
    /// The store's mark, where it could be read: also one that is not the expected one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_id: Option<String>,
    /// Where something was left behind, if it could not be taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_behind: Option<String>,
    /// Why it is not usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedReport>,
}

impl Probed {
    /// Makes it shorter, where a store was long-winded; `false` when there is nothing left to cut.
    pub(crate) fn cut(&mut self) -> bool {
        let details = self.findings.iter_mut().map(|found| &mut found.detail);
        let words = details.chain(self.failed.as_mut().map(|failed| &mut failed.message));
        let Some(longest) = words.max_by_key(|words| words.len()).filter(|words| words.len() > 16) else {
            return false;
        };
        let half = longest.floor_char_boundary(longest.len() / 2);
        longest.truncate(half);
        longest.push('…');
        true
    }

    /// A table for people.
    pub fn table(&self) -> String {
        let mut table = format!("{}\n\n", self.store);
        for Finding { trial, outcome, needed, detail } in &self.findings {
            let mark = match (outcome, needed) {
                (Outcome::Yes, _) => "yes",
                (Outcome::No, true) => "NO",
                (Outcome::No, false) => "warning",
                (Outcome::NotThere, _) => "-",
                (Outcome::NotTried, _) => "?",
            };
            table.push_str(&format!("{:<18} {mark:<8} {detail}\n", trial.as_str()));
        }
        let end = if self.usable { "Snapshots can be saved here and restored from here." } else { "Not usable." };
        table.push_str(&format!("\n{end}\n"));
        if let Some(left) = &self.left_behind {
            table.push_str(&format!("Something was left behind at {left}: remove it.\n"));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ExitClass;

    fn found(detail: &str) -> Probed {
        let findings = Trial::ALL.map(|trial| Finding {
            trial,
            outcome: Outcome::No,
            needed: trial.needed(),
            detail: detail.to_owned(),
        });
        let failed = FailedReport { class: ExitClass::Denied, origin: None, message: detail.to_owned() };
        let store = "s3://b".to_owned();
        let findings = findings.to_vec();
        Probed { store, usable: false, findings, store_id: None, left_behind: None, failed: Some(failed) }
    }

    #[test]
    fn the_name_of_a_trial_is_the_one_on_the_wire() {
        for trial in Trial::ALL {
            assert_eq!(serde_json::to_value(trial).unwrap(), trial.name());
        }
        let probed = found("words");
        let json = serde_json::to_string(&probed).unwrap();
        assert_eq!(serde_json::from_str::<Probed>(&json).unwrap(), probed);
    }

    #[test]
    fn cutting_ends() {
        let mut probed = found(&"ä".repeat(1000));
        let mut times = 0;
        while probed.cut() {
            times += 1;
        }
        assert!(times > 6 && probed.findings.iter().all(|found| found.detail.ends_with('…')), "{probed:?}");
    }
}
