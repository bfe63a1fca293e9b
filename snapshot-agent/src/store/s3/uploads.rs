//! Which uploads a bucket has under way, and whether one has parts: object_store can sign such requests, and sends none.
//!
//! It decides what one page of an answer says (Amazon S3 API reference, `ListMultipartUploads` and `ListParts`), and takes
//! nothing else for one. Which uploads are dead is decided in `bucket/unnamed.rs`.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use object_store::ClientOptions;
use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use object_store::signer::Signer;
use reqwest::{Method, Url};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::error::Result;
use crate::store::bucket::http::{AtMost, Connector};
use crate::store::bucket::{Registry, UnderWay, Uploads};
use crate::store::error_class::classify;

/// One page of them; what stands behind it waits until that has gone.
const PAGE: &str = "1000";

/// Far more than such a page has, 2 MiB, and little enough for what a parser makes of a page that is something else.
const ANSWER: AtMost = AtMost(4 << 20);

/// For the address alone: nobody uses the signature.
const A_MOMENT: Duration = Duration::from_secs(1);

/// A page of uploads, by the name of its root.
#[derive(Debug, Deserialize)]
enum Page {
    #[serde(rename = "ListMultipartUploadsResult", rename_all = "PascalCase")]
    Of {
        /// Every store says it, and what stands in a store's place does not.
        #[serde(rename = "IsTruncated")]
        _truncated: bool,
        #[serde(default)]
        upload: Vec<Upload>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Upload {
    key: String,
    #[serde(rename = "UploadId")]
    id: String,
    initiated: Timestamp,
}

/// A page of an upload's parts.
#[derive(Debug, Deserialize)]
enum Parts {
    #[serde(rename = "ListPartsResult", rename_all = "PascalCase")]
    Of {
        /// Whether there are more than these.
        is_truncated: bool,
        #[serde(default)]
        part: Vec<IgnoredAny>,
    },
}

/// One bucket, asked with one pair of credentials.
pub(super) struct Asked {
    bucket: AmazonS3,
    client: HttpClient,
    region: String,
}

impl Asked {
    /// `plain`: without TLS. Nobody is contacted.
    pub(super) fn of(bucket: AmazonS3, region: &str, connector: &Connector, plain: bool) -> Result<Self> {
        let client = connector.connect(&ClientOptions::new().with_allow_http(plain));
        let client = client.map_err(|error| classify("opening the store", &error))?;
        Ok(Self { bucket, client, region: region.to_owned() })
    }

    /// What the store answers, and what time it has.
    async fn ask<T: DeserializeOwned>(&self, url: Url) -> object_store::Result<(T, Option<Timestamp>)> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = Method::GET;
        request.extensions_mut().insert(ANSWER);
        *request.uri_mut() = url.as_str().parse().map_err(|error| broken(Box::new(error)))?;
        let credential = self.bucket.credentials().get_credential().await?;
        AwsAuthorizer::new(&credential, "s3", &self.region).try_authorize(&mut request, None)?;
        let answer = self.client.execute(request).await.map_err(|error| broken(Box::new(error)))?;
        let status = answer.status();
        let date = answer.headers().get("date").and_then(|date| jiff::fmt::rfc2822::parse(date.to_str().ok()?).ok());
        let body = answer.into_body().bytes().await.map_err(|error| broken(Box::new(error)))?;
        let text = String::from_utf8_lossy(&body);
        if !status.is_success() {
            return Err(broken(format!("status code: {status}: {text}").into()));
        }
        Ok((read(&text)?, date.map(|date| date.timestamp())))
    }

    /// The address of an object, which object_store alone knows in all cases.
    async fn address(&self, key: &str) -> object_store::Result<Url> {
        // As it stands: nothing in a key is to be escaped once more.
        let path = Path::parse(key)?;
        let mut url = self.bucket.signed_url(Method::GET, &path, A_MOMENT).await?;
        url.set_query(None);
        Ok(url)
    }
}

impl Registry for Asked {
    fn under_way<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, object_store::Result<Uploads>> {
        async move {
            let mut url = self.address("object").await?;
            if let Ok(mut parts) = url.path_segments_mut() {
                parts.pop();
            }
            let asked = [("max-uploads", PAGE), ("prefix", prefix), ("uploads", "")];
            url.query_pairs_mut().extend_pairs(asked);
            let (Page::Of { upload, .. }, now) = self.ask(url).await?;
            let now = now.ok_or_else(|| broken("the store does not tell its time".into()))?;
            let under_way = |Upload { key, id, initiated }| UnderWay { key, id, since: initiated };
            Ok(Uploads { under_way: upload.into_iter().map(under_way).collect(), now })
        }
        .boxed()
    }

