//! Labels and annotations that a spec adds to objects.
//!
//! Decides which ones the API server would refuse: it would then refuse the whole object (Kubernetes: apimachinery,
//! `IsQualifiedName`, `IsValidLabelValue`, `ValidateAnnotationsSize`).

use holdfast_api::agent::PodMetadata;

use super::{Refusal, refuse};

/// Most bytes of all annotations of one object (Kubernetes: `TotalAnnotationSizeLimitB`).
const ANNOTATIONS: usize = 256 << 10;

/// Refuses labels and annotations that the API server does not accept. `field`: path of the field.
pub(super) fn check_added(field: &'static str, added: Option<&PodMetadata>) -> Result<(), Refusal> {
    let Some(PodMetadata { labels, annotations }) = added else { return Ok(()) };
    // Kubernetes takes capitals in the DNS name of an annotation's key.
    let wrong = |name: &&String| !is_key(&name.to_ascii_lowercase());
    if let Some(name) = labels.keys().find(|name| !is_key(name)).or_else(|| annotations.keys().find(wrong)) {
        return refuse(
            field,
            format!(
                "{name:?} is not a key. A key has at most 63 letters, digits, '-', '_' and '.', begins and ends with a \
                 letter or digit, and may follow a DNS name and a slash, such as example.com/team"
            ),
        );
    }
    if let Some((name, value)) = labels.iter().find(|(_, value)| !value.is_empty() && !is_word(value)) {
        return refuse(
            field,
            format!(
                "the value {value:?} of label {name} is not a label's value. Such a value has at most 63 letters, digits, '-', \
                 '_' and '.', and begins and ends with a letter or digit; an annotation takes any text"
            ),
        );
    }
    let bytes: usize = annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ANNOTATIONS {
        return refuse(field, format!("the annotations have {bytes} bytes; at most {ANNOTATIONS} fit an object"));
    }
    Ok(())
}

/// Whether the text is a key: a word, or a DNS name, a slash and a word.
fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, word)) => is_domain(domain) && is_word(word),
        None => is_word(text),
    }
}

fn is_word(text: &str) -> bool {
    let all = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    all && text.len() <= 63 && has_plain_ends(text)
}

fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        let all = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        all && has_plain_ends(label)
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// Whether a text begins and ends with a letter or digit.
fn has_plain_ends(text: &str) -> bool {
    let plain = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    plain(text.chars().next()) && plain(text.chars().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(label: Option<(&str, &str)>, annotation: Option<(&str, &str)>) -> bool {
        let map = |pair: Option<(&str, &str)>| pair.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        check_added("spec.podMetadata", Some(&PodMetadata { labels: map(label), annotations: map(annotation) }))
            .is_err()
    }

    #[test]
    fn the_api_server_accepts_what_is_not_refused() {
        for (name, value) in [("team", "storage"), ("a/b", ""), ("example.com/A_b.c", "x-1"), ("x", &"y".repeat(63))] {
            assert!(!refused(Some((name, value)), None), "{name} {value}");
        }
        assert!(!refused(None, Some(("note", "any text, with spaces"))));
        assert!(!refused(None, Some(("Example.com/Owner", "x"))));
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("-a", "x"),
            ("/a", "x"),
            ("a/b/c", "x"),
            ("Example.com/a", "x"),
            (&*"n".repeat(64), "x"),
            ("a", "two words"),
            ("a", "-x"),
            ("a", &*"y".repeat(64)),
        ] {
            assert!(refused(Some((name, value)), None), "{name} {value}");
        }
        assert!(refused(None, Some(("a b", "x"))));
        assert!(refused(None, Some(("note", &"y".repeat(256 << 10)))));
    }
}
