//! The connection to the API server: the kubeconfig, the proxy, and the addresses.
//!
//! Decides like kubectl: skips missing files in `KUBECONFIG`, prefers a cluster's `proxy-url` to the environment, and compares
//! `NO_PROXY` with the API server's name. kube's own client uses musl's resolver, which fails for names that other resolvers
//! find (`holdfast_io::net::dns`), and compares `NO_PROXY` with the proxy's name; so this file assembles the client's
//! layers, in kube's own order.

#![allow(clippy::disallowed_types, reason = "makes the client for the operator and for commands")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use holdfast_io::net::connector;
use holdfast_io::net::no_proxy::exceptions;
use hyper::Uri;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::Connection;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};

/// Address of the API server, and the proxy to use.
#[derive(Clone, Debug)]
pub struct Way {
    /// Address, certificates, login, and time limits.
    pub config: Config,
    proxy: Option<Intercept>,
}

impl Way {
    /// Reads the kubeconfig, or else the service account of this Pod.
    ///
    /// # Errors
    /// Neither exists, or one of them is unreadable.
    pub async fn find() -> anyhow::Result<Self> {
        Self::choose(None, None).await
    }

    /// Reads this kubeconfig, or the files that `KUBECONFIG` lists, and takes this context, or the current one. Without both
    /// arguments and without a kubeconfig, reads the service account of this Pod.
    ///
    /// # Errors
    /// None of them exists, or one of them is unreadable.
    pub async fn choose(file: Option<&Path>, context: Option<&str>) -> anyhow::Result<Self> {
        let kubeconfig = match (file, std::env::var_os("KUBECONFIG").and_then(|list| existing(&list))) {
            (Some(file), _) => Kubeconfig::read_from(file),
            (None, Some(files)) => merged(&files),
            (None, None) => Kubeconfig::read(),
        };
        let found = match kubeconfig {
            Ok(kubeconfig) => Self::of_kubeconfig(kubeconfig, context).await?,
            Err(why) => Err(why),
        };
        match found {
            Ok(way) => Ok(way),
            // A command line with a file or a context excludes the service account of the Pod.
            Err(why) if file.is_some() || context.is_some() => Err(why.into()),
            Err(why) => Self::of_pod(&why),
        }
    }

    /// Takes this context of a kubeconfig, or the current one.
    async fn of_kubeconfig(
        mut kubeconfig: Kubeconfig,
        context: Option<&str>,
    ) -> anyhow::Result<Result<Self, KubeconfigError>> {
        if let Some(context) = context {
            kubeconfig.current_context = Some(context.to_owned());
        }
        let proxy_url = proxy_url(&kubeconfig);
        Ok(match Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await {
            Ok(config) => {
                let proxy = proxy(proxy_url.as_deref(), &environment(), &config.cluster_url)?;
                Ok(Self { config, proxy })
            }
            Err(why) => Err(why),
        })
    }

    /// Reads the service account of this Pod.
    fn of_pod(why: &KubeconfigError) -> anyhow::Result<Self> {
        match Config::incluster() {
            Ok(config) => Ok(Self { config, proxy: None }),
            Err(also) => bail!("no kubeconfig ({why}), and no service account of a Pod ({also})"),
        }
    }

    /// Builds a client without contacting a server.
    ///
    /// # Errors
    /// Unusable certificates or logins.
    pub fn client(&self) -> anyhow::Result<Client> {
        // With a proxy, the client dials the proxy.
        let tcp = connector::tcp(self.config.connect_timeout.unwrap_or(connector::CONNECT_WITHIN));
        let Some(proxy) = &self.proxy else { return self.over(tcp) };
        let at = proxy.uri().clone();
        match at.scheme_str() {
            Some("http") => self.over(logged_in(Tunnel::new(at, tcp), proxy)),
            Some("https") => {
                let tls = self.config.rustls_https_connector_with_connector(tcp)?;
                self.over(logged_in(Tunnel::new(at, tls), proxy))
            }
            Some("socks5" | "socks5h") => {
                let socks = SocksV5::new(at, tcp);
                self.over(match proxy.raw_auth() {
                    Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
                    None => socks,
                })
            }
            other => {
                bail!("the proxy's scheme {} is not supported: use http, https or socks5", other.unwrap_or_default())
            }
        }
    }

