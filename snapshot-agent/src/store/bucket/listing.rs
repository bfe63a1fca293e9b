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

/// A listing that says that it goes on, and not from where: what follows would be taken for missing.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the store returned a page of a listing that is truncated and has no continuation token")]
pub(in crate::store) struct CutListing;

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

/// Whether a page of S3's protocol is not the last one and names no next one.
pub(super) fn is_cut(body: &[u8]) -> bool {
    let text = std::str::from_utf8(body).unwrap_or_default();
    text.contains("IsTruncated>true<") && !text.contains("NextContinuationToken>")
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
    fn a_page_that_is_not_the_last_one_names_the_next_one() {
        let page = |inside: &str| is_cut(format!("<ListBucketResult>{inside}</ListBucketResult>").as_bytes());
        let token = "<NextContinuationToken>x</NextContinuationToken>";
        assert!(page("<IsTruncated>true</IsTruncated><KeyCount>1000</KeyCount>"));
        assert!(page("<s3:IsTruncated>true</s3:IsTruncated>"));
        assert!(!page(&format!("<IsTruncated>true</IsTruncated>{token}")) && !page("<IsTruncated>false</IsTruncated>"));
        assert!(!page(token) && !page("<Name>backups</Name>"), "a flag may be missing");
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
