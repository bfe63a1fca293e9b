//! Events (`events.k8s.io`) about acts and changes of conditions.
//!
//! An Event is best effort: publishing has its own task and a bounded queue, and never delays or fails a pass. The operator
//! needs `create` and `patch` on `events.k8s.io/events`.

use std::sync::Arc;
use std::time::Duration;

use holdfast_api::FIELD_MANAGER;
use holdfast_api::condition::{self, Reason};
use holdfast_plan::Note;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

use super::clock;
use super::metrics::Metrics;

/// Length of the queue. A full queue drops Events: an Event a minute late is of no use.
const QUEUE: usize = 256;
/// Longest note that the API server accepts.
const MAX_NOTE: usize = 1000;
/// Deadline of one Event, so that it does not delay the next for long.
const DEADLINE: Duration = Duration::from_secs(5);

/// Sends Events to the publishing task.
#[derive(Clone, Debug)]
pub(super) struct Events {
    queue: mpsc::Sender<(ObjectReference, Event)>,
    metrics: Arc<Metrics>,
}

impl Events {
    /// Starts the publishing task.
    pub(super) fn start(client: Client, identity: String, metrics: Arc<Metrics>) -> Self {
        let (queue, mut waiting) = mpsc::channel::<(ObjectReference, Event)>(QUEUE);
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(identity) };
        let recorder = Recorder::new(client, reporter);
        let count = Arc::clone(&metrics);
        tokio::spawn(async move {
            while let Some((about, event)) = waiting.recv().await {
                match clock::within(DEADLINE, recorder.publish(&event, &about)).await {
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        count.event_dropped();
                        tracing::debug!(%error, reason = event.reason, "an Event was not published");
                    }
                    None => count.event_dropped(),
                }
            }
        });
        Self { queue, metrics }
    }

    /// Publishes a note about an object. `action` separates notes of the same reason: the recorder folds notes of equal reason and
    /// action into a count, with the first note's text.
    pub(super) fn say(&self, about: &ObjectReference, action: &str, note: &Note) {
        let event = Event {
            type_: if note.warning { EventType::Warning } else { EventType::Normal },
            reason: cut(&note.reason, 128),
            note: Some(cut(&note.message, MAX_NOTE)),
            action: cut(action, 128),
            secondary: None,
        };
        if self.queue.try_send((about.clone(), event)).is_err() {
            self.metrics.event_dropped();
        }
    }
}

/// Notes for changes of conditions that concern a person: another status of Ready, Available or Degraded, or a new reason that
/// needs a person. Where several conditions change for the same reason, only the first gets a note. `Progressing` gets none: it
/// repeats the Events of the acts. `beside`: notes of the same pass, which say more about their reason.
pub(super) fn changes(old: &[Condition], new: &[Condition], beside: &[Note]) -> Vec<Note> {
    let mut out: Vec<Note> = vec![];
    for now in new.iter().filter(|now| now.type_ != "Progressing") {
        let before = condition::find(old, &now.type_);
        let for_a_person = Reason::named(&now.reason).is_some_and(Reason::needs_a_person);
        let same_status = before.is_some_and(|b| b.status == now.status);
        if same_status && (!for_a_person || before.is_some_and(|b| b.reason == now.reason)) {
            continue;
        }
        // A new condition with a good status is no news.
        let warns = matches!(now.type_.as_str(), "Degraded" | "AtRisk");
        let bad = if warns { "True" } else { "False" };
        if (before.is_none() && now.status != bad) || out.iter().chain(beside).any(|n| n.reason == now.reason) {
            continue;
        }
        out.push(Note {
            warning: warns && now.status == "True",
            reason: now.reason.clone(),
            message: format!("{} is {}: {}", now.type_, now.status, now.message),
        });
    }
    out
}

fn cut(text: &str, longest: usize) -> String {
    let mut end = text.len().min(longest);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn condition(kind: &str, status: &str, reason: &str) -> Condition {
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: "because".to_owned(),
            observed_generation: None,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        }
    }

    fn changes(old: &[Condition], new: &[Condition]) -> Vec<Note> {
        super::changes(old, new, &[])
    }

    #[test]
    fn only_changes_speak() {
        let old = [condition("Ready", "False", "Seeding")];
        let beside = [Note { warning: false, reason: "QuorumLost".to_owned(), message: "more".to_owned() }];
        let lost = [condition("Ready", "False", "QuorumLost")];
        assert_eq!(super::changes(&old, &lost, &beside), vec![], "one Event for one change");
        assert_eq!(changes(&old, &old), vec![]);
        let mut louder = old.clone();
        louder[0].message = "another text".to_owned();
        assert_eq!(changes(&old, &louder), vec![]);
        assert_eq!(changes(&old, &[condition("Ready", "False", "Growing")]), vec![], "the acts tell of growth");
        let notes = changes(&old, &[condition("Ready", "False", "QuorumLost")]);
        assert_eq!((notes.len(), notes[0].reason.as_str(), notes[0].warning), (1, "QuorumLost", false));
        let notes =
            changes(&old, &[condition("Progressing", "False", "Idle"), condition("Ready", "True", "AsDesired")]);
        assert_eq!((notes.len(), notes[0].reason.as_str()), (1, "AsDesired"));
    }

    #[test]
    fn one_reason_speaks_once_and_trouble_is_a_warning() {
        let notes =
            changes(&[], &[condition("Degraded", "True", "QuorumLost"), condition("Ready", "False", "QuorumLost")]);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].warning);
        let notes = changes(&[], &[condition("AtRisk", "True", "EvenReplicas")]);
        assert_eq!((notes.len(), notes[0].warning), (1, true));
        assert_eq!(changes(&[], &[condition("AtRisk", "False", "NothingWrong")]), vec![]);
    }

    #[test]
    fn good_from_the_start_is_no_news() {
        assert_eq!(changes(&[], &[condition("Degraded", "False", "NothingWrong")]), vec![]);
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        assert_eq!(cut("aéé", 4), "aé");
        assert_eq!(cut("ab", 4), "ab");
    }
}