    fn over<C>(&self, connector: C) -> anyhow::Result<Client>
    where
        C: Service<Uri> + Clone + Send + Sync + 'static,
        C::Response: Connection + hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError>,
    {
        let config = &self.config;
        let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
        connector.set_connect_timeout(config.connect_timeout);
        connector.set_read_timeout(config.read_timeout);
        connector.set_write_timeout(config.write_timeout);
        connector.set_reset_reader_on_write(config.reset_reader_on_write);
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(http);
        Ok(Client::new(service, config.default_namespace.clone()))
    }
}

fn logged_in<C>(tunnel: Tunnel<C>, proxy: &Intercept) -> Tunnel<C> {
    match proxy.basic_auth() {
        Some(login) => tunnel.with_auth(login.clone()),
        None => tunnel,
    }
}

/// Reads the proxies of the environment like kubectl: without `ALL_PROXY`, and with addresses among the exceptions.
fn environment() -> Matcher {
    let read = |name: &str| std::env::var_os(name)?.into_string().ok().filter(|value| !value.is_empty());
    let read_first = |names: [&str; 2]| names.into_iter().find_map(read).unwrap_or_default();
    let except = exceptions(&read_first(["NO_PROXY", "no_proxy"]));
    Matcher::builder()
        .http(read_first(["HTTP_PROXY", "http_proxy"]))
        .https(read_first(["HTTPS_PROXY", "https_proxy"]))
        .no(except)
        .build()
}

/// Returns the existing files of a list; `None`: no file exists.
fn existing(list: &OsStr) -> Option<Vec<PathBuf>> {
    let files: Vec<_> = std::env::split_paths(list).filter(|file| file.exists()).collect();
    (!files.is_empty()).then_some(files)
}

fn merged(files: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
    files.iter().try_fold(Kubeconfig::default(), |all, file| all.merge(Kubeconfig::read_from(file)?))
}

/// Returns the `proxy-url` of the current context's cluster.
fn proxy_url(kubeconfig: &Kubeconfig) -> Option<String> {
    let named = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == *named)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.clone().filter(|url| !url.is_empty())
}