    fn has_parts<'a>(&'a self, upload: &'a UnderWay) -> BoxFuture<'a, object_store::Result<bool>> {
        async move {
            let mut url = self.address(&upload.key).await?;
            url.query_pairs_mut().extend_pairs([("max-parts", "1"), ("uploadId", &upload.id)]);
            let (Parts::Of { is_truncated, part }, _) = self.ask(url).await?;
            Ok(is_truncated || !part.is_empty())
        }
        .boxed()
    }
}

fn read<T: DeserializeOwned>(text: &str) -> object_store::Result<T> {
    // The parser's words would quote the answer's.
    quick_xml::de::from_str(text).map_err(|_| broken("the answer is no such page".into()))
}

fn broken(source: Box<dyn std::error::Error + Send + Sync>) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_and_nothing_else_is() {
        let page = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <ListMultipartUploadsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Bucket>b</Bucket><KeyMarker/>\
            <Upload><Key>p/a&amp;b</Key><UploadId>X--1</UploadId><Initiator><ID>me</ID></Initiator>\
            <Initiated>2026-01-02T03:04:05.000Z</Initiated></Upload><IsTruncated>true</IsTruncated>\
            <Upload><UploadId>2</UploadId><Key>c</Key><Initiated>2026-01-02T03:04:06Z</Initiated></Upload>\
            </ListMultipartUploadsResult>";
        let said = |text: &str| {
            let Page::Of { upload, .. } = read(text).ok()?;
            Some(upload.into_iter().map(|u| (u.key, u.id, u.initiated.to_string())).collect::<Vec<_>>())
        };
        let upload = |key: &str, id: &str, since: &str| (key.to_owned(), id.to_owned(), since.to_owned());
        let both = vec![upload("p/a&b", "X--1", "2026-01-02T03:04:05Z"), upload("c", "2", "2026-01-02T03:04:06Z")];
        assert_eq!(said(page), Some(both));
        let none = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>";
        assert_eq!(said(none), Some(vec![]));
        for other in [
            "",
            "<html><body>Sign in</body></html>",
            "<ListBucketResult><Name>b</Name></ListBucketResult>",
            "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
            "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><Upload><Key>a</Key></Upload>\
             </ListMultipartUploadsResult>",
        ] {
            assert_eq!(said(other), None, "{other}");
        }
    }

    #[test]
    fn parts_are_seen() {
        let parts =
            |text: &str| read(text).ok().map(|Parts::Of { is_truncated, part }| part.len() + usize::from(is_truncated));
        let page =
            |inside: &str| format!("<ListPartsResult><IsTruncated>false</IsTruncated>{inside}</ListPartsResult>");
        assert_eq!(parts(&page("")), Some(0));
        assert_eq!(parts(&page("").replace("false", "true")), Some(1), "there are some that it does not tell");
        assert_eq!(parts(&page("<Part><PartNumber>1</PartNumber><Size>5</Size></Part>")), Some(1));
        assert_eq!(parts("<ListPartsResult></ListPartsResult>"), None);
        assert_eq!(parts("<Error><IsTruncated>false</IsTruncated></Error>"), None);
    }
}
