//! Errors of effects: each error has a class, and each class has retry delays.
//!
//! Decides classes, their delays, and the verdict of a failure on an object's writes; `backoff` counts. Nothing here judges a
//! cluster: `Waiting` and conditions do.

use std::time::Duration;

use holdfast_api::condition::Reason;
use jiff::SignedDuration;
use kube::core::Status;

/// A failed effect, with the step that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The API server refused, or did not answer.
    #[error("{what}: {}", error_message(source))]
    Kube {
        /// The step that failed.
        what: String,
        /// Whether the call was a write.
        writes: bool,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer within the deadline. The call may have been carried out all the same: the next pass reads.
    #[error("{what}: no answer in time")]
    Timeout {
        /// The step that failed.
        what: String,
        /// Whether the call was a write to the API server.
        writes: bool,
    },
    /// etcd refused, or did not answer.
    #[error("{what}: {message}")]
    Etcd {
        /// The step that failed.
        what: String,
        /// The cause.
        message: String,
    },
    /// An object of another owner has the name that the object of Holdfast needs (I13).
    #[error("{0}")]
    NameConflict(String),
    /// An object changed after the decision: the operator did nothing.
    #[error("{0}")]
    Stale(String),
    /// This process does not hold the lease (any more): the operator wrote nothing (I19).
    #[error("not the leader: nothing was written")]
    NotLeader,
    /// The API server dropped fields of a status: the CRD of this kind is older than the operator. The operator skipped the rest of
    /// the pass.
    #[error(
        "the API server dropped fields of the status: the definition of {0} is older than the operator. Apply \
         `holdfast manifests --only crds` of the operator's version"
    )]
    DefinitionOutdated(&'static str),
    /// A write had no lasting effect several times in a row.
    #[error(
        "{what}: the change is taken back each time. An admission policy or another controller does so: compare the object with \
         `kubectl get -o yaml --show-managed-fields`, and exempt objects of Holdfast"
    )]
    Reverted {
        /// The write: act and object.
        what: String,
        /// The time until the next try.
        wait: Duration,
    },
    /// The operator's clock differs from the API server's: the operator issued no certificate.
    #[error(
        "the operator's clock is {} the API server's, so no certificate is issued. Synchronise the clocks of the nodes (NTP)",
        off(*.0)
    )]
    ClockSkewed(SignedDuration),
    /// A defect of the operator.
    #[error("{0}")]
    Internal(String),
}

/// A difference between clocks in words, to the minute.
fn off(ahead: SignedDuration) -> String {
    let minutes = (ahead.abs().as_secs() + 30) / 60;
    let side = if ahead.is_negative() { "behind" } else { "ahead of" };
    if minutes < 120 { format!("{minutes} min {side}") } else { format!("{} h {side}", (minutes + 30) / 60) }
}

/// Classes of errors: the label of a metric, and the key of the retry delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// Another writer changed the object first.
    Conflict,
    /// The API server asked for fewer calls.
    Throttled,
    /// The API server did not answer, or answered with a failure of its own.
    Unavailable,
    /// No answer in time.
    Timeout,
    /// The operator lacks the right.
    Denied,
    /// The API server finds the object invalid.
    Invalid,
    /// The object to change is gone.
    Gone,
    /// An object of another owner has the name.
    NameConflict,
    /// etcd refused or did not answer.
    Etcd,
    /// etcd was not ready for the change, and gave the reason.
    NotYet,
    /// Not the leader.
    NotLeader,
    /// The API server does not store all fields of a status.
    Outdated,
    /// A write whose effect does not stay.
    Reverted,
    /// The clocks of operator and API server differ.
    Skewed,
    /// A defect of the operator.
    Internal,
}

impl Class {
    /// Every class.
    #[cfg(test)]
    pub(super) const ALL: [Self; 15] = [
        Self::Conflict,
        Self::Throttled,
        Self::Unavailable,
        Self::Timeout,
        Self::Denied,
        Self::Invalid,
        Self::Gone,
        Self::NameConflict,
        Self::Etcd,
        Self::NotYet,
        Self::NotLeader,
        Self::Outdated,
        Self::Reverted,
        Self::Skewed,
        Self::Internal,
    ];