/// Returns the proxy for this API server. The environment's proxy is never used for an address of this machine (Go:
/// `http.ProxyFromEnvironment`).
fn proxy(proxy_url: Option<&str>, environment: &Matcher, api_server: &Uri) -> anyhow::Result<Option<Intercept>> {
    let Some(url) = proxy_url else {
        let host = api_server.host().unwrap_or_default().trim_matches(['[', ']']);
        let own = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        return Ok(environment.intercept(api_server).filter(|_| !own));
    };
    let found = Matcher::builder().all(url).build().intercept(api_server);
    // The error omits the URL, which may contain a password.
    found
        .map(Some)
        .context("proxy-url in the kubeconfig is no proxy: http://, https:// or socks5://host:port is expected")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Mutex;

    use super::*;

    fn chosen(proxy_url: Option<&str>, environment: &Matcher, at: &str) -> Option<String> {
        let found = proxy(proxy_url, environment, &at.parse().unwrap()).unwrap();
        found.map(|proxy| proxy.uri().to_string().trim_end_matches('/').to_owned())
    }

    #[test]
    fn a_proxy_is_chosen_as_kubectl_does() {
        let of = |no: &str| Matcher::builder().https("http://proxy:3128").no(no).build();
        let api = "https://api.example.com:6443";
        assert_eq!(chosen(None, &of(""), api).as_deref(), Some("http://proxy:3128"));
        for no in ["*", "example.com", "api.example.com"] {
            assert_eq!(chosen(None, &of(no), api), None, "{no}");
            let named = chosen(Some("socks5://other:1080"), &of(no), api);
            assert_eq!(named.as_deref(), Some("socks5://other:1080"), "NO_PROXY is not for proxy-url");
        }
        // kube would compare the list with the proxy's own name.
        assert_eq!(chosen(None, &of("proxy"), api).as_deref(), Some("http://proxy:3128"));
        for own in ["https://127.0.0.1:6443", "https://[::1]:6443", "https://localhost:6443"] {
            assert_eq!(chosen(None, &of(""), own), None);
        }
        let wrong = proxy(Some("ftp://me:canary@x"), &of(""), &api.parse().unwrap()).unwrap_err().to_string();
        assert!(wrong.contains("proxy-url") && !wrong.contains("canary"), "{wrong}");
    }

    #[test]
    fn the_current_contexts_cluster_names_the_proxy() {
        let text = "{clusters: [{name: a, cluster: {server: 'https://a', proxy-url: 'http://p:1'}}, \
                    {name: b, cluster: {server: 'https://b'}}], \
                    contexts: [{name: x, context: {cluster: a}}, {name: y, context: {cluster: b}}], current-context: ";
        let of = |current: &str| proxy_url(&serde_saphyr::from_str(&format!("{text}{current}}}")).unwrap());
        assert_eq!(of("x").as_deref(), Some("http://p:1"));
        assert_eq!(of("y"), None);
    }

    #[test]
    fn files_that_do_not_exist_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            folder.path().join(name)
        };
        let here = file("here", "{clusters: [{name: a, cluster: {server: 'https://a'}}], current-context: x}");
        let more = file("more", "{contexts: [{name: x, context: {cluster: a}}], current-context: y}");
        let list = std::env::join_paths([folder.path().join("gone"), here, more]).unwrap();
        let read = merged(&existing(&list).unwrap()).unwrap();
        assert_eq!((read.clusters.len(), read.contexts.len(), read.current_context.as_deref()), (1, 1, Some("x")));
        assert_eq!(existing(folder.path().join("gone").as_os_str()), None);
    }

    #[tokio::test]
    async fn a_named_context_is_taken_and_a_wrong_one_is_not_the_pods() {
        let folder = tempfile::tempdir().unwrap();
        let text = "{clusters: [{name: a, cluster: {server: 'http://a'}}, {name: b, cluster: {server: 'http://b'}}], \
                    users: [{name: u, user: {}}], contexts: [{name: x, context: {cluster: a, user: u, namespace: n}}, \
                    {name: y, context: {cluster: b, user: u}}], current-context: x}";
        let file = folder.path().join("config");
        std::fs::write(&file, text).unwrap();
        let chosen = async |context| {
            let way = Way::choose(Some(&file), context).await.map_err(|error| error.to_string())?;
            Ok::<_, String>((way.config.cluster_url.host().unwrap().to_owned(), way.config.default_namespace))
        };
        assert_eq!(chosen(None).await, Ok(("a".to_owned(), "n".to_owned())));
        assert_eq!(chosen(Some("y")).await, Ok(("b".to_owned(), "default".to_owned())));
        let wrong = chosen(Some("z")).await.unwrap_err();
        assert!(wrong.contains('z') && !wrong.contains("Pod"), "{wrong}");
        let gone = Way::choose(Some(&folder.path().join("gone")), None).await.unwrap_err().to_string();
        assert!(!gone.contains("Pod"), "{gone}");
    }

    /// A proxy that records the requested address, and then answers like the API server.
    async fn proxied(scheme: &str) -> (String, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(vec![]));
        let (to, socks) = (Arc::clone(&heard), scheme == "socks5");
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 4096];
            let mut note = async |socket: &mut tokio::net::TcpStream, answer: &[u8]| {
                let read = socket.read(&mut buffer).await.unwrap();
                to.lock().await.extend_from_slice(&buffer[..read]);
                socket.write_all(answer).await.unwrap();
            };
            if socks {
                note(&mut socket, &[5, 0]).await;
                note(&mut socket, &[5, 0, 0, 1, 127, 0, 0, 1, 0, 1]).await;
            } else {
                note(&mut socket, b"HTTP/1.1 200 OK\r\n\r\n").await;
            }
            let version = r#"{"major":"1","minor":"33","gitVersion":"v1.33.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{version}", version.len());
            note(&mut socket, answer.as_bytes()).await;
        });
        let url = format!("{scheme}://{at}");
        // Without TLS a client would send its request to the proxy itself; the tunnel is the same.
        let config = Config::new("http://api.nowhere.invalid:6443".parse().unwrap());
        let proxy = proxy(Some(&url), &Matcher::builder().build(), &config.cluster_url).unwrap();
        holdfast_io::crypto::install_crypto();
        let version = Way { config, proxy }.client().unwrap().apiserver_version().await.unwrap();
        let heard = String::from_utf8_lossy(&heard.lock().await).into_owned();
        (version.git_version, heard)
    }

    #[tokio::test]
    async fn the_api_server_is_reached_through_a_proxy_which_looks_the_name_up() {
        for scheme in ["http", "socks5"] {
            let (version, heard) = proxied(scheme).await;
            assert_eq!(version, "v1.33.0", "{scheme}");
            assert!(heard.contains("api.nowhere.invalid"), "{scheme}: {heard}");
        }
    }
}
