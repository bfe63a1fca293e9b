//! TLS with etcd: trusted CAs, the client certificate, and the cause of a failed handshake.
//!
//! This file decides which TLS errors are final, because the same files and names fail again, and names a remedy for each. A
//! call over a broken handshake only reports a broken connection (a server refuses a client certificate after the client has
//! started to send), so the agent repeats the handshake alone and reads the server's alert. Messages never contain the content
//! of the files.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_contract::EtcdFlags;
use holdfast_contract::error::{Error, Result};
use holdfast_io::crypto::install_crypto;
use holdfast_io::net::connector::{H2, Secure};
use holdfast_io::net::{refusal, trust};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore, SignatureScheme};

/// A server reports a refused client certificate within one round trip.
const LISTEN: Duration = Duration::from_secs(1);

/// Time for a repeated handshake.
const HANDSHAKE: Duration = Duration::from_secs(3);

const NO_TLS: &str = "the endpoint does not speak TLS. Begin the endpoint with http:// if this etcd runs without TLS \
                      on purpose";

/// The certificates of a run.
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    /// The trusted CAs, for messages.
    trusted: String,
    /// The file of the client certificate, for messages.
    shown: Option<String>,
}

impl Tls {
    /// Reads the files of the flags.
    pub fn from_flags(flags: &EtcdFlags) -> Result<Self> {
        let (anchors, trusted) = anchors(flags.cacert.as_deref())?;
        let server_name = flags.server_name.as_ref().map(|name| {
            let wrong = |_| Error::config(format!("--server-name {name:?} is neither a host's name nor an IP address"));
            ServerName::try_from(name.clone()).map_err(wrong)
        });
        let server_name = server_name.transpose()?;
        let (login, shown) = match (&flags.cert, &flags.key) {
            (None, None) => (None, None),
            (Some(cert), Some(key)) => {
                let (cert_pem, key_pem) = (read("--cert", cert)?, read("--key", key)?);
                let chain = certificates("--cert", cert, &cert_pem)?;
                // The library's error could quote the file.
                let secret = PrivateKeyDer::from_pem_slice(&key_pem)
                    .map_err(|_| wrong("--key", key, "the file holds no PEM private key, or an encrypted key"))?;
                (Some(((chain, secret), cert, key)), Some(cert.display().to_string()))
            }
            (Some(_), None) => return Err(Error::config("--cert needs --key, the file of its private key")),
            (None, Some(_)) => return Err(Error::config("--key needs --cert, the file of its certificate")),
        };
        let files = login.as_ref().map(|(_, cert, key)| (*cert, *key));
        let mut config = trust::client(anchors, login.map(|(login, ..)| login)).map_err(|error| match files {
            Some((cert, key)) => unfit(&error, cert, key),
            None => Error::config(format!("TLS cannot be set up: {error}")),
        })?;
        config.alpn_protocols.push(H2.to_vec());
        Ok(Self { config: Arc::new(config), server_name, trusted, shown })
    }

    /// Returns the TLS settings for this host.
    pub fn towards(&self, host: &str) -> Result<Secure> {
        let no_host = |_| Error::config(format!("{host:?} is neither a host's name nor an IP address"));
        let name =
            self.server_name.clone().map_or_else(|| ServerName::try_from(host.to_owned()).map_err(no_host), Ok)?;
        Ok(Secure { config: Arc::clone(&self.config), name })
    }

    /// Returns the TLS cause for which no connection to these addresses succeeded, if any.
    pub async fn explain(&self, host: &str, addresses: Vec<IpAddr>, port: u16) -> Option<Error> {
        let Secure { config, name } = self.towards(host).ok()?;
        let shown = name.to_str().into_owned();
        match listen(ClientConfig::clone(&config), name, addresses, port).await {
            Heard::Refusal { error, asked } => self.judge(&shown, &error, asked),
            Heard::Done { h2: false } => Some(Error::config(
                "the endpoint speaks TLS, but not HTTP/2. Check that the endpoint is etcd's client URL",
            )),
            Heard::Http => Some(Error::config(NO_TLS)),
            Heard::Done { h2: true } | Heard::Nothing => None,
        }
    }