    /// The metric's label.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Gone => "gone",
            Self::NameConflict => "name_conflict",
            Self::Etcd => "etcd",
            Self::NotYet => "not_yet",
            Self::NotLeader => "not_leader",
            Self::Outdated => "outdated",
            Self::Reverted => "reverted",
            Self::Skewed => "skewed",
            Self::Internal => "internal",
        }
    }

    /// First and longest delay. A new read cures a conflict. A failure that a person has to fix is retried rarely.
    pub(super) const fn bounds(self) -> (Duration, Duration) {
        match self {
            Self::NotYet => (Duration::from_millis(100), Duration::from_secs(10)),
            // Another writer came first: the next read shows its write.
            Self::Conflict | Self::Gone => (Duration::from_millis(100), Duration::from_secs(2)),
            Self::Etcd => (Duration::from_millis(200), Duration::from_secs(10)),
            Self::Unavailable | Self::Timeout => (Duration::from_millis(200), Duration::from_secs(30)),
            Self::Throttled => (Duration::from_secs(1), Duration::from_mins(1)),
            // A person has to change a role, a quota or a name.
            Self::Denied
            | Self::Invalid
            | Self::NameConflict
            | Self::Outdated
            | Self::Reverted
            | Self::Skewed
            | Self::Internal => (Duration::from_secs(2), Duration::from_secs(20)),
            Self::NotLeader => (Duration::from_secs(5), Duration::from_secs(5)),
        }
    }

    /// The verdict of a failure of this class on an object's writes.
    pub(super) const fn verdict(self) -> Verdict {
        match self {
            Self::NameConflict => Verdict::Needs(Reason::NameConflict),
            Self::Denied | Self::Invalid => Verdict::Needs(Reason::WriteRefused),
            Self::Reverted => Verdict::Needs(Reason::WriteReverted),
            Self::Skewed => Verdict::Needs(Reason::ClockSkewed),
            Self::Outdated => Verdict::Needs(Reason::DefinitionsOutdated),
            Self::NotYet => Verdict::Passes(Reason::WaitingForEtcd),
            // An API server that restarts is back within seconds. A webhook that is down stays down until a person acts.
            Self::Throttled | Self::Unavailable | Self::Timeout | Self::Internal => {
                Verdict::Passes(Reason::WriteRefused)
            }
            Self::Etcd => Verdict::Over,
            Self::Conflict | Self::Gone | Self::NotLeader => Verdict::Nothing,
        }
    }

    /// Whether the class is ordinary and needs no warning in the log.
    pub(super) const fn is_ordinary(self) -> bool {
        matches!(self, Self::Conflict | Self::Gone | Self::NotLeader)
    }
}

impl Error {
    /// A failed read of the API server.
    pub(super) fn read(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Kube { what: what.into(), writes: false, source: Box::new(source) }
    }

    /// A failed write to the API server.
    pub(super) fn write(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Kube { what: what.into(), writes: true, source: Box::new(source) }
    }

    /// The error's class.
    pub(super) fn class(&self) -> Class {
        match self {
            Self::Kube { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => by_status(status),
                _ => Class::Unavailable,
            },
            Self::Timeout { .. } => Class::Timeout,
            Self::Etcd { .. } => Class::Etcd,
            Self::NameConflict(_) => Class::NameConflict,
            Self::Stale(_) => Class::Conflict,
            Self::NotLeader => Class::NotLeader,
            Self::DefinitionOutdated(_) => Class::Outdated,
            Self::Reverted { .. } => Class::Reverted,
            Self::ClockSkewed(_) => Class::Skewed,
            Self::Internal(_) => Class::Internal,
        }
    }

    /// The API server's message where the refusal lasts until a person acts: a quota, a policy, a wrong field, a webhook that
    /// does not answer.
    pub(super) fn refused(&self) -> Option<String> {
        match self {
            Self::Kube { source, .. } if matches!(self.class(), Class::Denied | Class::Invalid) => {
                Some(error_message(source))
            }
            Self::Kube { source, .. } => unanswered_webhook(&error_message(source)).map(str::to_owned),
            _ => None,
        }
    }

    /// Whether an object of the name is there.
    pub(super) fn already_exists(&self) -> bool {
        matches!(self, Self::Kube { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.is_already_exists()))
    }

