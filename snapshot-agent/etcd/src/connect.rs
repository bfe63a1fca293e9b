//! A connection to exactly one member, for every request to etcd.
//!
//! This file decides the connection's settings (windows, time limits, certificates, user), and how to classify etcd's answers.
//! A client with several endpoints would balance its calls, and calls must reach the chosen member, so each member has its own
//! client. The callers decide the requests; `etcd/tls.rs` classifies failed handshakes.

use std::error::Error as StdError;
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, StatusResponse};
use holdfast_contract::error::{Error, Result, beneath};
use holdfast_contract::{EtcdFlags, ExitClass, Origin};
use holdfast_io::net::dns_error::NameError;
use holdfast_io::net::{connector, dns};
use tonic::transport::Uri;
use tonic::{Code, Status};

use super::folders;
use super::tls::{self, Tls};

/// HTTP/2 windows for a member that answers within [`NEAR`]: 800 MiB/s and more. Waiting bytes take memory.
const WINDOW: u32 = 4 << 20;

/// Windows for a distant member: hyper's own (2 MiB for a stream) allow 200 MiB/s at 10 ms and 50 at 40; these allow 400 at 40.
const WINDOW_FAR: u32 = 16 << 20;

/// Maximum answer time of a near member: in the same zone within 1 ms, busy within 5.
const NEAR: Duration = Duration::from_millis(5);

/// A member that does not report its own status within this time is not healthy. Longer than one election (1 s).
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Detects a dead connection during a stream.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// etcd's error for an expired login.
const EXPIRED: &str = "invalid auth token";

/// Connects to members, one at a time, with the certificates and the user of the flags.
///
/// Holds a password and a key, so it has no `Debug`, and messages never contain them.
pub struct Dialer {
    tls: Option<Tls>,
    /// Whether `HOST:PORT` without a scheme means https.
    secure: bool,
    user: Option<User>,
    /// Requested HTTP/2 windows.
    window: Option<u32>,
}

struct User {
    name: String,
    password: String,
}

impl Dialer {
    /// Reads the files of the flags. Sends no request.
    pub fn from_flags(flags: &EtcdFlags) -> Result<Self> {
        let flags = &folders::opened(flags)?;
        let given = tls_flags(flags);
        let secure = !given.is_empty();
        let urls: Vec<_> = flags.endpoints.iter().map(|endpoint| parse(endpoint, secure)).collect::<Result<_>>()?;
        let https = urls.iter().any(is_https);
        if secure && !https {
            return Err(Error::config(format!(
                "{} cannot be used: every endpoint is http://. Begin the endpoints with https://, or omit the TLS flags",
                given.join(", ")
            )));
        }
        let tls = if https { Some(Tls::from_flags(flags)?) } else { None };
        let user = user(flags)?;
        if user.is_some() && !urls.iter().all(is_https) {
            tracing::warn!("an endpoint is http://: the password goes over the network unencrypted");
        }
        Ok(Self { tls, secure, user, window: flags.http2_window })
    }

    /// Connects to this member and reads its status, which proves the settings.
    ///
    /// A login lasts for some minutes, so calls use [`logged_in`]; an open stream continues.
    pub async fn dial(&self, endpoint: &str) -> Result<(Client, StatusResponse)> {
        let url = parse(endpoint, self.secure)?;
        match self.meet(endpoint, &url, self.window.unwrap_or(WINDOW)).await {
            // A failed handshake looks like a broken connection.
            Err(error) if error.class() == ExitClass::Transient && error.origin() != Some(Origin::Dns) => {
                match self.explain(&url).await {
                    Some(why) => Err(why.context(endpoint)),
                    None => Err(error),
                }
            }
            met => met,
        }
    }

    /// Opens another connection to a distant member, with larger windows; `None` for a near member, or if the flags set the
    /// windows. Windows cannot change later.
    pub async fn widen(&self, endpoint: &str, answered_in: Duration) -> Result<Option<(Client, StatusResponse)>> {
        if self.window.is_some() || answered_in <= NEAR {
            return Ok(None);
        }
        self.meet(endpoint, &parse(endpoint, self.secure)?, WINDOW_FAR).await.map(Some)
    }

    async fn meet(&self, endpoint: &str, url: &Uri, window: u32) -> Result<(Client, StatusResponse)> {
        let client = self.log_in(endpoint, url, window).await?;
        let status = ask(endpoint, &client, |mut client| async move { client.status().await }).await?;
        Ok((client, status))
    }

    /// Opens a connection to this member, without a login.
    pub fn channel_to(&self, endpoint: &str) -> Result<tonic::transport::Channel> {
        self.channel(endpoint, &parse(endpoint, self.secure)?, WINDOW)
    }