    /// Classifies TLS errors that a repetition does not change.
    fn judge(&self, name: &str, error: &rustls::Error, asked: bool) -> Option<Error> {
        use CertificateError as C;
        use rustls::Error as E;
        let config = |what: String| Some(Error::config(what));
        match error {
            E::InvalidCertificate(why) => {
                let flag = match why {
                    C::UnknownIssuer | C::BadSignature => ": --cacert has to name that CA",
                    C::NotValidForName | C::NotValidForNameContext { .. } => ": in the endpoint, or with --server-name",
                    _ => "",
                };
                config(format!("{}{flag}", refusal::describe(why, &self.trusted, name)))
            }
            E::InvalidMessage(_) => config(NO_TLS.to_owned()),
            // The alert differs between versions.
            E::AlertReceived(_) if asked => Some(Error::denied(match &self.shown {
                None => format!("etcd asks for a client certificate: give --cert and --key ({error})"),
                Some(file) => format!(
                    "etcd refuses the client certificate {file} (--cert): the certificate has to be valid, for client \
                     authentication, and signed by the CA that etcd trusts for clients ({error})"
                ),
            })),
            E::AlertReceived(_) | E::PeerIncompatible(_) | E::NoApplicationProtocol => {
                config("the endpoint refuses the TLS handshake".to_owned())
            }
            _ => None,
        }
    }
}

/// Whether the server at one of these addresses speaks TLS.
pub async fn speaks_tls(addresses: Vec<IpAddr>, port: u16) -> bool {
    install_crypto();
    let trusts_no_ca = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let Some(any) = addresses.first().map(|ip| ServerName::IpAddress((*ip).into())) else { return false };
    match listen(trusts_no_ca, any, addresses, port).await {
        Heard::Done { .. } => true,
        Heard::Refusal { error, .. } => !matches!(error, rustls::Error::InvalidMessage(_)),
        Heard::Http | Heard::Nothing => false,
    }
}

/// Result of a handshake.
enum Heard {
    Done {
        h2: bool,
    },
    /// A side refuses; `asked`: after the server had requested a client certificate.
    Refusal {
        error: rustls::Error,
        asked: bool,
    },
    /// No handshake: the server speaks HTTP without TLS.
    Http,
    Nothing,
}

/// Records whether the server requests a client certificate.
#[derive(Debug)]
struct Noticing {
    certificates: Arc<dyn ResolvesClientCert>,
    asked: AtomicBool,
}

impl ResolvesClientCert for Noticing {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.asked.store(true, Ordering::Relaxed);
        self.certificates.resolve(issuers, schemes)
    }

    fn has_certs(&self) -> bool {
        self.certificates.has_certs()
    }
}

async fn listen(mut config: ClientConfig, name: ServerName<'static>, addresses: Vec<IpAddr>, port: u16) -> Heard {
    let listening = tokio::task::spawn_blocking(move || {
        let certificates = Arc::clone(&config.client_auth_cert_resolver);
        let noticing = Arc::new(Noticing { certificates, asked: AtomicBool::new(false) });
        config.client_auth_cert_resolver = noticing.clone();
        let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let refusal = handshake(&mut connection, connect(&addresses, port)?);
        Ok(match (refusal, connection.is_handshaking()) {
            (Some(error), _) => Heard::Refusal { error, asked: noticing.asked.load(Ordering::Relaxed) },
            (None, false) => Heard::Done { h2: connection.alpn_protocol() == Some(H2) },
            (None, true) if speaks_http(connect(&addresses, port)?)? => Heard::Http,
            (None, true) => Heard::Nothing,
        })
    });
    listening.await.ok().and_then(io::Result::ok).unwrap_or(Heard::Nothing)
}

fn connect(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let at = |ip: &IpAddr| TcpStream::connect_timeout(&SocketAddr::new(*ip, port), LISTEN).ok();
    let socket = addresses.iter().find_map(at).ok_or(io::ErrorKind::ConnectionRefused)?;
    socket.set_read_timeout(Some(LISTEN))?;
    socket.set_write_timeout(Some(LISTEN))?;
    Ok(socket)
}

/// Runs a handshake and reads the server's next bytes; returns the refusal, if any.
fn handshake(connection: &mut ClientConnection, mut socket: TcpStream) -> Option<rustls::Error> {
    let until = Instant::now() + HANDSHAKE;
    while Instant::now() < until {
        match connection.complete_io(&mut socket) {
            Ok((0, 0)) => break,
            Ok(_) => {}
            // Other errors are a timeout, or the end of the connection.
            Err(error) => return error.downcast().ok(),
        }
    }
    None
}

/// Whether the server answers a request without TLS, as etcd does beside gRPC.
fn speaks_http(mut socket: TcpStream) -> io::Result<bool> {
    socket.write_all(b"GET /version HTTP/1.0\r\n\r\n")?;
    let mut answer = [0; 5];
    socket.read_exact(&mut answer)?;
    Ok(&answer == b"HTTP/")
}

/// Returns the trusted CAs, and their name for messages.
fn anchors(cacert: Option<&Path>) -> Result<(Vec<CertificateDer<'static>>, String)> {
    let Some(file) = cacert else {
        let found = rustls_native_certs::load_native_certs().certs;
        if usable(&found) == 0 {
            return Err(Error::config(
                "this system has no CA certificates: --cacert has to name the CA that signed etcd's certificate",
            ));
        }
        return Ok((found, "a CA that this system trusts".to_owned()));
    };
    let anchors = certificates("--cacert", file, &read("--cacert", file)?)?;
    if usable(&anchors) == 0 {
        return Err(wrong("--cacert", file, "the file holds no usable certificate"));
    }
    Ok((anchors, format!("the CA in {} (--cacert)", file.display())))
}

