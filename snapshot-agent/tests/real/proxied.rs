//! A store that is reached only through a proxy, which alone can resolve its name.
//!
//! Environment variables belong to a process, so each of these saves runs in a child of this program.

use std::process::{Command, Output};

use holdfast_contract::{Compression, SaveRequest, StoreFlags};

use crate::ports;
use crate::s3_proxy::{Fault, S3Proxy};
use crate::saving::{FAILED, SAVED, line_of, saving};
use crate::support::{Etcd, S3, save_request};

/// A name without an address (RFC 2606).
const STORE: &str = "http://store.invalid";

fn said(output: &Output) -> String {
    let [out, log] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(!out.contains("canary") && !log.contains("canary"), "{out}{log}");
    line_of(output)
}

/// A child with this request, these variables and no other variable for proxies.
fn in_environment(request: &SaveRequest, variables: &[(&str, &str)]) -> Command {
    let mut command = saving(request);
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.envs(variables.iter().copied());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_behind_a_proxy_is_reached_and_told_with_it() {
    let etcd = Etcd::start().await;
    etcd.fill(20, 1000).await;
    let s3 = S3::start().await;
    let proxy = S3Proxy::before(&s3, |_| Fault::Pass).await;
    let address = proxy.flags(&s3).s3_endpoint.unwrap();
    let login = address.replace("http://", "http://me:canary-of-the-proxy@");
    let store = StoreFlags { s3_endpoint: Some(STORE.to_owned()), s3_force_path_style: Some(true), ..s3.flags() };
    let request = save_request(etcd.flags(), store, Compression::Zstd);
    let save = async |variables: Vec<(&'static str, String)>| {
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut command = in_environment(&request, &variables);
        said(&tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
    };

    let told = save(vec![("HTTP_PROXY", login)]).await;
    let key = told.strip_prefix(SAVED).unwrap_or_else(|| panic!("{told}"));
    assert!(s3.file(key, "manifest.json").exists());
    let asked = proxy.asked();
    assert!(!asked.is_empty() && asked.iter().all(|asked| asked.uri.starts_with(STORE)), "{asked:?}");
    assert!(asked.iter().all(|asked| asked.headers.contains_key("proxy-authorization")), "it logs in");

    let nobody = format!("127.0.0.1:{}", ports::free());
    let through = format!("through the proxy http://{nobody}");
    for (variables, class, says) in [
        (vec![("HTTP_PROXY", format!("http://me:canary-of-the-proxy@{nobody}"))], "Transient", through.as_str()),
        (vec![("ALL_PROXY", nobody.clone())], "Transient", &through),
        (vec![("HTTP_PROXY", "http://169.254.169.254".to_owned())], "Config", "HTTP_PROXY"),
        (vec![("https_proxy", "socks5://canary-of-the-proxy:1080".to_owned())], "Config", "https_proxy names no proxy"),
    ] {
        let told = save(variables.clone()).await;
        assert!(
            told.starts_with(FAILED) && told.split(' ').nth(2) == Some(class) && told.contains(says),
            "{variables:?}: {told}"
        );
    }
    let before = proxy.asked().len();
    let told = save(vec![("HTTP_PROXY", address), ("NO_PROXY", ".invalid".to_owned())]).await;
    assert!(told.starts_with(FAILED) && !told.contains("through the proxy"), "{told}");
    assert_eq!(proxy.asked().len(), before, "it is asked without");
}

/// A no-proxy entry covers a store that is named by its address too.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_an_exception_is_reached_without_a_proxy() {
    let etcd = Etcd::start().await;
    etcd.fill(5, 100).await;
    let s3 = S3::start().await;
    let request = save_request(etcd.flags(), s3.flags(), Compression::Zstd);
    let nobody = format!("http://127.0.0.1:{}", ports::free());
    for (except, direct) in [("*", true), ("127.0.0.1", true), (s3.address.as_str(), true), ("10.0.0.1,.svc", false)] {
        let mut command = in_environment(&request, &[("HTTP_PROXY", &nobody), ("NO_PROXY", except)]);
        let told = said(&tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap());
        assert_eq!(told.starts_with(SAVED), direct, "{except}: {told}");
        assert_eq!(told.contains("through the proxy"), !direct, "{except}: {told}");
    }
}
