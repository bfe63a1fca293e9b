//! Hosts that are reached without a proxy, as the variable `NO_PROXY` lists them. Decides nothing but the spelling.

use std::net::SocketAddr;

/// Converts a list of exceptions for reqwest and hyper, where `*` matches names only and an address has no port.
pub fn exceptions(list: &str) -> String {
    let entries = list.split(',').map(str::trim).map(|entry| match entry.parse::<SocketAddr>() {
        Ok(at) => at.ip().to_string(),
        Err(_) if entry == "*" => "*,0.0.0.0/0,::/0".to_owned(),
        Err(_) => entry.to_owned(),
    });
    entries.collect::<Vec<_>>().join(",")
}
