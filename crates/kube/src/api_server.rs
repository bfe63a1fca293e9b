//! The connection to the API server: the kubeconfig, the proxy, and the addresses. `exec_login.rs` runs a login program.
//!
//! Decides like kubectl: skips missing files in `KUBECONFIG`, prefers a cluster's `proxy-url` to the environment, and compares
//! `NO_PROXY` with the API server's name. kube's own client uses musl's resolver, which fails for names that other resolvers
//! find (`holdfast_io::net::dns`), and compares `NO_PROXY` with the proxy's name; so this file assembles the client's
//! layers, in kube's own order.

#![allow(clippy::disallowed_types, reason = "makes the client for the operator and for commands")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;

use anyhow::{Context, anyhow, bail};
use futures::future::BoxFuture;
use holdfast_io::net::connector;
use holdfast_io::net::no_proxy::exceptions;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::Connection;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::sync::Mutex;
use tower::retry::RetryLayer;
use tower::util::BoxCloneService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};

use crate::exec_login::ExecLogin;

/// Address of the API server, and the proxy to use.
#[derive(Clone, Debug)]
pub struct Way {
    /// Address, certificates, login, and time limits.
    pub config: Config,
    proxy: Option<Intercept>,
    login: Option<Arc<ExecLogin>>,
}

/// The layers below a client.
type Layers = BoxCloneService<Request<Body>, Response<Incoming>, BoxError>;

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
            Ok(mut config) => {
                let proxy = proxy(proxy_url.as_deref(), &environment(), &config.cluster_url)?;
                check_provider(&config.auth_info)?;
                let other = config.auth_info.token.is_some() || config.auth_info.token_file.is_some();
                let exec = config.auth_info.exec.take().filter(|_| !other);
                Ok(Self { config, proxy, login: exec.map(|exec| Arc::new(ExecLogin::new(exec))) })
            }
            Err(why) => Err(why),
        })
    }

    /// Reads the service account of this Pod.
    fn of_pod(why: &KubeconfigError) -> anyhow::Result<Self> {
        match Config::incluster() {
            Ok(config) => Ok(Self { config, proxy: None, login: None }),
            Err(also) => bail!("no kubeconfig ({why}), and no service account of a Pod ({also})"),
        }
    }

    /// Runs the kubeconfig's login program, if the kubeconfig names one: the program may ask a person, and a request has a deadline.
    ///
    /// # Errors
    /// The program fails.
    pub async fn sign_in(&self) -> anyhow::Result<()> {
        match &self.login {
            Some(login) => login.present().await.map(drop),
            None => Ok(()),
        }
    }

    /// Builds a client without contacting a server.
    ///
    /// # Errors
    /// Unusable certificates or logins.
    pub fn client(&self) -> anyhow::Result<Client> {
        let namespace = self.config.default_namespace.clone();
        Ok(match &self.login {
            Some(login) => {
                let (way, login) = (Arc::new(Self { login: None, ..self.clone() }), Arc::clone(login));
                Client::new(Renewed { way, login, present: Arc::default() }, namespace)
            }
            None => Client::new(self.layers()?, namespace),
        })
    }

    fn layers(&self) -> anyhow::Result<Layers> {
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

    fn over<C>(&self, connector: C) -> anyhow::Result<Layers>
    where
        C: Service<Uri> + Clone + Send + Sync + 'static,
        C::Response: Connection + hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError>,
    {
        let config = &self.config;
        let tls = config.rustls_https_connector_with_connector(connector).map_err(explain_certificate)?;
        let mut connector = TimeoutConnector::new(tls);
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
        Ok(BoxCloneService::new(service))
    }
}

/// The layers with the present login of a login program. A certificate belongs to its connections, so another login gets connections
/// of its own.
#[derive(Clone)]
struct Renewed {
    way: Arc<Way>,
    login: Arc<ExecLogin>,
    /// Number of the program's run, and the layers with its login.
    present: Arc<Mutex<Option<(u64, Layers)>>>,
}

