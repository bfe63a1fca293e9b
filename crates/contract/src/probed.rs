//! Findings of a probe: a table for users, JSON for programs.
//!
//! This file decides the list of trials, and which of them saves and restores need.

use serde::{Deserialize, Serialize};

use super::FailedReport;

/// One operation that a probe tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Trial {
    /// A written object is readable at once, with the written bytes.
    ReadAfterWrite,
    /// A create-only put does not overwrite an existing object.
    CreateOnly,
    /// A written object is in a listing at once.
    ListAfterWrite,
    /// An object of a multipart upload is complete, read by ranges.
    Multipart,
    /// The store keeps older versions of an object.
    Versions,
    /// The store locks an object against removal, if requested.
    ObjectLock,
    /// A removed object is gone.
    Delete,
    /// The store has a store ID, and the ID is the expected ID.
    #[serde(rename = "mark")]
    StoreId,
}

impl Trial {
    /// All trials, in the order of the report.
    pub const ALL: [Self; 8] = [
        Self::ReadAfterWrite,
        Self::CreateOnly,
        Self::ListAfterWrite,
        Self::Multipart,
        Self::Versions,
        Self::ObjectLock,
        Self::Delete,
        Self::StoreId,
    ];

    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadAfterWrite => "readAfterWrite",
            Self::CreateOnly => "createOnly",
            Self::ListAfterWrite => "listAfterWrite",
            Self::Multipart => "multipart",
            Self::Versions => "versions",
            Self::ObjectLock => "objectLock",
            Self::Delete => "delete",
            Self::StoreId => "mark",
        }
    }

    /// Describes the trial for users.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadAfterWrite => "read after write",
            Self::CreateOnly => "create-only put",
            Self::ListAfterWrite => "list after write",
            Self::Multipart => "multipart upload",
            Self::Versions => "versions kept",
            Self::ObjectLock => "object lock",
            Self::Delete => "delete",
            Self::StoreId => "store ID",
        }
    }

    /// Whether saves and restores need this operation.
    pub const fn needed(self) -> bool {
        matches!(self, Self::ReadAfterWrite | Self::Multipart)
    }
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The store passes the trial.
    Yes,
    /// The store fails the trial.
    No,
    /// The trial does not apply to this kind of store.
    NotThere,
    /// The probe could not try.
    NotTried,
}

/// One trial and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The trial.
    pub trial: Trial,
    /// Its result.
    pub outcome: Outcome,
    /// Whether saves and restores need this operation.
    pub needed: bool,
    /// Observation, and its consequence.
    pub detail: String,
}

/// Result of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probed {
    /// The store.
    pub store: String,
    /// Whether snapshots can be saved to this store and restored from this store.
    pub usable: bool,
    /// All trials, in the order of [`Trial`].
    pub findings: Vec<Finding>,
    /// Store ID, if readable; also when another ID was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_id: Option<String>,
    /// URI of a folder that the probe could not remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_behind: Option<String>,
    /// Reason for which the store is not usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedReport>,
}

impl Probed {
    /// Shortens long texts of a store; `false` when nothing is left to cut.
    pub fn cut(&mut self) -> bool {
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

    /// Formats the result as a table for users.
    pub fn table(&self) -> String {
        let mut table = format!("{}\n\n", self.store);
        for Finding { trial, outcome, needed, detail } in &self.findings {
            let verdict = match (outcome, needed) {
                (Outcome::Yes, _) => "yes",
                (Outcome::No, true) => "NO",
                (Outcome::No, false) => "warning",
                (Outcome::NotThere, _) => "-",
                (Outcome::NotTried, _) => "?",
            };
            table.push_str(&format!("{:<18} {verdict:<8} {detail}\n", trial.as_str()));
        }
        let end = if self.usable {
            "Snapshots can be saved to and restored from this store."
        } else {
            "This store is not usable."
        };
        table.push_str(&format!("\n{end}\n"));
        if let Some(place) = &self.left_behind {
            table.push_str(&format!("The probe left objects at {place}. Remove these objects.\n"));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExitClass;

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
