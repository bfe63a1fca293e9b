//! Proxies between the agent and a store, from the environment, as other programs read it (curl(1), "ENVIRONMENT").
//!
//! This file decides which proxies are accepted and how to read the list of exceptions, and describes a store that is reached
//! through a proxy. reqwest decides by that list which requests use a proxy.

use holdfast_contract::error::{Error, Result};
use holdfast_io::net::no_proxy::exceptions;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{ClientBuilder, NoProxy, Proxy, Url};

use super::address;

/// Variables that name a proxy.
const NAMES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// Refuses a variable that names no proxy, or that names a service for a node's identity.
///
/// # Errors
///
/// [`ExitClass::Config`](holdfast_contract::ExitClass::Config), with the variable and without its value, which may hold a
/// password.
pub(super) fn check() -> Result<()> {
    NAMES.into_iter().try_for_each(|name| match std::env::var_os(name) {
        Some(value) if !value.is_empty() => is_one(name, &value.to_string_lossy()).map(drop),
        Some(_) | None => Ok(()),
    })
}

/// Checks that this value can name a proxy in a public place.
///
/// # Errors
///
/// The problem, never with a password from the value.
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

/// Checks a list of exceptions.
///
/// # Errors
///
/// The invalid entry, and the syntax.
pub fn no_proxy(list: &str) -> std::result::Result<(), String> {
    let wrong = |entry: &&str| *entry != "*" && entry.contains(|c: char| c.is_whitespace() || "*;".contains(c));
    match list.split(',').map(str::trim).find(wrong) {
        Some(entry) => Err(format!("{entry:?} is no name, domain or network: .svc,10.0.0.0/8")),
        None => Ok(()),
    }
}

fn is_one(name: &str, value: &str) -> Result<Url> {
    // The scheme may be missing.
    let whole = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    let is_bare = |url: &Url| url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let url = Url::parse(&whole).ok().filter(|url| matches!(url.scheme(), "http" | "https") && is_bare(url));
    // reqwest ignores values that it does not understand, and would then use no proxy.
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

/// Returns the environment's list of exceptions.
fn except() -> Option<String> {
    ["NO_PROXY", "no_proxy"].into_iter().find_map(|name| std::env::var_os(name)?.into_string().ok())
}

/// Returns the environment's proxies for http and for https.
fn named_ones() -> [Option<String>; 2] {
    let first = |names: [&str; 2]| {
        names.into_iter().find_map(|name| std::env::var_os(name)?.into_string().ok().filter(|v| !v.is_empty()))
    };
    let all = || first(["ALL_PROXY", "all_proxy"]);
    // A web server passes the headers of a request to a program as variables: `Proxy` is such a header.
    let http = if std::env::var_os("REQUEST_METHOD").is_some() { None } else { first(["HTTP_PROXY", "http_proxy"]) };
    [http.or_else(all), first(["HTTPS_PROXY", "https_proxy"]).or_else(all)]
}

/// Adds the environment's proxies and exceptions to a client.
pub(super) fn apply(builder: ClientBuilder) -> reqwest::Result<ClientBuilder> {
    let Some(list) = except() else { return Ok(builder) };
    let except = NoProxy::from_string(&exceptions(&list));
    let [http, https] = named_ones();
    let mut builder = builder.no_proxy();
    if let Some(proxy) = http {
        builder = builder.proxy(Proxy::http(proxy)?.no_proxy(except.clone()));
    }
    if let Some(proxy) = https {
        builder = builder.proxy(Proxy::https(proxy)?.no_proxy(except));
    }
    Ok(builder)
}

/// An endpoint that goes through any proxy.
const ANY: &str = "https://store.invalid";

/// Returns the host of the proxy for this endpoint.
fn host_of(proxies: &Matcher, endpoint: &str) -> Option<String> {
    Some(bare(proxies.intercept(&endpoint.parse().ok()?)?.uri().host()?))
}

fn bare(host: &str) -> String {
    host.trim_matches(['[', ']']).to_ascii_lowercase()
}

/// Describes the proxy for an endpoint, for messages.
pub(crate) fn through(endpoint: &str) -> String {
    let [http, https] = named_ones().map(Option::unwrap_or_default);
    let except = exceptions(&except().unwrap_or_default());
    named(&Matcher::builder().http(http).https(https).no(except).build(), endpoint)
}

fn named(proxies: &Matcher, endpoint: &str) -> String {
    let found = endpoint.parse().ok().and_then(|endpoint| proxies.intercept(&endpoint));
    // The part before the host may hold credentials.
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
            // With the newline of a file.
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
    fn an_exception_is_one_for_addresses_too() {
        for (list, endpoint, direct) in [
            ("*", "http://10.0.0.5:9000", true),
            ("*", "https://[fd00::1]:9000", true),
            ("*", "https://s3.example.org", true),
            ("a.example.org, *", "http://127.0.0.1:7070", true),
            ("10.0.0.5", "http://10.0.0.5:9000", true),
            ("10.0.0.5:9000", "http://10.0.0.5:9000", true),
            ("[fd00::1]:9000", "http://[fd00::1]:9000", true),
            ("fd00::1", "http://[fd00::1]:9000", true),
            ("10.0.0.0/8", "http://10.1.2.3", true),
            ("10.0.0.6,.svc", "http://10.0.0.5:9000", false),
            ("", "http://10.0.0.5:9000", false),
        ] {
            let proxies = Matcher::builder().all("http://proxy:3128").no(exceptions(list)).build();
            assert_eq!(named(&proxies, endpoint).is_empty(), direct, "{list}: {endpoint}");
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