impl Renewed {
    async fn layers(&self) -> anyhow::Result<(u64, Layers)> {
        let (number, login) = self.login.present().await?;
        let mut present = self.present.lock().await;
        if let Some((_, layers)) = present.as_ref().filter(|(of, _)| *of == number) {
            return Ok((number, layers.clone()));
        }
        let mut way = (*self.way).clone();
        login.put_into(&mut way.config.auth_info);
        let layers = way.layers()?;
        *present = Some((number, layers.clone()));
        Ok((number, layers))
    }
}

impl Service<Request<Body>> for Renewed {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let renewed = self.clone();
        Box::pin(async move {
            // One text: people read the innermost error alone.
            let (number, layers) = renewed.layers().await.map_err(|error| BoxError::from(format!("{error:#}")))?;
            let answer = layers.oneshot(request).await?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                renewed.login.refuse(number).await;
            }
            Ok(answer)
        })
    }
}

/// Refuses a login that kubectl has dropped, or that needs a program.
fn check_provider(user: &AuthInfo) -> anyhow::Result<()> {
    let Some(provider) = &user.auth_provider else { return Ok(()) };
    match provider.name.as_str() {
        "oidc" if provider.config.contains_key("id-token") => Ok(()),
        "gcp" if provider.config.contains_key("access-token") || provider.config.contains_key("cmd-path") => Ok(()),
        name => bail!(
            "the kubeconfig's user has the auth-provider {name}, which Holdfast does not support, as kubectl since 1.26. Name a login \
             program in users[].user.exec instead: kubelogin for azure and oidc, gke-gcloud-auth-plugin for gcp"
        ),
    }
}

