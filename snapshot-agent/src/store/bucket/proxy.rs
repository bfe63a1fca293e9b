//! What may stand between here and a store: the proxies that the environment names, as other programs know them (curl(1),
//! "ENVIRONMENT").
//!
//! It decides which of them are taken, and says of a store that it is reached through one. Which requests go through it
//! reqwest decides, by the same rules.

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;

use super::address;
use crate::error::{Error, Result};

/// Where the environment names one.
const NAMES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// Refuses what the environment names if it can be no proxy, or is where a node's own identity is handed out.
///
/// # Errors
///
/// [`ExitClass::Config`](crate::contract::ExitClass::Config), with the variable and without its value: a password may be in
/// it.
pub(super) fn check() -> Result<()> {
    NAMES.into_iter().try_for_each(|name| match std::env::var_os(name) {
        Some(value) if !value.is_empty() => is_one(name, &value.to_string_lossy()).map(drop),
        Some(_) | None => Ok(()),
    })
}

/// Whether this can stand for a proxy where everybody reads it.
///
/// # Errors
///
/// What is wrong with it, and never a password that is in it.
pub fn proxy(value: &str) -> std::result::Result<(), String> {
    let url = is_one("it", value).map_err(|error| error.message().to_owned())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "the URL holds a user or a password, which every Pod would show. Let the proxy admit the Pods by their \
             addresses, or put a second proxy in between that logs in"
                .to_owned(),
        );
    }
    Ok(())
}

/// Whether this can say what is reached without a proxy.
///
/// # Errors
///
/// The entry that would never be one, and how they are written.
pub fn no_proxy(list: &str) -> std::result::Result<(), String> {
    let wrong = |entry: &&str| *entry != "*" && entry.contains(|c: char| c.is_whitespace() || "*;".contains(c));
    match list.split(',').map(str::trim).find(wrong) {
        Some(entry) => Err(format!("{entry:?} is no name, domain or network: .svc,10.0.0.0/8")),
        None => Ok(()),
    }
}

fn is_one(name: &str, value: &str) -> Result<Url> {
    // So much may be left out.
    let whole = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    let is_bare = |url: &Url| url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let url = Url::parse(&whole).ok().filter(|url| matches!(url.scheme(), "http" | "https") && is_bare(url));
    // What reqwest does not understand it passes over, and nothing would go through a proxy.
    let understood = url.filter(|url| host_of(&Matcher::builder().all(value).build(), ANY) == url.host_str().map(bare));
    let url = understood.ok_or_else(|| {
        Error::config(format!(
            "{name} names no proxy: http://host:port or https://host:port is expected, without a path"
        ))
    })?;
    let host = url.host_str().unwrap_or_default();
    address::check(name, &format!("http://{host}"))?;
    Ok(url)
}

/// An endpoint for which any proxy is asked.
const ANY: &str = "https://store.invalid";

/// The host of the proxy that this endpoint is asked through.
fn host_of(proxies: &Matcher, endpoint: &str) -> Option<String> {
    Some(bare(proxies.intercept(&endpoint.parse().ok()?)?.uri().host()?))
}

fn bare(host: &str) -> String {
    host.trim_matches(['[', ']']).to_ascii_lowercase()
}

/// Of an endpoint that is asked through a proxy: which, for people.
pub(in crate::store) fn through(endpoint: &str) -> String {
    named(&Matcher::from_env(), endpoint)
}

fn named(proxies: &Matcher, endpoint: &str) -> String {
    let found = endpoint.parse().ok().and_then(|endpoint| proxies.intercept(&endpoint));
    // Whoever logs in there does so with what stands before the name.
    let place = found.and_then(|proxy| {
        let host = proxy.uri().authority()?.as_str().rsplit('@').next()?.to_owned();
        Some(format!(", through the proxy {}://{host}", proxy.uri().scheme_str()?))
    });
    place.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_a_proxy_and_may() {
        for good in ["http://proxy:3128", "https://proxy.example.org", "proxy:3128", "http://10.0.0.9:8080/"] {
            assert_eq!(proxy(good), Ok(()));
        }
        for (bad, why) in [
            ("socks5://proxy:1080", "names no proxy"),
            ("http://", "names no proxy"),
            ("", "names no proxy"),
            // As a line of a file.
            ("http://proxy:3128\n", "names no proxy"),
            ("http://proxy:3128 ", "names no proxy"),
            ("http:///proxy:3128", "names no proxy"),
            ("http://proxy:3128/?token=hidden", "names no proxy"),
            ("http://proxy:3128/hidden", "names no proxy"),
            ("http://me:12/hidden@proxy:3128", "names no proxy"),
            ("http://169.254.169.254:80", "identity"),
            ("169.254.169.254", "identity"),
            ("http://[fd00:ec2::254]", "identity"),
            ("http://metadata.google.internal", "identity"),
            ("http://me:hidden@proxy:3128", "a user or a password"),
            ("http://me@proxy:3128", "a user or a password"),
            ("http://me:hidden@169.254.169.254", "identity"),
        ] {
            let told = proxy(bad).unwrap_err();
            assert!(told.contains(why) && !told.contains("hidden"), "{bad}: {told}");
        }
    }

    #[test]
    fn what_is_reached_without_one_is_a_list_that_is_understood() {
        for good in ["", "*", ".svc", ".svc,10.0.0.0/8", ".svc, example.org , ::1", "localhost,127.0.0.1"] {
            assert_eq!(no_proxy(good), Ok(()), "{good}");
        }
        for bad in ["*.svc", ".svc;.cluster.local", ".svc .local"] {
            let told = no_proxy(bad).unwrap_err();
            assert!(told.contains(bad) && told.contains(".svc,10.0.0.0/8"), "{told}");
        }
    }

    #[test]
    fn a_store_behind_one_is_told_with_it() {
        let proxies =
            Matcher::builder().https("http://me:hidden@proxy:3128").http("plain:8080").no(".svc,10.0.0.0/8").build();
        for (endpoint, told) in [
            ("https://s3.eu-west-1.amazonaws.com", ", through the proxy http://proxy:3128"),
            ("http://minio.example.org:9000", ", through the proxy http://plain:8080"),
            ("http://minio.store.svc:9000", ""),
            ("https://10.1.2.3", ""),
            ("no endpoint", ""),
        ] {
            assert_eq!(named(&proxies, endpoint), told, "{endpoint}");
        }
    }
}
