//! TLS towards etcd: whom it trusts, what it shows, and what a handshake that fails means.
//!
//! It decides which errors of TLS are final, because the same files and names will fail again, and what a person can do
//! about each. A call over a broken handshake only says that the connection broke (a server that refuses a client
//! certificate does so after the client has begun to speak), so the handshake is made once more, for its own sake, and
//! listened to. What the files hold never reaches a message.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore, SignatureScheme};
use tonic::transport::{ClientTlsConfig, Endpoint, Identity};

use crate::contract::EtcdFlags;
use crate::error::{Error, Result};
use crate::util::crypto::install_crypto;

/// A server says what it thinks of a client certificate within one round trip.
const LISTEN: Duration = Duration::from_secs(1);

/// All of a handshake that is only listened to.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// HTTP/2, the only thing that etcd's gRPC speaks.
const H2: &[u8] = b"h2";

const NO_TLS: &str = "the endpoint does not speak TLS. Begin the endpoint with http:// if this etcd runs without TLS \
                      on purpose";

/// The certificates of one run.
pub(super) struct Tls {
    /// For the connection that carries the data.
    channel: ClientTlsConfig,
    /// The same, for a handshake that is only listened to.
    config: ClientConfig,
    server_name: Option<String>,
    /// Who is trusted, for people.
    trusted: String,
    /// The file of the client certificate, for people.
    shown: Option<String>,
}

impl Tls {
    /// Reads the files that the flags name.
    pub(super) fn of(flags: &EtcdFlags) -> Result<Self> {
        install_crypto();
        let (roots, trusted) = roots(flags.cacert.as_deref())?;
        let mut channel = ClientTlsConfig::new().trust_anchors(roots.roots.iter().cloned());
        if let Some(name) = &flags.server_name {
            if ServerName::try_from(name.as_str()).is_err() {
                return Err(Error::config(format!(
                    "--server-name {name:?} is neither a host's name nor an IP address"
                )));
            }
            channel = channel.domain_name(name);
        }
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let (mut config, shown) = match (&flags.cert, &flags.key) {
            (None, None) => (builder.with_no_client_auth(), None),
            (Some(cert), Some(key)) => {
                let (cert_pem, key_pem) = (read("--cert", cert)?, read("--key", key)?);
                let chain = certificates("--cert", cert, &cert_pem)?;
                // The library's words could quote the file.
                let secret = PrivateKeyDer::from_pem_slice(&key_pem)
                    .map_err(|_| wrong("--key", key, "the file holds no PEM private key, or an encrypted key"))?;
                let config = builder.with_client_auth_cert(chain, secret).map_err(|error| unfit(&error, cert, key))?;
                channel = channel.identity(Identity::from_pem(&cert_pem, &key_pem));
                (config, Some(cert.display().to_string()))
            }
            (Some(_), None) => return Err(Error::config("--cert needs --key, the file of its private key")),
            (None, Some(_)) => return Err(Error::config("--key needs --cert, the file of its certificate")),
        };
        config.alpn_protocols.push(H2.to_vec());
        Ok(Self { channel, config, server_name: flags.server_name.clone(), trusted, shown })
    }

    /// A connection that is encrypted with these certificates.
    pub(super) fn wrap(&self, endpoint: Endpoint) -> Result<Endpoint> {
        endpoint.tls_config(self.channel.clone()).map_err(|error| Error::config(error.to_string()))
    }

    /// Why no connection came about, if TLS is why.
    pub(super) async fn explain(&self, host: &str, port: u16) -> Option<Error> {
        let name = self.server_name.as_deref().unwrap_or(host);
        match listen(self.config.clone(), name, host, port).await {
            Heard::Refusal { error, asked } => self.judge(name, &error, asked),
            Heard::Done { h2: false } => Some(Error::config(
                "the endpoint speaks TLS, but not HTTP/2. Check that the endpoint is etcd's client URL",
            )),
            Heard::Http => Some(Error::config(NO_TLS)),
            Heard::Done { h2: true } | Heard::Nothing => None,
        }
    }