    /// Whether the operator has no right to the read or write.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Kube { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 403))
    }

    /// The verdict of this failure on an object's writes.
    pub(super) fn verdict(&self) -> Verdict {
        match self {
            // A failed read neither sets nor clears the trouble with writes.
            Self::Kube { writes: false, .. } | Self::Timeout { writes: false, .. } => Verdict::Nothing,
            Self::Kube { .. }
            | Self::Timeout { .. }
            | Self::Etcd { .. }
            | Self::NameConflict(_)
            | Self::Stale(_)
            | Self::NotLeader
            | Self::DefinitionOutdated(_)
            | Self::Reverted { .. }
            | Self::ClockSkewed(_)
            | Self::Internal(_) => self.class().verdict(),
        }
    }

    /// The delay that the API server requested, if it requested one.
    pub(super) fn asked_to_wait(&self) -> Option<Duration> {
        let source = match self {
            Self::Reverted { wait, .. } => return Some(*wait),
            Self::Kube { source, .. } => source,
            _ => return None,
        };
        let kube::Error::Api(status) = source.as_ref() else { return None };
        let seconds = u64::from(status.details.as_ref()?.retry_after_seconds);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

/// The API server's message, if there is one; else the client's.
fn error_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

/// The API server's message up to the name of the webhook that did not answer. The rest differs with every try: an address, a
/// time, a connection.
fn unanswered_webhook(message: &str) -> Option<&str> {
    const CALLING: &str = "failed calling webhook \"";
    let name = message.find(CALLING)? + CALLING.len();
    let end = message.get(name..)?.find('"')?;
    message.get(..=name + end)
}

fn by_status(status: &Status) -> Class {
    match status.code {
        409 => Class::Conflict,
        404 | 410 => Class::Gone,
        429 => Class::Throttled,
        401 | 403 => Class::Denied,
        400 | 405 | 406 | 413 | 415 | 422 => Class::Invalid,
        504 => Class::Timeout,
        _ => Class::Unavailable,
    }
}

/// Verdict of a failure on an object's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No verdict: earlier trouble stays.
    Nothing,
    /// Earlier trouble is over: a later step fails now.
    Over,
    /// Writes fail until a person acts.
    Needs(Reason),
    /// Writes fail, perhaps for a short time: the failure becomes a condition once it has lasted.
    Passes(Reason),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16) -> Error {
        let status = Status { code, ..Default::default() };
        Error::write("test", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn codes_have_classes() {
        for (code, class) in [
            (409, Class::Conflict),
            (404, Class::Gone),
            (429, Class::Throttled),
            (403, Class::Denied),
            (422, Class::Invalid),
            (504, Class::Timeout),
            (500, Class::Unavailable),
            (503, Class::Unavailable),
        ] {
            assert_eq!(api(code).class(), class, "{code}");
        }
    }

    #[test]
    fn people_read_the_servers_own_sentence() {
        let status = Status { code: 403, message: "exceeded quota: q".to_owned(), ..Default::default() };
        let error = Error::write("create Pod a", kube::Error::Api(Box::new(status)));
        assert_eq!(error.to_string(), "create Pod a: exceeded quota: q");
    }

    #[test]
    fn a_webhook_that_is_down_is_a_refusal_by_name_alone() {
        let refused = |code, message: &str| {
            let status = Status { code, message: message.to_owned(), ..Default::default() };
            Error::read("judge a Pod", kube::Error::Api(Box::new(status))).refused()
        };
        let said = |cause: &str| format!("Internal error occurred: failed calling webhook \"w.io\": {cause}");
        let named = "Internal error occurred: failed calling webhook \"w.io\"";
        assert_eq!(refused(500, &said("dial tcp 10.0.0.1:443")).as_deref(), Some(named));
        assert_eq!(refused(500, &said("context deadline exceeded")).as_deref(), Some(named));
        assert_eq!(refused(403, "exceeded quota: q").as_deref(), Some("exceeded quota: q"));
        for (code, message) in
            [(500, "etcdserver: request timed out"), (503, ""), (500, "failed calling webhook \"cut")]
        {
            assert_eq!(refused(code, message), None, "{message}");
        }
    }

    #[test]
    fn labels_are_distinct() {
        let labels: std::collections::HashSet<_> = Class::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(labels.len(), Class::ALL.len());
    }
}
