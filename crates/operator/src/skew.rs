//! Difference between this machine's clock and the API server's.
//!
//! Decides whether this clock may date certificates. Before it issues a certificate, and at most once a minute, the operator
//! compares its clock with the Date header of an answer of the API server.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::ListParams;
use kube::client::Body;
use kube::core::Request;

use super::clock::{self, Instant};
use super::error::Error;

/// Tolerated difference. Certificates are valid from an hour before their issue: that also covers this difference between nodes.
const TOLERATED: SignedDuration = SignedDuration::from_mins(5);

/// A comparison counts for this long.
const FRESH: Duration = Duration::from_mins(1);

/// Deadline of the request.
const DEADLINE: Duration = Duration::from_secs(10);

/// The last comparison: its time, and how far this clock is ahead.
#[derive(Debug, Default)]
pub(super) struct Skew(Mutex<Option<(Instant, SignedDuration)>>);

impl Skew {
    /// Fails where the two clocks differ by more than five minutes.
    pub(super) async fn check(&self, api_server: &Client) -> Result<(), Error> {
        let ahead = match self.remembered() {
            Some(ahead) => ahead,
            None => self.measure(api_server).await?,
        };
        if ahead.abs() > TOLERATED { Err(Error::ClockSkewed(ahead)) } else { Ok(()) }
    }

    fn remembered(&self) -> Option<SignedDuration> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|(at, _)| at.elapsed() < FRESH).map(|(_, ahead)| ahead)
    }

    /// Measures the difference. An answer without a Date header (from a proxy) counts as no difference.
    async fn measure(&self, api_server: &Client) -> Result<SignedDuration, Error> {
        let what = || "ask the API server for its clock".to_owned();
        let request = Request::new("/version").list(&ListParams::default());
        let request = request.map_err(|error| Error::Internal(format!("{}: {error}", what())))?;
        let answer = match clock::within(DEADLINE, api_server.send(request.map(Body::from))).await {
            Some(answer) => answer.map_err(|error| Error::read(what(), error))?,
            None => return Err(Error::Timeout { what: what(), writes: false }),
        };
        let now = clock::now();
        let date = answer.headers().get("date").and_then(|date| parse(date.to_str().ok()?));
        let ahead = date.map_or(SignedDuration::ZERO, |date| now.duration_since(date));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((clock::instant(), ahead));
        Ok(ahead)
    }
}

fn parse(date: &str) -> Option<Timestamp> {
    rfc2822::parse(date).ok().map(|date| date.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    async fn checked(ahead: SignedDuration) -> Result<(), String> {
        let date = rfc2822::to_string(&(clock::now() - ahead).to_zoned(jiff::tz::TimeZone::UTC)).unwrap();
        let fake = Fake::start(vec![("GET", "/version", 200, serde_json::json!({}))]).await;
        fake.show_date(&date);
        let check = || fake.ctx.skew.check(&fake.ctx.read.0);
        let verdict = check().await.map_err(|error| error.to_string());
        assert_eq!(check().await.is_err(), verdict.is_err(), "the comparison is remembered");
        assert_eq!(fake.reads().len(), 1);
        verdict
    }

    #[tokio::test]
    async fn a_clock_that_is_off_by_more_than_five_minutes_issues_nothing() {
        for seconds in [-290, 0, 290] {
            checked(SignedDuration::from_secs(seconds)).await.unwrap();
        }
        let ahead = checked(SignedDuration::from_secs(7_200)).await.unwrap_err();
        assert!(ahead.contains("2 h ahead of"), "{ahead}");
        let behind = checked(SignedDuration::from_secs(-86_400)).await.unwrap_err();
        assert!(behind.contains("24 h behind"), "{behind}");
    }

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(parse("Thu, 01 Jan 2026 12:00:00 GMT"), "2026-01-01T12:00:00Z".parse().ok());
        assert_eq!(parse("noon"), None);
    }
}
