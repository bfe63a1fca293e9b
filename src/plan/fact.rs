//! What is known of a Job of ours. How it is read from the Job and its Pods is decided in `jobs.rs`.

use jiff::Timestamp;
use snapshot_agent::contract::{ExitClass, SavedReport};

use crate::api::condition::Reason;

/// What is known of a Job.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::plan) enum Fact {
    /// No Pod of it runs, and why.
    Pending(String),
    /// It works.
    Running(String),
    /// It cannot go on before somebody does something.
    Held(Reason, String),
    /// It ended, and the last words of a Pod may still be on their way.
    Settling,
    /// It ended well, and nobody knows with what.
    Lost,
    /// A Pod stored the snapshot.
    Stored {
        /// What it said.
        report: Box<SavedReport>,
        /// When it ended.
        at: Option<Timestamp>,
    },
    /// It was given up.
    Failed {
        /// The class, where the agent or the Job gave one.
        class: Option<ExitClass>,
        /// What happened.
        message: String,
        /// When.
        at: Option<Timestamp>,
    },
}

impl Fact {
    /// The reason a failure of this class is told by.
    pub(in crate::plan) fn reason(class: Option<ExitClass>) -> Reason {
        match class {
            // A save touches no volume of a member's: what it refuses is a store with another mark.
            Some(ExitClass::Refused) => Reason::StoreExchanged,
            Some(class) => Reason::from(class),
            None => Reason::AgentCrashed,
        }
    }
}
