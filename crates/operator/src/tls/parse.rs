//! PEM to names, dates and fingerprints.
//!
//! Decides which certificate can be used: its key fits, and its chain leads to a CA beside it. Messages never quote a file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdfast_io::net::refusal;
use holdfast_plan::certificate::{Ca, Files, Known};
use jiff::Timestamp;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;
use x509_parser::x509::{AlgorithmIdentifier, X509Version};

use super::{Data, entry};

/// Facts of a certificate of a Secret, or its flaw.
pub(crate) fn known(data: &Data, files: Files) -> Result<Known, String> {
    let chain = certificates(data, files.certificate)?;
    let cas = certificates(data, files.ca)?;
    let key = PrivateKeyDer::from_pem_slice(entry(data, files.key))
        .map_err(|_| format!("{} holds no PEM private key, or an encrypted key", files.key))?;
    let key = any_supported_type(&key).map_err(|_| {
        format!(
            "the key in {} is not supported. Use RSA of 2048 bits or more, ECDSA on P-256, P-384 or P-521, or Ed25519",
            files.key
        )
    })?;
    let Some(first) = chain.first() else { return Err(format!("{} is empty", files.certificate)) };
    let leaf = parse(first, files.certificate)?;
    let (ca, ends) = anchor(&chain, &cas, files)?;
    let ca_parsed = parse(ca, files.ca)?;
    let usages =
        leaf.extended_key_usage().map_err(|_| format!("the usages of {} cannot be read", files.certificate))?;
    let known = Known {
        fingerprint: fingerprint(first),
        ca: fingerprint(ca),
        anchor: anchor_digest(&ca_parsed),
        cas: files_cas(&cas, files)?,
        contents: digest(data, &[files]),
        for_servers: usages.as_ref().is_none_or(|usages| usages.value.any || usages.value.server_auth),
        for_clients: usages.as_ref().is_none_or(|usages| usages.value.any || usages.value.client_auth),
        common_name: leaf.subject().iter_common_name().find_map(|cn| Some(cn.as_str().ok()?.to_owned())),
        names: names(&leaf),
        not_before: time(leaf.validity().not_before)?,
        not_after: ends,
    };
    match CertifiedKey::new(chain.clone(), key).keys_match() {
        Ok(()) => Ok(known),
        Err(rustls::Error::InvalidCertificate(why)) => {
            Err(format!("{}: {}", files.certificate, refusal::describe(&why, files.ca, files.certificate)))
        }
        Err(_) => Err(format!("the key in {} does not belong to {}", files.key, files.certificate)),
    }
}

/// The CAs of a file, each once.
fn files_cas(cas: &[CertificateDer<'_>], files: Files) -> Result<Vec<Ca>, String> {
    let mut all = vec![];
    for der in cas {
        let parsed = parse(der, files.ca)?;
        let ca = Ca {
            anchor: anchor_digest(&parsed),
            not_after: time(parsed.validity().not_after)?,
            fingerprint: fingerprint(der),
        };
        if !all.contains(&ca) {
            all.push(ca);
        }
    }
    Ok(all)
}

/// The CA that signed the last certificate that the chain needs, and the earliest end among the chain and the CA. Go judges the end
/// of every certificate of a chain, roots included. A first certificate that is itself among the CAs is its own anchor: Go and
/// Holdfast's clients accept it.
fn anchor<'a>(
    chain: &[CertificateDer<'_>],
    cas: &'a [CertificateDer<'a>],
    files: Files,
) -> Result<(&'a CertificateDer<'a>, Timestamp), String> {
    let mut ends = Timestamp::MAX;
    let mut flaw = None;
    for (i, signed) in chain.iter().enumerate() {
        let parsed = parse(signed, files.certificate)?;
        ends = ends.min(time(parsed.validity().not_after)?);
        if let Some(ca) = cas.iter().find(|ca| *ca == signed) {
            return Ok((ca, ends));
        }
        let mut signs = |der: &CertificateDer<'_>, file| {
            let verified = verify(&parsed, &parse(der, file)?);
            let why = verified.map_err(|why| flaw = flaw.take().or(why));
            Ok::<_, String>(why.is_ok())
        };
        for ca in cas {
            if signs(ca, files.ca)? {
                return Ok((ca, ends.min(time(parse(ca, files.ca)?.validity().not_after)?)));
            }
        }
        match chain.get(i + 1) {
            Some(next) if signs(next, files.certificate)? => {}
            _ => break,
        }
    }
    let leads_nowhere = || {
        format!(
            "{} does not lead to a CA in {}. Put the CA that signed it there, and the CAs between behind the certificate",
            files.certificate, files.ca
        )
    };
    Err(flaw.map_or_else(leads_nowhere, |why| format!("{}: {why}", files.certificate)))
}