    /// Returns name and password of the flags.
    pub fn login(&self) -> Option<(String, String)> {
        self.user.as_ref().map(|User { name, password }| (name.clone(), password.clone()))
    }

    fn channel(&self, endpoint: &str, url: &Uri, window: u32) -> Result<tonic::transport::Channel> {
        let secure = match (&self.tls, host(url)) {
            (Some(tls), Some(host)) if is_https(url) => {
                Some(tls.towards(host).map_err(|error| error.context(endpoint))?)
            }
            _ => None,
        };
        connector::channel(url, secure, ANSWER_WITHIN, |at| {
            at.http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE)
                .initial_stream_window_size(window)
                .initial_connection_window_size(window)
        })
        .map_err(|error| Error::config(format!("{endpoint}: {error}")))
    }

    async fn log_in(&self, endpoint: &str, url: &Uri, window: u32) -> Result<Client> {
        let channel = self.channel(endpoint, url, window)?;
        let Some(User { name, password }) = &self.user else {
            return in_time(endpoint, Client::from_channel(Channel::Tonic(channel), None)).await;
        };
        let options = ConnectOptions::new().with_user(name, password);
        let logged_in = async {
            match Client::from_channel(Channel::Tonic(channel.clone()), Some(options)).await {
                // As etcdctl: without authentication the client needs no login.
                Err(etcd_client::Error::GRpcStatus(status))
                    if status_message(&status) == "authentication is not enabled" =>
                {
                    tracing::warn!(endpoint, "etcd has authentication disabled: --user is not needed");
                    Client::from_channel(Channel::Tonic(channel), None).await
                }
                client => client,
            }
        };
        in_time(endpoint, logged_in).await
    }

    /// Returns the TLS reason for which no call succeeded, if any.
    async fn explain(&self, url: &Uri) -> Option<Error> {
        let (host, port) = (host(url)?, url.port_u16()?);
        let addresses = match dns::look_up(host).await {
            Ok(addresses) => addresses,
            Err(error) => return Some(error.to_error()),
        };
        match &self.tls {
            Some(tls) if is_https(url) => tls.explain(host, addresses, port).await,
            _ if is_https(url) => None,
            _ => tls::speaks_tls(addresses, port).await.then(|| {
                Error::config(
                    "this member speaks TLS. Begin the endpoint with https://, and name the member's CA with --cacert",
                )
            }),
        }
    }
}

/// Returns the given flags that only TLS uses.
fn tls_flags(flags: &EtcdFlags) -> Vec<&'static str> {
    let EtcdFlags { cacert, cert, key, server_name, .. } = flags;
    [
        ("--cacert", cacert.is_some()),
        ("--cert", cert.is_some()),
        ("--key", key.is_some()),
        ("--server-name", server_name.is_some()),
    ]
    .into_iter()
    .filter_map(|(flag, given)| given.then_some(flag))
    .collect()
}

/// Parses an endpoint as etcdctl does: a URL, or `HOST:PORT`, which is https if the flags name certificates (I15).
fn parse(endpoint: &str, secure: bool) -> Result<Uri> {
    if endpoint.contains('@') {
        // Without the endpoint, which may hold a password.
        return Err(Error::config(
            "an endpoint holds a user. Remove the user from the endpoint, and use --user and --password-file",
        ));
    }
    let wrong = |why: &str| {
        Error::config(format!("{endpoint} is no endpoint ({why}): https://HOST:PORT or http://HOST:PORT is expected"))
    };
    let url = match (endpoint.contains("://"), secure) {
        (true, _) => endpoint.to_owned(),
        (false, true) => format!("https://{endpoint}"),
        (false, false) => format!("http://{endpoint}"),
    };
    let url = url.parse::<Uri>().map_err(|error| wrong(&error.to_string()))?;
    match url.scheme_str() {
        _ if host(&url).is_none_or(str::is_empty) => Err(wrong("no host")),
        Some("http" | "https") if url.port_u16().is_none() => Err(wrong("no port; etcd's own is 2379")),
        Some("http" | "https") => Ok(url),
        _ => Err(wrong("another scheme")),
    }
}

