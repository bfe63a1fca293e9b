//! A store's refusals: each answer once, with a message that names the remedy.

use std::time::{Duration, Instant};

use holdfast_contract::{ExitClass, ProbeRequest, StoreFlags};

use super::{Rule, save_through};
use crate::s3_proxy::{Fault, Op, S3Proxy};
use crate::support::S3;
use snapshot_agent::verbs::probe;

fn refusal(code: &str, said: &str) -> String {
    format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{said}</Message></Error>")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_once_with_its_remedy() {
    let rows: Vec<(&str, Rule, ExitClass, &[&str])> = vec![
        (
            "a part that is too large",
            |a| if a.op == Op::Part { Fault::Answer(413, "<html>413</html>".to_owned()) } else { Fault::Pass },
            ExitClass::Config,
            &["body limit", "client_max_body_size"],
        ),
        (
            "not implemented",
            |a| {
                if a.op == Op::Create {
                    Fault::Answer(501, refusal("NotImplemented", "no uploads here"))
                } else {
                    Fault::Pass
                }
            },
            ExitClass::Config,
            &["does not know this request (NotImplemented)", "the store says: no uploads here"],
        ),
        (
            "another region, in the header",
            |_| Fault::AnswerWith(301, ["x-amz-bucket-region", "eu-west-3"], String::new()),
            ExitClass::Config,
            &["--s3-region) to eu-west-3"],
        ),
        (
            "another region, in the body",
            |_| {
                let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-2</Region></Error>";
                Fault::Answer(400, body.to_owned())
            },
            ExitClass::Config,
            &["--s3-region) to eu-west-2"],
        ),
        (
            "a page for people",
            |_| Fault::AnswerWith(200, ["content-type", "text/html; charset=utf-8"], "<html>Console</html>".to_owned()),
            ExitClass::Transient,
            &["this is not an S3 server"],
        ),
        (
            "no rights, with a word on which",
            |_| Fault::Answer(403, refusal("AccessDenied", "User backup is not authorized to perform: s3:PutObject")),
            ExitClass::Denied,
            &["not authorized to perform: s3:PutObject"],
        ),
    ];
    let s3 = S3::start().await;
    for (what, rule, class, says) in rows {
        let begun = Instant::now();
        let (failed, proxy) = save_through(&s3, rule).await;
        let error = failed.map(|saved| saved.uri).unwrap_err();
        assert!(error.class() == class && says.iter().all(|word| error.message().contains(word)), "{what}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}: {:?}", begun.elapsed());
        assert!(proxy.count(Op::Create) <= 1, "{what}: asked {} times", proxy.count(Op::Create));
    }
}

async fn probed(store: StoreFlags) -> probe::Ended {
    probe::run(ProbeRequest { store, deadline_seconds: 60, ..ProbeRequest::default() }).await.unwrap()
}

/// A bucket with a default retention: the message names the remedy, and does not list unwritten objects as left behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_wrote_nothing_leaves_nothing_and_names_the_checksum() {
    let s3 = S3::start().await;
    let proxy = S3Proxy::before(&s3, |a| match a.op {
        Op::Put | Op::Create => {
            let said = "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters";
            Fault::Answer(400, refusal("InvalidRequest", said))
        }
        Op::List | Op::Delete => Fault::Answer(403, refusal("AccessDenied", "no")),
        _ => Fault::Pass,
    })
    .await;
    let ended = probed(proxy.flags(&s3)).await;
    let failed = ended.failed.expect("nothing can be written");
    assert!(failed.class() == ExitClass::Config && failed.message().contains("checksum: SHA256"), "{failed}");
    assert_eq!(ended.probed.left_behind, None);

    let proxy = S3Proxy::before(&s3, |a| match a.op {
        Op::List | Op::Delete => Fault::Answer(403, refusal("AccessDenied", "no")),
        _ => Fault::Pass,
    })
    .await;
    let ended = probed(proxy.flags(&s3)).await;
    assert!(ended.probed.left_behind.is_some(), "{:?}", ended.probed);
}