    /// What TLS will say again at the next try too.
    fn judge(&self, name: &str, error: &rustls::Error, asked: bool) -> Option<Error> {
        use CertificateError as C;
        use rustls::Error as E;
        let config = |what: String| Some(Error::config(format!("{what} ({error})")));
        match error {
            // Two CAs of one name differ in their signatures only.
            E::InvalidCertificate(C::UnknownIssuer | C::BadSignature) => config(format!(
                "its certificate is not signed by {}: --cacert has to name the CA that signed the certificate",
                self.trusted
            )),
            E::InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. }) => config(format!(
                "its certificate is not for {name}: use a host of the certificate, in the endpoint or with \
                 --server-name"
            )),
            E::InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => {
                config("its certificate has expired: renew the certificate, or correct this machine's clock".into())
            }
            E::InvalidCertificate(C::NotValidYet | C::NotValidYetContext { .. }) => {
                config("its certificate is not valid yet: check this machine's clock".to_owned())
            }
            E::InvalidCertificate(_) => config("its certificate cannot be accepted".to_owned()),
            E::InvalidMessage(_) => config(NO_TLS.to_owned()),
            // Which alert it is differs from version to version.
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

/// Whether what answers at this address speaks TLS.
pub(super) async fn speaks_tls(host: &str, port: u16) -> bool {
    install_crypto();
    let trusts_nobody = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    match listen(trusts_nobody, host, host, port).await {
        Heard::Done { .. } => true,
        Heard::Refusal { error, .. } => !matches!(error, rustls::Error::InvalidMessage(_)),
        Heard::Http | Heard::Nothing => false,
    }
}

/// What a handshake came to.
enum Heard {
    Done {
        h2: bool,
    },
    /// One of both sides refuses; `asked`: after the server had asked for a client certificate.
    Refusal {
        error: rustls::Error,
        asked: bool,
    },
    /// There was none: HTTP without TLS is spoken.
    Http,
    Nothing,
}

/// Notices whether a client certificate is asked for.
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

async fn listen(mut config: ClientConfig, name: &str, host: &str, port: u16) -> Heard {
    let Ok(name) = ServerName::try_from(name.to_owned()) else { return Heard::Nothing };
    let host = host.to_owned();
    let listening = tokio::task::spawn_blocking(move || {
        let certificates = Arc::clone(&config.client_auth_cert_resolver);
        let noticing = Arc::new(Noticing { certificates, asked: AtomicBool::new(false) });
        config.client_auth_cert_resolver = noticing.clone();
        let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let refusal = handshake(&mut connection, connect(&host, port)?);
        Ok(match (refusal, connection.is_handshaking()) {
            (Some(error), _) => Heard::Refusal { error, asked: noticing.asked.load(Ordering::Relaxed) },
            (None, false) => Heard::Done { h2: connection.alpn_protocol() == Some(H2) },
            (None, true) if speaks_http(connect(&host, port)?)? => Heard::Http,
            (None, true) => Heard::Nothing,
        })
    });
    listening.await.ok().and_then(io::Result::ok).unwrap_or(Heard::Nothing)
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
    let socket = addresses.iter().find_map(|at| TcpStream::connect_timeout(at, LISTEN).ok());
    let socket = socket.ok_or(io::ErrorKind::ConnectionRefused)?;
    socket.set_read_timeout(Some(LISTEN))?;
    socket.set_write_timeout(Some(LISTEN))?;
    Ok(socket)
}

/// A handshake, and what the server says right after it: the refusal, if it comes to one.
fn handshake(connection: &mut ClientConnection, mut socket: TcpStream) -> Option<rustls::Error> {
    let until = Instant::now() + HANDSHAKE;
    while Instant::now() < until {
        match connection.complete_io(&mut socket) {
            Ok((0, 0)) => break,
            Ok(_) => {}
            // What is not the library's own is silence, or the end of the connection.
            Err(error) => return error.downcast().ok(),
        }
    }
    None
}

/// Whether it answers a request without TLS, as etcd does beside gRPC.
fn speaks_http(mut socket: TcpStream) -> io::Result<bool> {
    socket.write_all(b"GET /version HTTP/1.0\r\n\r\n")?;
    let mut answer = [0; 5];
    socket.read_exact(&mut answer)?;
    Ok(&answer == b"HTTP/")
}

/// Whom to trust, and how to call them.
fn roots(cacert: Option<&Path>) -> Result<(RootCertStore, String)> {
    let mut roots = RootCertStore::empty();
    let Some(file) = cacert else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(Error::config(
                "this system has no CA certificates: --cacert has to name the CA that signed etcd's certificate",
            ));
        }
        return Ok((roots, "a CA that this system trusts".to_owned()));
    };
    let (taken, _refused) = roots.add_parsable_certificates(certificates("--cacert", file, &read("--cacert", file)?)?);
    if taken == 0 {
        return Err(wrong("--cacert", file, "the file holds no usable certificate"));
    }
    Ok((roots, format!("the CA in {} (--cacert)", file.display())))
}

fn certificates(flag: &str, file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: Option<Vec<_>> = CertificateDer::pem_slice_iter(pem).map(Result::ok).collect();
    found.filter(|found| !found.is_empty()).ok_or_else(|| wrong(flag, file, "the file holds no PEM certificate"))
}

/// A file that a flag names.
pub(super) fn read(flag: &str, file: &Path) -> Result<Vec<u8>> {
    let content =
        std::fs::read(file).map_err(|error| wrong(flag, file, &format!("the file cannot be read: {error}")))?;
    if content.trim_ascii().is_empty() { Err(wrong(flag, file, "the file is empty")) } else { Ok(content) }
}

fn wrong(flag: &str, file: &Path, what: &str) -> Error {
    Error::config(format!("{flag} {}: {what}", file.display()))
}

/// Why a certificate and a key are not taken together.
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

    use super::*;
    use crate::contract::ExitClass;

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
        assert!(Tls::of(&good).is_ok());
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
            let error = Tls::of(&flags).err().unwrap_or_else(|| panic!("{flag} {says}: was taken"));
            assert_eq!(error.class(), ExitClass::Config, "{error}");
            assert!(error.message().starts_with(flag) && error.message().contains(says), "{says}: {error}");
            for secret in secret.lines().chain(other.lines()).chain(["canary", "Y2FuYXJ5"]) {
                assert!(secret.starts_with("-----") || !error.message().contains(secret), "{error}");
            }
        }
    }
}