fn is_https(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

/// Returns the host; an IPv6 address without its brackets.
fn host(url: &Uri) -> Option<&str> {
    let host = url.host()?;
    Some(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}

fn user(flags: &EtcdFlags) -> Result<Option<User>> {
    let (name, file) = match (&flags.user, &flags.password_file) {
        (None, None) => return Ok(None),
        // etcdctl accepts NAME:PASSWORD here. The error does not repeat it.
        (Some(name), _) if name.contains(':') => {
            return Err(Error::config("--user takes a name alone: put the password into a file for --password-file"));
        }
        (Some(name), _) if name.is_empty() => return Err(Error::config("--user is empty")),
        (Some(_), None) => {
            return Err(Error::config("--user needs --password-file: a password is only taken from a file"));
        }
        (None, Some(_)) => return Err(Error::config("--password-file needs --user")),
        (Some(name), Some(file)) => (name, file),
    };
    let wrong = |what: &str| Error::config(format!("--password-file {}: {what}", file.display()));
    let password =
        String::from_utf8(tls::read("--password-file", file)?).map_err(|_| wrong("the file is no UTF-8 text"))?;
    let password = password.strip_suffix('\n').unwrap_or(&password);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.contains('\n') {
        return Err(wrong("the file has more than one line"));
    }
    Ok(Some(User { name: name.clone(), password: password.to_owned() }))
}

/// Waits for an answer with a time limit.
pub async fn in_time<T>(endpoint: &str, call: impl Future<Output = Result<T, etcd_client::Error>>) -> Result<T> {
    match tokio::time::timeout(ANSWER_WITHIN, call).await {
        Ok(result) => result.map_err(|error| etcd_error(endpoint, &error)),
        Err(_) => Err(Error::transient(format!("{endpoint} does not answer within {} s", ANSWER_WITHIN.as_secs()))),
    }
}

/// Makes a call with a time limit, logged in.
pub async fn ask<T, C>(endpoint: &str, client: &Client, call: impl Fn(Client) -> C) -> Result<T>
where
    C: Future<Output = Result<T, etcd_client::Error>>,
{
    in_time(endpoint, logged_in(client, call)).await
}

/// Makes a call; if the login has expired, logs in again and repeats the call.
///
/// The client's own renewal does not recognize the errors of all versions' maintenance calls (3.5: `auth: invalid auth token`
/// with the code `Unknown`).
pub async fn logged_in<T, C>(client: &Client, call: impl Fn(Client) -> C) -> Result<T, etcd_client::Error>
where
    C: Future<Output = Result<T, etcd_client::Error>>,
{
    // Clones share the connection and the login.
    match call(client.clone()).await {
        Err(etcd_client::Error::GRpcStatus(status)) if status_message(&status) == EXPIRED => {
            client.refresh_token().await?;
            call(client.clone()).await
        }
        answer => answer,
    }
}

/// Classifies etcd's answer.
pub fn etcd_error(endpoint: &str, error: &etcd_client::Error) -> Error {
    let etcd_client::Error::GRpcStatus(status) = error else {
        return match error {
            etcd_client::Error::InvalidArgs(_) | etcd_client::Error::InvalidUri(_) => {
                Error::config(format!("{endpoint}: {error}"))
            }
            _ => Error::transient(format!("{endpoint}: {error}")),
        };
    };
    if let Some(name) = status.source().and_then(beneath::<NameError>) {
        return name.to_error().context(endpoint);
    }
    if let Some(remedy) = remedy(status_message(status)) {
        return Error::denied(format!("{endpoint}: {remedy} ({})", status.message()));
    }
    let message = match deepest(status) {
        Some(word) if word != status.message() => format!("{endpoint}: {}: {word}", status.message()),
        Some(_) | None => format!("{endpoint}: {}", status.message()),
    };
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => Error::denied(message),
        Code::DataLoss => Error::corrupt(message),
        Code::Unimplemented => Error::config(format!("{message} (check that the endpoint is etcd's client URL)")),
        _ => Error::transient(message),
    }
}

/// Returns etcd's error without its prefix.
fn status_message(status: &Status) -> &str {
    let message = status.message();
    ["etcdserver: ", "auth: "].into_iter().find_map(|who| message.strip_prefix(who)).unwrap_or(message)
}

/// Returns the remedy for a refusal, by its text: maintenance calls answer with the code `Unknown`.
fn remedy(message: &str) -> Option<&'static str> {
    match message {
        "user name is empty" => {
            Some("etcd has authentication enabled: give --user and --password-file of a user with the role root")
        }
        "authentication failed, invalid user ID or password" | "user name not found" => {
            Some("etcd does not know this user with this password: check --user and --password-file")
        }
        "permission denied" => Some("this user lacks the right: a snapshot needs a user with the role root"),
        EXPIRED => Some("etcd refuses a token of its own: check whether this endpoint leads to two clusters"),
        _ => None,
    }
}

