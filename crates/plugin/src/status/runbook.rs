//! The page about a reason that needs a person.

use holdfast_api::condition::Reason;

/// Returns the path of the page. `None`: the reason needs no person.
pub fn page(reason: &str) -> Option<String> {
    Reason::named(reason).filter(|it| it.needs_a_person()).map(|it| format!("runbooks/{}.md", it.as_str()))
}