fn usable(anchors: &[CertificateDer<'static>]) -> usize {
    RootCertStore::empty().add_parsable_certificates(anchors.iter().cloned()).0
}

fn certificates(flag: &str, file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: Option<Vec<_>> = CertificateDer::pem_slice_iter(pem).map(Result::ok).collect();
    found.filter(|found| !found.is_empty()).ok_or_else(|| wrong(flag, file, "the file holds no PEM certificate"))
}

/// Reads the file of a flag.
pub fn read(flag: &str, file: &Path) -> Result<Vec<u8>> {
    let content =
        std::fs::read(file).map_err(|error| wrong(flag, file, &format!("the file cannot be read: {error}")))?;
    if content.trim_ascii().is_empty() { Err(wrong(flag, file, "the file is empty")) } else { Ok(content) }
}

fn wrong(flag: &str, file: &Path, what: &str) -> Error {
    Error::config(format!("{flag} {}: {what}", file.display()))
}

/// Returns the error of a certificate and a key that do not fit.
fn unfit(error: &rustls::Error, cert: &Path, key: &Path) -> Error {
    let why = match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("the key does not belong to the certificate in --cert {}", cert.display())
        }
        _ => format!("the key cannot be used with --cert {}: {error}", cert.display()),
    };
    wrong("--key", key, &why)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_contract::ExitClass;

    use super::*;

    #[test]
    fn one_wrong_file_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            fs::write(folder.path().join(name), content).unwrap();
            Some(folder.path().join(name))
        };
        let made = |name: &str| {
            let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            (file(&format!("{name}.crt"), &made.cert.pem()), made.signing_key.serialize_pem())
        };
        let ((cert, secret), (_, other)) = (made("a"), made("b"));
        let good =
            EtcdFlags { cacert: cert.clone(), cert: cert.clone(), key: file("a.key", &secret), ..EtcdFlags::default() };
        assert!(Tls::from_flags(&good).is_ok());
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nY2FuYXJ5\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let broken = "-----BEGIN CERTIFICATE-----\ncanary!\n-----END CERTIFICATE-----\n";
        let junk = "-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n";
        for (flag, says, flags) in [
            ("--cacert", "none", EtcdFlags { cacert: Some(folder.path().join("none")), ..good.clone() }),
            ("--cacert", "cannot be read", EtcdFlags { cacert: Some(folder.path().to_owned()), ..good.clone() }),
            ("--cacert", "is empty", EtcdFlags { cacert: file("empty", " \n"), ..good.clone() }),
            ("--cacert", "no PEM", EtcdFlags { cacert: file("text", "canary"), ..good.clone() }),
            ("--cacert", "no PEM", EtcdFlags { cacert: file("broken", broken), ..good.clone() }),
            ("--cacert", "usable", EtcdFlags { cacert: file("junk", junk), ..good.clone() }),
            ("--cacert", "no PEM", EtcdFlags { cacert: good.key.clone(), ..good.clone() }),
            ("--cert", "is empty", EtcdFlags { cert: file("empty", ""), ..good.clone() }),
            ("--cert", "no PEM", EtcdFlags { cert: file("text", "canary"), ..good.clone() }),
            ("--key", "junk", EtcdFlags { cert: file("junk", junk), ..good.clone() }),
            ("--key", "is empty", EtcdFlags { key: file("empty", ""), ..good.clone() }),
            ("--key", "no PEM private key", EtcdFlags { key: cert.clone(), ..good.clone() }),
            ("--key", "encrypted", EtcdFlags { key: file("encrypted", encrypted), ..good.clone() }),
            ("--key", "does not belong to", EtcdFlags { key: file("b.key", &other), ..good.clone() }),
            ("--key", "needs --cert", EtcdFlags { cert: None, ..good.clone() }),
            ("--cert", "needs --key", EtcdFlags { key: None, ..good.clone() }),
            ("--server-name", "neither", EtcdFlags { server_name: Some("a b".to_owned()), ..good.clone() }),
        ] {
            let error = Tls::from_flags(&flags).err().unwrap_or_else(|| panic!("{flag} {says}: was taken"));
            assert_eq!(error.class(), ExitClass::Config, "{error}");
            assert!(error.message().starts_with(flag) && error.message().contains(says), "{says}: {error}");
            for secret in secret.lines().chain(other.lines()).chain(["canary", "Y2FuYXJ5"]) {
                assert!(secret.starts_with("-----") || !error.message().contains(secret), "{error}");
            }
        }
    }
}
