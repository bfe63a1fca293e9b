//! Checks that the answer to a listing is a listing: a page from another server would otherwise look like an empty bucket, from
//! which the agent draws conclusions (I18).
//!
//! This file decides by the root element, and by an element that every store sends inside. It also renames keys that
//! object_store does not accept as paths, for which object_store would drop the whole page: other owners' objects must not hide
//! Holdfast's.

use std::borrow::Cow;

use object_store::client::HttpRequest;
use object_store::path::Path;

/// An answer that is not a listing.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the answer to a listing has status 200 and is no listing. Check the endpoint, and every proxy and load balancer \
     before the store"
)]
pub(crate) struct NoListing;

/// A truncated listing without a continuation token: the following keys would look missing.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the store returned a page of a listing that is truncated and has no continuation token")]
pub(crate) struct CutListing;

/// A page for browsers with status 200 instead of a store's answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the endpoint answers with a web page (status 200, HTML): this is not an S3 server. Check the endpoint's host and port \
     (a console has a port of its own), and every proxy before the store"
)]
pub(crate) struct WebPage;

/// Root elements of S3 and Google (Amazon S3 API reference: `ListObjectsV2`), and of Azure (`List Blobs`).
const ROOTS: [(&str, &[&str]); 2] = [
    ("ListBucketResult", &["IsTruncated", "KeyCount", "MaxKeys", "Name", "Contents", "CommonPrefixes"]),
    ("EnumerationResults", &["Blobs"]),
];

/// Whether the request is a listing by prefix.
pub(super) fn asked(request: &HttpRequest) -> bool {
    let lists = |pair: &str| matches!(pair, "list-type=2" | "comp=list");
    request.uri().query().is_some_and(|query| query.split('&').any(lists))
}

/// Whether the body is a listing, empty or not. Stores send no document type.
pub(super) fn is_one(body: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(body) else { return false };
    let Some(text) = root(text.trim_start_matches('\u{feff}')) else { return false };
    let Some((name, rest)) = text.split_once(['>', ' ', '\t', '\r', '\n']) else { return false };
    // Elements may have a namespace prefix.
    let own = name.rsplit(':').next().unwrap_or(name);
    let has = |element: &&str| rest.contains(&format!("<{element}")) || rest.contains(&format!(":{element}"));
    ROOTS.iter().any(|(root, inside)| own == *root && inside.iter().any(has))
}

/// Whether a page of S3's protocol is truncated and names no next page.
pub(super) fn is_cut(body: &[u8]) -> bool {
    let text = std::str::from_utf8(body).unwrap_or_default();
    text.contains("IsTruncated>true<") && !text.contains("NextContinuationToken>")
}

/// Replaces a part of a key that is empty, `.`, `..` or holds control characters. Holdfast's names lack these characters, so
/// such a key is ignored like any key of another owner. In a snapshot's folder it is an unknown file: the file stays, and a
/// hold with such a name stays a hold.
const ODD: &str = "\u{ab}not-a-name\u{bb}";

/// Elements that hold listed names, at all providers; other elements with these names are not read.
const NAMED: [&str; 3] = ["Key", "Prefix", "Name"];

/// Returns the page with replaced names where object_store accepts none.
pub(super) fn with_names(body: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(body) else { return Cow::Borrowed(body) };
    let (mut named, mut done) = (String::new(), 0);
    for (at, _) in text.match_indices('<') {
        let Some((tag, value)) = text.get(at + 1..).and_then(|rest| rest.split_once('>')) else { break };
        let own = tag.split([' ', '\t', '\r', '\n']).next().unwrap_or(tag);
        let own = own.rsplit(':').next().unwrap_or(own);
        if !NAMED.contains(&own) {
            continue;
        }
        let key = value.split('<').next().unwrap_or(value);
        if Path::parse(decoded(key).as_ref()).is_err() {
            let begins = at + 1 + tag.len() + 1;
            named.push_str(text.get(done..begins).unwrap_or_default());
            named.push_str(&name_of(key));
            done = begins + key.len();
        }
    }
    if done == 0 {
        return Cow::Borrowed(body);
    }
    named.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(named.into_bytes())
}

/// Whether a listed path has a replaced part.
pub(super) fn is_odd(path: &Path) -> bool {
    path.as_ref().split('/').any(|part| part == ODD)
}

/// Replaces each invalid part of a key with [`ODD`]; XML escapes stay as they are.
fn name_of(key: &str) -> String {
    let stripped = key.strip_prefix('/').unwrap_or(key);
    let (stripped, end) = stripped.strip_suffix('/').map_or((stripped, ""), |stripped| (stripped, "/"));
    let is_part = |part: &str| {
        let part = decoded(part);
        !part.is_empty() && !part.contains('/') && Path::parse(part.as_ref()).is_ok()
    };
    let parts: Vec<_> = stripped.split('/').map(|part| if is_part(part) { part } else { ODD }).collect();
    parts.join("/") + end
}

