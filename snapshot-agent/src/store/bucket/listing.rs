//! Whether what answers a listing is one: a page of something else that stands in a store's place would be read as an empty
//! bucket otherwise, and of that much is concluded (I18).
//!
//! It decides by the root element, and by one of those inside that every store sends. What is listed is not looked at.

use object_store::client::HttpRequest;

/// An answer that is no listing.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the answer to a listing has status 200 and is no listing. Check the endpoint, and every proxy and load balancer \
     before the store"
)]
pub(in crate::store) struct NoListing;

/// What S3 and Google send (Amazon S3 API reference: `ListObjectsV2`), and what Azure does (`List Blobs`).
const ROOTS: [(&str, &[&str]); 2] = [
    ("ListBucketResult", &["IsTruncated", "KeyCount", "MaxKeys", "Name", "Contents", "CommonPrefixes"]),
    ("EnumerationResults", &["Blobs"]),
];

/// Whether objects are asked for by their prefix.
pub(super) fn asked(request: &HttpRequest) -> bool {
    let lists = |pair: &str| matches!(pair, "list-type=2" | "comp=list");
    request.uri().query().is_some_and(|query| query.split('&').any(lists))
}

/// Whether the body is a listing, of nothing or of something. A document type is none of a store's.
pub(super) fn is_one(body: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(body) else { return false };
    let Some(text) = root(text.trim_start_matches('\u{feff}')) else { return false };
    let Some((name, rest)) = text.split_once(['>', ' ', '\t', '\r', '\n']) else { return false };
    // Elements may have a namespace's short name before their own.
    let own = name.rsplit(':').next().unwrap_or(name);
    let has = |element: &&str| rest.contains(&format!("<{element}")) || rest.contains(&format!(":{element}"));
    ROOTS.iter().any(|(root, inside)| own == *root && inside.iter().any(has))
}

/// What follows the root element's opening bracket: declarations and comments may stand before it.
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