/// Whether an issuer's key signed a certificate, by the rules of Holdfast's clients in a handshake. An error with a text: the
/// issuer has the right name, and its key or its kind of signature is refused.
fn verify(signed: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> Result<(), Option<String>> {
    if signed.issuer() != issuer.subject() {
        return Err(None);
    }
    let key = issuer.public_key();
    let algorithms = default_provider().signature_verification_algorithms;
    let fits = algorithms.all.iter().filter(|known| {
        is(&signed.signature_algorithm, known.signature_alg_id().as_ref())
            && is(&key.algorithm, known.public_key_alg_id().as_ref())
    });
    let (bytes, signature) = (signed.tbs_certificate.as_ref(), &signed.signature_value.data);
    let mut judged =
        fits.map(|known| known.verify_signature(&key.subject_public_key.data, bytes, signature)).peekable();
    if judged.peek().is_none() {
        return Err(Some(
            "a kind of key or of signature in its chain is not supported. Sign with RSA of 2048 bits or more, ECDSA on P-256, \
             P-384 or P-521, or Ed25519, and SHA-256 or longer"
                .to_owned(),
        ));
    }
    if judged.any(|judged| judged.is_ok()) {
        return if may_sign(issuer) { Ok(()) } else { Err(Some(NO_CA.to_owned())) };
    }
    let short = matches!(key.parsed(), Ok(PublicKey::RSA(key)) if key.key_size() < 2048);
    Err(short.then(|| "the RSA key of a CA in its chain is shorter than 2048 bits. Issue with a longer key".to_owned()))
}

const NO_CA: &str = "a CA in its chain may not sign certificates: its basic constraints lack CA:TRUE, or its key usage lacks \
                     keyCertSign. Issue the CA's certificate again with both";

/// Whether Go, and so etcd, accepts a certificate as a CA (crypto/x509, `CheckSignatureFrom`).
fn may_sign(issuer: &X509Certificate<'_>) -> bool {
    let is_ca = match issuer.basic_constraints() {
        Ok(Some(constraints)) => constraints.value.ca,
        Ok(None) => issuer.version() != X509Version::V3,
        Err(_) => false,
    };
    let signs = match issuer.key_usage() {
        Ok(Some(usage)) => usage.value.key_cert_sign(),
        Ok(None) => true,
        Err(_) => false,
    };
    is_ca && signs
}

/// Whether an algorithm equals this one, whose DER contents rustls has without the frame.
fn is(algorithm: &AlgorithmIdentifier<'_>, contents: &[u8]) -> bool {
    // The lengths of all these contents fit into one byte.
    let Some(length) = u8::try_from(contents.len()).ok().filter(|length| *length < 0x80) else { return false };
    let framed = [&[0x30, length], contents].concat();
    AlgorithmIdentifier::from_der(&framed).is_ok_and(|(_, known)| known == *algorithm)
}

fn anchor_digest(ca: &X509Certificate<'_>) -> String {
    let mut sum = Sha256::new();
    sum.update(ca.subject().as_raw());
    sum.update(ca.public_key().raw);
    hex::encode(&sum.finalize()[..8])
}

/// Digest of the files with certificates and CAs, without keys: a digest of keys would be a trace of them.
pub(crate) fn digest(data: &Data, wanted: &[Files]) -> String {
    let mut sum = Sha256::new();
    for file in wanted.iter().flat_map(|files| [files.ca, files.certificate]) {
        sum.update(entry(data, file));
    }
    hex::encode(&sum.finalize()[..8])
}

/// SHA-256 of a certificate, hexadecimal.
pub(super) fn fingerprint(der: &[u8]) -> String {
    hex::encode(Sha256::digest(der))
}

/// Fingerprint of the first certificate of a PEM text.
pub(crate) fn first_fingerprint(pem: &[u8]) -> Option<String> {
    fingerprints(pem).into_iter().next()
}

/// Fingerprints of the certificates of a PEM text.
pub(crate) fn fingerprints(pem: &[u8]) -> Vec<String> {
    CertificateDer::pem_slice_iter(pem).map_while(Result::ok).map(|der| fingerprint(&der)).collect()
}

/// The certificate with this fingerprint in a PEM text, as PEM.
pub(crate) fn find_certificate(text: &[u8], wanted: &str) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let sections = text.split_inclusive(END).filter_map(|part| part.find(BEGIN_TEXT).and_then(|at| part.get(at..)));
    let mut found = sections.filter(|section| first_fingerprint(section.as_bytes()).as_deref() == Some(wanted));
    found.next().map(|section| format!("{section}\n"))
}