/// Returns the last source, which is the operating system's own error.
fn deepest(status: &Status) -> Option<String> {
    let mut deepest = status.source()?;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    Some(deepest.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn flags(endpoints: &[&str]) -> EtcdFlags {
        EtcdFlags { endpoints: endpoints.iter().map(|e| (*e).to_owned()).collect(), ..EtcdFlags::default() }
    }

    fn refused(flags: &EtcdFlags) -> String {
        let error = Dialer::from_flags(flags).err().expect("was taken");
        assert_eq!(error.class(), ExitClass::Config, "{error}");
        error.message().to_owned()
    }

    #[test]
    fn endpoints_are_written_as_for_etcdctl() {
        for (endpoint, secure, url) in [
            ("etcd-0:2379", false, "http://etcd-0:2379/"),
            ("etcd-0:2379", true, "https://etcd-0:2379/"),
            ("http://etcd-0:2379", true, "http://etcd-0:2379/"),
            ("https://[::1]:2379/", false, "https://[::1]:2379/"),
        ] {
            assert_eq!(parse(endpoint, secure).unwrap().to_string(), url);
        }
        assert_eq!(host(&parse("https://[::1]:2379", true).unwrap()), Some("::1"));
        for endpoint in ["", "etcd-0", "https://etcd-0", "https://:2379", "unix:///run/etcd", "ftp://a:1", "a b:1"] {
            let error = parse(endpoint, false).unwrap_err();
            assert_eq!(error.class(), ExitClass::Config, "{endpoint}");
            assert!(error.message().contains("https://HOST:PORT"), "{error}");
        }
        let error = refused(&flags(&["https://root:canary@etcd-0:2379"]));
        assert!(error.contains("--password-file") && !error.contains("canary"), "{error}");
    }

    #[test]
    fn tls_flags_need_an_endpoint_with_tls() {
        let plain = flags(&["http://a:2379", "http://b:2379"]);
        for (flag, flags) in [
            ("--cacert", EtcdFlags { cacert: Some("/ca".into()), ..plain.clone() }),
            ("--cert", EtcdFlags { cert: Some("/crt".into()), ..plain.clone() }),
            ("--key", EtcdFlags { key: Some("/key".into()), ..plain.clone() }),
            ("--server-name", EtcdFlags { server_name: Some("a".to_owned()), ..plain.clone() }),
        ] {
            let error = refused(&flags);
            assert!(error.contains(flag) && error.contains("https://"), "{error}");
        }
    }

    #[test]
    fn a_password_comes_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            fs::write(folder.path().join(name), content).unwrap();
            Some(folder.path().join(name))
        };
        let with = |user: Option<&str>, password_file| EtcdFlags {
            user: user.map(str::to_owned),
            password_file,
            ..flags(&["http://a:2379"])
        };
        for (content, password) in [("canary", "canary"), ("canary\n", "canary"), ("canary \r\n", "canary ")] {
            let flags = with(Some("root"), file("good", content.as_bytes()));
            assert_eq!(user(&flags).unwrap().unwrap().password, password);
        }
        for (user, password_file, says) in [
            (Some("root"), None, "--password-file"),
            (None, file("a", b"canary"), "--user"),
            (Some("root:canary"), None, "a name alone"),
            (Some(""), file("b", b"canary"), "--user is empty"),
            (Some("root"), file("c", b"canary\nmore"), "more than one line"),
            (Some("root"), file("d", b"\n"), "is empty"),
            (Some("root"), file("e", b"canary\xff"), "UTF-8"),
            (Some("root"), Some(folder.path().join("none")), "none"),
            (Some("root"), Some(folder.path().to_owned()), "cannot be read"),
        ] {
            let error = refused(&with(user, password_file));
            assert!(error.contains(says) && !error.contains("canary"), "{says}: {error}");
        }
    }

    #[test]
    fn refusals_are_known_by_their_words() {
        let class = |code, words: &str| {
            let [server, store] = ["etcdserver", "auth"].map(|who| Status::new(code, format!("{who}: {words}")));
            let [server, store] =
                [server, store].map(|status| etcd_error("e", &etcd_client::Error::GRpcStatus(status)).class());
            assert_eq!(server, store, "who says it does not matter");
            server
        };
        for words in ["user name is empty", "permission denied", "authentication failed, invalid user ID or password"] {
            for code in [Code::Unknown, Code::InvalidArgument, Code::PermissionDenied] {
                assert_eq!(class(code, words), ExitClass::Denied, "{words}");
            }
        }
        assert_eq!(class(Code::Unknown, "open /data/db: permission denied"), ExitClass::Transient, "its disk's word");
        assert_eq!(class(Code::InvalidArgument, "revision of auth store is old"), ExitClass::Transient);
        assert_eq!(class(Code::DataLoss, "corrupt"), ExitClass::Corrupt);
        assert_eq!(class(Code::Unimplemented, "unknown method"), ExitClass::Config);
    }
}
