//! What a condition tells of a Pod that does not run, read back from it.
//!
//! Decides in which words that is told, and how they are found again: a Pod that is held up goes when its Job's time is over,
//! and what it said with it. What follows from them is decided elsewhere.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::fact::Fact;
use super::{meta, pods};
use crate::api::condition::{Reason, Type};

/// Between a Pod's name and what holds it up until somebody does something.
pub(in crate::plan) const HELD: &str = " does not run: ";

/// Between a Pod's name and what it waits for.
pub(in crate::plan) const NOT_YET: &str = " does not run yet: ";

/// Between a Pod's name and who does not say that it has ended.
pub(in crate::plan) const SILENT: &str = " is not seen to end: ";

/// Before the name of a Job that gets no Pod.
pub(in crate::plan) const NOT_MADE: &str = "no Pod can be made for Job ";

/// After the name of a Job that has none, for no reason that is known.
pub(in crate::plan) const NO_POD: &str = " has no Pod yet; ";

/// What the condition of this type says.
pub(in crate::plan) fn told_in(conditions: &[Condition], kind: Type) -> Option<&str> {
    conditions.iter().find(|c| c.type_ == kind.as_str()).map(|c| c.message.as_str())
}

/// What the condition of this type tells of a Pod that only a person can help: its reason, and the words of
/// [`Fact::Held`].
pub(in crate::plan) fn held_in(conditions: &[Condition], kind: Type) -> Option<(Reason, &str)> {
    let Condition { reason, message, .. } = conditions.iter().find(|c| c.type_ == kind.as_str())?;
    let reason = Reason::named(reason).filter(|r| matches!(r, Reason::PodHeldUp | Reason::WriteRefused))?;
    Some((reason, stuck(message)?))
}

/// The words of [`Fact::Held`] of such a Pod, or of one that is not even made, in a condition's message.
pub(in crate::plan) fn stuck(message: &str) -> Option<&str> {
    held_up(message).filter(|words| words.starts_with(NOT_MADE) || words.contains(HELD))
}

/// What a condition's message ends with where a Pod does not run, or is not made, whatever the reason.
pub(in crate::plan) fn held_up(message: &str) -> Option<&str> {
    let before = |between: &str, kind: &str| message.get(..message.find(between)?)?.rfind(kind);
    let pods = [HELD, NOT_YET, SILENT].into_iter().filter_map(|between| before(between, "Pod "));
    let from = pods.chain(message.find(NOT_MADE)).chain(before(NO_POD, "Job ")).min()?;
    message.get(from..)
}

/// What was told last of a Pod that has gone since, until the next one, or its Job, says something else.
pub(in crate::plan) fn last_told(message: &str) -> Option<Fact> {
    let words = held_up(message).filter(|words| words.starts_with("Pod "))?;
    let fact = match [HELD, NOT_YET, SILENT].map(|between| words.find(between).unwrap_or(usize::MAX)) {
        [held, not_yet, silent] if held < not_yet.min(silent) => Fact::Held(Reason::PodHeldUp, words.to_owned()),
        [_, not_yet, silent] if not_yet < silent => Fact::Pending(words.to_owned()),
        _ => Fact::Held(Reason::NodeSilent, words.to_owned()),
    };
    Some(fact)
}

/// The same where its Job's time is over: none of its Pods ran, as far as that is known.
pub(in crate::plan) fn to_the_end<'a>(told: &'a str, all: &[Pod], ran: impl Fn(&Pod) -> bool) -> Option<&'a str> {
    let words = held_up(told)?;
    let name = words.strip_prefix("Pod ").and_then(|rest| rest.split(' ').next());
    let began = all.iter().filter(|pod| Some(meta::name(&pod.metadata)) == name).any(ran);
    // It is gone by now, and nobody has to tell its node so any more.
    words.split(pods::IF_OFF).next().filter(|_| !began)
}

/// What holds a Pod up, in the words that a condition has for it already: each Job has a Pod of another name, and nothing
/// else may be new (I17).
pub(in crate::plan) fn as_told(told: Option<&str>, words: String) -> String {
    let told = told.filter(|told| unnamed(told) == unnamed(&words)).map(str::to_owned);
    told.unwrap_or(words)
}

/// The words of [`Fact::Held`] without the name of the Pod, or of its Job.
fn unnamed(words: &str) -> String {
    let after = words.strip_prefix(NOT_MADE).or_else(|| words.strip_prefix("Pod ")).unwrap_or_default();
    match after.split([' ', ':']).next().filter(|name| !name.is_empty()) {
        Some(name) => words.replace(name, ""),
        None => words.to_owned(),
    }
}