/// All certificates of a file. etcd does not start with a file of CAs that holds anything else.
fn certificates(data: &Data, file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = entry(data, file);
    let all: Option<Vec<_>> = CertificateDer::pem_slice_iter(pem).map(Result::ok).collect();
    let all = all.filter(|all| !all.is_empty()).ok_or_else(|| format!("{file} holds no PEM certificate"))?;
    for der in &all {
        parse(der, file)?;
    }
    let sections = pem.windows(BEGIN.len()).filter(|part| *part == BEGIN).count();
    if sections == all.len() { Ok(all) } else { Err(format!("{file} holds something else than certificates")) }
}

/// Beginning of each section of a PEM file.
const BEGIN_TEXT: &str = "-----BEGIN ";
const BEGIN: &[u8] = BEGIN_TEXT.as_bytes();
/// End of a certificate in a PEM file.
const END: &str = "-----END CERTIFICATE-----";

fn parse<'a>(der: &'a [u8], file: &str) -> Result<X509Certificate<'a>, String> {
    let parsed = x509_parser::parse_x509_certificate(der);
    parsed.map(|(_, certificate)| certificate).map_err(|_| format!("the certificate in {file} cannot be read"))
}

fn names(leaf: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(alternative)) = leaf.subject_alternative_name() else { return vec![] };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|ip| ip.to_string()),
        _ => None,
    };
    alternative.value.general_names.iter().filter_map(name).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(|b| IpAddr::from(Ipv4Addr::from(b)));
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(|b| IpAddr::from(Ipv6Addr::from(b)))).ok()
}