/// Decodes XML's references to single characters.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let (name, tail) = after.split_once(';').unwrap_or((after, ""));
        let number = name.strip_prefix('#').and_then(|number| match number.strip_prefix('x') {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => number.parse().ok(),
        });
        // Every other reference is a character that paths may have.
        plain.push(number.and_then(char::from_u32).unwrap_or('&'));
        rest = tail;
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// Returns the text after the root element's opening bracket; skips declarations and comments.
fn root(mut text: &str) -> Option<&str> {
    loop {
        text = text.trim_start();
        let (begins, ends) = if text.starts_with("<!--") { ("<!--", "-->") } else { ("<?", "?>") };
        match text.strip_prefix(begins) {
            Some(passed) => text = passed.split_once(ends)?.1,
            None => return text.strip_prefix('<'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_the_last_one_names_the_next_one() {
        let page = |inside: &str| is_cut(format!("<ListBucketResult>{inside}</ListBucketResult>").as_bytes());
        let token = "<NextContinuationToken>x</NextContinuationToken>";
        assert!(page("<IsTruncated>true</IsTruncated><KeyCount>1000</KeyCount>"));
        assert!(page("<s3:IsTruncated>true</s3:IsTruncated>"));
        assert!(!page(&format!("<IsTruncated>true</IsTruncated>{token}")) && !page("<IsTruncated>false</IsTruncated>"));
        assert!(!page(token) && !page("<Name>backups</Name>"), "a flag may be missing");
    }

    /// Keys that S3 accepts and object_store does not, as an answer holds them.
    #[test]
    fn a_key_that_is_no_path_has_a_name_that_nobody_takes_for_a_snapshots() {
        let page = |key: &str| {
            format!(
                "<ListBucketResult><Name>b</Name><Prefix/><Contents><s3:Key>{key}</s3:Key></Contents></ListBucketResult>"
            )
        };
        for (key, named) in [
            ("a//b", format!("a/{ODD}/b")),
            ("a/../b", format!("a/{ODD}/b")),
            ("a/./", format!("a/{ODD}/")),
            ("a//", format!("a/{ODD}/")),
            ("//a", format!("{ODD}/a")),
            ("..", ODD.to_owned()),
            ("a/&#x1;b/c", format!("a/{ODD}/c")),
            ("a/\u{1}", format!("a/{ODD}")),
            ("a/&#47;x", format!("a/{ODD}")),
            ("a/&amp;&lt;b", "a/&amp;&lt;b".to_owned()),
            ("a/b/manifest.json", "a/b/manifest.json".to_owned()),
            ("/a", "/a".to_owned()),
            ("a b/\u{e9}/", "a b/\u{e9}/".to_owned()),
        ] {
            let found = String::from_utf8(with_names(page(key).as_bytes()).into_owned()).unwrap();
            let path = Path::parse(decoded(&named).as_ref()).unwrap();
            assert_eq!((found, is_odd(&path)), (page(&named), named.contains(ODD)), "{key}");
        }
        assert!(!holdfast_layout::Folder::is_name(ODD));
    }

    #[test]
    fn listings_are_told_from_what_else_answers() {
        for listing in [
            "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
            "\u{feff}<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Name>backups</Name></ListBucketResult>",
            "<?xml version='1.0'?><!-- a gateway's --><ns2:ListBucketResult xmlns:ns2=\"x\"><ns2:Contents></ns2:Contents>\
             </ns2:ListBucketResult>",
            "<?xml version='1.0'?><EnumerationResults ContainerName=\"backups\"><Blobs/><NextMarker/></EnumerationResults>",
        ] {
            assert!(is_one(listing.as_bytes()), "{listing}");
        }
        for other in [
            "",
            "{}",
            "<html><body>Sign in</body></html>",
            "<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>",
            "<ListBucketResult/>",
            "<ListBucketResult><a><a></a></a></ListBucketResult>",
            "<ListBucketResults><Name/></ListBucketResults>",
            "<!DOCTYPE a [<!ENTITY b \"c\">]><ListBucketResult><Name>&b;</Name></ListBucketResult>",
            "<ListAllMyBucketsResult><Buckets><Bucket><Name>a</Name></Bucket></Buckets></ListAllMyBucketsResult>",
        ] {
            assert!(!is_one(other.as_bytes()), "{other}");
        }
        assert!(!is_one(b"\xff\xfe"));
    }
}
