//! Describes DNS answers without an address: cause and remedy, for users.
//!
//! This file decides the wording, and which of two answers is more informative. `dns.rs` decides which server is asked for
//! which name.

use std::fmt;
use std::net::IpAddr;

use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::ResponseCode;
use holdfast_contract::Origin;
use holdfast_contract::error::Error;

/// An answer without an address, in order of information: the first two prove that no address exists, the others leave that
/// open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// NXDOMAIN.
    NoSuchName,
    /// NOERROR, without an A or AAAA record.
    NoAddress,
    /// No answer within the time.
    Silent,
    /// The question could not be sent, or the answer could not be parsed.
    Unreachable(String),
    /// SERVFAIL, REFUSED and similar codes.
    Code(String),
}

impl From<&NetError> for Answer {
    fn from(error: &NetError) -> Self {
        match error {
            NetError::Dns(DnsError::NoRecordsFound(NoRecords { response_code: ResponseCode::NXDomain, .. })) => {
                Self::NoSuchName
            }
            NetError::Dns(DnsError::NoRecordsFound(_)) => Self::NoAddress,
            NetError::Dns(DnsError::ResponseCode(code)) => Self::Code(match code {
                ResponseCode::ServFail => "SERVFAIL".to_owned(),
                ResponseCode::Refused => "REFUSED".to_owned(),
                ResponseCode::FormErr => "FORMERR".to_owned(),
                ResponseCode::NotImp => "NOTIMP".to_owned(),
                other => format!("{other:?}"),
            }),
            NetError::Timeout | NetError::Busy => Self::Silent,
            other => Self::Unreachable(other.to_string()),
        }
    }
}

impl Answer {
    /// Whether the answer proves that the name has no address.
    pub(super) const fn is_no(&self) -> bool {
        matches!(self, Self::NoSuchName | Self::NoAddress)
    }
}

/// A server's answer for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAnswer {
    pub(super) server: IpAddr,
    pub(super) name: String,
    pub(super) answer: Answer,
}

/// Reason for which a name has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    /// The requested name.
    host: String,
    /// The most informative answer; `None`: DNS has no such names.
    answer: Option<ServerAnswer>,
    /// Whether search domains were tried too.
    searched: bool,
}

impl NameError {
    pub(super) fn new(host: &str, answer: Option<ServerAnswer>, searched: bool) -> Self {
        Self { host: host.to_owned(), answer, searched }
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = &self.host;
        let Some(ServerAnswer { server, name, answer }) = &self.answer else {
            return write!(f, "{host:?} is no name that DNS can hold: correct the host");
        };
        let also = if self.searched { ", and for the name with each search domain of /etc/resolv.conf" } else { "" };
        match answer {
            Answer::NoSuchName => write!(
                f,
                "DNS server {server} answers NXDOMAIN for {host}{also}: correct the name, or create its DNS record"
            ),
            Answer::NoAddress => write!(
                f,
                "DNS server {server} knows {host} and has neither an A nor an AAAA record for it{also}: create one of them"
            ),
            Answer::Silent => write!(
                f,
                "DNS server {server} does not answer for {name}: check the DNS server, and that network policies allow \
                 port 53 with UDP and TCP"
            ),
            Answer::Unreachable(why) => write!(
                f,
                "DNS server {server} cannot be asked for {name} ({why}): check the nameserver lines of /etc/resolv.conf, \
                 and the DNS server"
            ),
            Answer::Code(code) => write!(
                f,
                "DNS server {server} answers {code} for {name}: look at the log of that DNS server (in Kubernetes CoreDNS), \
                 and at the servers to which it forwards"
            ),
        }
    }
}

impl std::error::Error for NameError {}

impl NameError {
    /// Converts the error: a DNS server may answer differently at the next attempt.
    pub fn to_error(&self) -> Error {
        Error::transient(self.to_string()).with_origin(Origin::Dns)
    }
}