fn time(of: ASN1Time) -> Result<Timestamp, String> {
    Timestamp::from_second(of.timestamp()).map_err(|_| "the certificate's validity cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use holdfast_plan::certificate::files::SERVER;
    use k8s_openapi::ByteString;

    use super::*;

    fn openssl(folder: &Path, args: &[&str]) {
        let output = Command::new("openssl").args(args).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Makes a CA and a server's certificate signed by it, with these kinds of key and signature.
    fn made(folder: &Path, ca_key: &[&str], key: &[&str], signed: &[&str]) {
        let ca = ["-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt", "-nodes", "-days", "30"];
        openssl(folder, &[&["req", "-x509"], ca_key, signed, &ca].concat());
        let request = ["-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr", "-nodes"];
        openssl(folder, &[&["req", "-new"], key, &request].concat());
        std::fs::write(folder.join("extensions"), "subjectAltName=DNS:etcd.example.com\n").unwrap();
        let by = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "extensions"];
        openssl(folder, &[&["x509", "-req", "-in", "server.csr", "-out", "server.crt"], &by[..], signed].concat());
    }

    fn judged(folder: &Path, ca: &str, certificate: &str) -> Result<Known, String> {
        let file = |name: &str| ByteString(std::fs::read(folder.join(name)).unwrap());
        let key = certificate.replace(".crt", ".key");
        let data = [(SERVER.ca, ca), (SERVER.certificate, certificate), (SERVER.key, &key)];
        known(&data.map(|(entry, name)| (entry.to_owned(), file(name))).into(), SERVER)
    }

    #[test]
    fn every_common_kind_of_key_and_signature_is_judged() {
        let ec = |curve| ["-newkey", "ec", "-pkeyopt", curve];
        let [p256, p384, p521] = ["P-256", "P-384", "P-521"].map(|curve| format!("ec_paramgen_curve:{curve}"));
        let (p256, p384, p521, rsa) = (&ec(&p256)[..], &ec(&p384)[..], &ec(&p521)[..], &["-newkey", "rsa:2048"][..]);
        let pss = ["-sha512", "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:-1"];
        for (key, signed) in [
            (p256, &["-sha256"][..]),
            (p256, &["-sha384"]),
            (p256, &["-sha512"]),
            (p384, &["-sha512"]),
            (p521, &["-sha256"]),
            (p521, &["-sha512"]),
            (rsa, &["-sha256"]),
            (rsa, &["-sha512"]),
            (rsa, &pss),
            (&["-newkey", "ed25519"], &[]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            made(folder.path(), key, key, signed);
            let known = judged(folder.path(), "ca.crt", "server.crt");
            assert!(known.is_ok(), "{key:?} {signed:?}: {known:?}");
            let own = judged(folder.path(), "ca.crt", "ca.crt").unwrap();
            assert_eq!(own.fingerprint, own.ca, "a CA's own certificate is its own CA");
            let other = tempfile::tempdir().unwrap();
            made(other.path(), key, key, signed);
            std::fs::copy(other.path().join("ca.crt"), folder.path().join("other.crt")).unwrap();
            let twin = judged(folder.path(), "other.crt", "server.crt").unwrap_err();
            assert!(twin.contains("does not lead to a CA in client-ca.crt"), "{twin}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_named_with_a_remedy() {
        let (long, short, p256) = (
            ["-newkey", "rsa:2048"],
            ["-newkey", "rsa:1024"],
            ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        );
        let k1 = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp256k1"];
        type Args<'a> = &'a [&'a str];
        let cases: [(Args<'_>, Args<'_>, Args<'_>, &str); 4] = [
            (&short, &long, &[], "server.crt: the RSA key of a CA in its chain is shorter than 2048 bits. Issue with"),
            (&long, &short, &[], "the key in server.key is not supported. Use RSA of 2048 bits"),
            (&p256, &p256, &["-sha1"], "is not supported. Sign with RSA of 2048 bits"),
            (&k1, &p256, &["-sha256"], "is not supported. Sign with RSA of 2048 bits"),
        ];
        for (ca_key, key, signed, says) in cases {
            let folder = tempfile::tempdir().unwrap();
            made(folder.path(), ca_key, key, signed);
            let flaw = judged(folder.path(), "ca.crt", "server.crt").unwrap_err();
            assert!(flaw.contains(says), "{says}: {flaw}");
        }
        let folder = tempfile::tempdir().unwrap();
        made(folder.path(), &p256, &p256, &["-sha256"]);
        // Without extensions openssl makes version 1.
        let by = ["-CA", "ca.crt", "-CAkey", "ca.key", "-days", "30", "-out", "server.crt"];
        openssl(folder.path(), &[&["x509", "-req", "-in", "server.csr"], &by[..]].concat());
        let flaw = judged(folder.path(), "ca.crt", "server.crt").unwrap_err();
        assert!(flaw.contains("version 3"), "{flaw}");
    }

    #[test]
    fn a_ca_that_may_sign_nothing_is_refused() {
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
        for (extension, good) in
            [("keyUsage=keyCertSign", true), ("keyUsage=digitalSignature", false), ("basicConstraints=CA:FALSE", false)]
        {
            let folder = tempfile::tempdir().unwrap();
            made(folder.path(), &[&key[..], &["-addext", extension]].concat(), &key, &["-sha256"]);
            let known = judged(folder.path(), "ca.crt", "server.crt");
            assert_eq!(known.is_ok(), good, "{extension}: {known:?}");
            if let Err(flaw) = known {
                assert!(flaw.contains("may not sign certificates"), "{flaw}");
            }
        }
    }
}