/// Returns the error about TLS: kube blames a client certificate that rustls refuses on the key.
fn explain_certificate(error: kube::Error) -> anyhow::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(rustls::Error::InvalidCertificate(why)) = inner.downcast_ref::<rustls::Error>() {
            return anyhow!(
                "the client certificate of the kubeconfig's user cannot be used ({why:?}): it has to be an X.509 certificate of version \
                 3 (openssl x509 -noout -text shows the version). Ask for another certificate"
            );
        }
        cause = inner.source();
    }
    error.into()
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

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

    /// A certificate of version 1, as an old CA script makes it, and its key; both for this test alone.
    const OLD_CERTIFICATE: &str = concat!(
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJGRENCdXdJVU5TdG90emRRVkRrZnBxNmw2dEhWMmtHck1ITXdDZ1lJS29a",
        "SXpqMEVBd0l3RFRFTE1Ba0cKQTFVRUF3d0NiV1V3SGhjTk1qWXhNVEk0TVRrek1qQTNXaGNOTXpZeE1USTFNVGt6TWpBM1dqQU5N",
        "UXN3Q1FZRApWUVFEREFKdFpUQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQUJMTDVNdm9hYThyUlAxK0YzRUJVCmdx",
        "LzRmdG1Wc0RsZmgvVVZ0UWRDNit0YXVpNHpXKzIrdHhSWE1kN25TOHlvZmIvMjlROENEWi96SjN4UFZNN0gKbWg4d0NnWUlLb1pJ",
        "emowRUF3SURTQUF3UlFJZ2Jhd1JYOTVvaEFUa1crRmZBNEg2UWV4Z1RvK1pDYW0wMUlULwp6Ukk4eFlBQ0lRRElYTDZ2N1IzMEJh",
        "ak42RVdaQmJZb0RhQjVJQVhsbVVyQkRkYjVMWmFvMEE9PQotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg==",
    );
    const ITS_KEY: &str = concat!(
        "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1JR0hBZ0VBTUJNR0J5cUdTTTQ5QWdFR0NDcUdTTTQ5QXdFSEJHMHdhd0lCQVFR",
        "Z0RsSUVoajVkakVPVStqUFAKbEVzZ2FrUU9BRERCRllXQmh2aStxMFBER3hPaFJBTkNBQVN5K1RMNkdtdkswVDlmaGR4QVZJS3Yr",
        "SDdabGJBNQpYNGYxRmJVSFF1dnJXcm91TTF2dHZyY1VWekhlNTB2TXFIMi85dlVQQWcyZjh5ZDhUMVRPeDVvZgotLS0tLUVORCBQ",
        "UklWQVRFIEtFWS0tLS0tCg==",
    );

    #[test]
    fn an_old_certificate_is_not_blamed_on_its_key() {
        holdfast_io::crypto::install_crypto();
        let mut config = Config::new("https://127.0.0.1:6443".parse().unwrap());
        config.root_cert = Some(vec![]);
        config.auth_info.client_certificate_data = Some(OLD_CERTIFICATE.to_owned());
        config.auth_info.client_key_data = Some(ITS_KEY.to_owned().into());
        let refused = Way { config, proxy: None, login: None }.client().err().unwrap().to_string();
        assert!(refused.contains("client certificate") && refused.contains("version 3"), "{refused}");
        assert!(!refused.contains("private key"), "{refused}");
    }

    #[test]
    fn a_login_that_kubectl_has_dropped_is_named_with_its_successor() {
        let user = |text: &str| serde_saphyr::from_str::<AuthInfo>(text).unwrap();
        let azure = check_provider(&user("auth-provider: {name: azure, config: {}}")).unwrap_err().to_string();
        assert!(azure.contains("auth-provider azure") && azure.contains("kubelogin"), "{azure}");
        assert!(check_provider(&user("auth-provider: {name: oidc, config: {id-token: t}}")).is_ok());
        assert!(check_provider(&user("{}")).is_ok());
    }

    /// An API server that notes the login of each request.
    async fn api_server() -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        let logins = Arc::new(Mutex::new(vec![]));
        let noted = Arc::clone(&logins);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut buffer = vec![0; 4096];
                let read = socket.read(&mut buffer).await.unwrap();
                let text = String::from_utf8_lossy(&buffer[..read]).to_lowercase();
                let login = text.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or_default();
                noted.lock().await.push(login.trim().to_owned());
                let body = r#"{"major":"1","minor":"33","gitVersion":"v1.33.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;
                let answer =
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (at, logins)
    }

    #[tokio::test]
    async fn a_login_program_runs_once_for_all_clients_and_requests() {
        holdfast_io::crypto::install_crypto();
        let (at, logins) = api_server().await;
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let program = folder.path().join("login");
        let until = holdfast_io::clock::now() + jiff::SignedDuration::from_secs(60);
        let credential = format!(r#"{{"status": {{"token": "t", "expirationTimestamp": "{until}"}}}}"#);
        std::fs::write(&program, format!("echo x >> {}\necho '{credential}'\n", runs.display())).unwrap();
        let text = format!(
            "{{clusters: [{{name: a, cluster: {{server: '{at}'}}}}], users: [{{name: u, user: {{exec: {{command: sh, \
             interactiveMode: Never, args: ['{}']}}}}}}], contexts: [{{name: x, context: {{cluster: a, user: u}}}}], current-context: x}}",
            program.display()
        );
        let file = folder.path().join("config");
        std::fs::write(&file, text).unwrap();
        let way = Way::choose(Some(&file), None).await.unwrap();
        way.sign_in().await.unwrap();
        for client in [way.client().unwrap(), way.client().unwrap()] {
            for _ in 0..3 {
                assert_eq!(client.apiserver_version().await.unwrap().git_version, "v1.33.0");
            }
        }
        assert_eq!(*logins.lock().await, vec!["bearer t"; 6]);
        assert_eq!(std::fs::read_to_string(runs).unwrap().lines().count(), 1);
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
        let version = Way { config, proxy, login: None }.client().unwrap().apiserver_version().await.unwrap();
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
