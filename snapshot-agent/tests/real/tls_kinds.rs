//! Certificates as other CAs make them, with openssl: every common kind of key and signature, and a CA's own certificate as a
//! server's. A refusal has a clear message.

use std::path::PathBuf;
use std::process::Command;

use holdfast_contract::{EtcdFlags, ExitClass};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

use crate::tls::{Etcd, Pair, Pki, fails, works};

/// openssl's arguments of a key.
fn curve(name: &str) -> Vec<&str> {
    vec!["-newkey", "ec", "-pkeyopt", name]
}

struct Maker<'a>(&'a Pki);

impl Maker<'_> {
    fn openssl(&self, args: &[&str]) {
        let output = Command::new("openssl").args(args).current_dir(self.0.file("")).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn pair(&self, name: &str) -> Pair {
        (self.0.file(&format!("{name}.crt")), self.0.file(&format!("{name}.key")))
    }

    /// A self-signed certificate, as openssl makes it for a CA, valid for loopback too.
    fn own(&self, name: &str, key: &[&str], signed: &[&str], host: &str) -> Pair {
        let subject = ["-subj", &format!("/CN={name}"), "-addext", &format!("subjectAltName=IP:{host}")];
        let files = ["-keyout", &format!("{name}.key"), "-out", &format!("{name}.crt"), "-days", "30", "-nodes"];
        self.openssl(&[&["req", "-x509"], key, signed, &subject, &files].concat());
        self.pair(name)
    }

    /// A certificate for loopback and for clients, signed by this CA.
    fn leaf(&self, name: &str, ca: &str, key: &[&str], signed: &[&str]) -> Pair {
        let (keys, request, out) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.crt"));
        let subject = format!("/CN={name}");
        self.openssl(
            &[&["req", "-new"], key, &["-subj", &subject, "-keyout", &keys, "-out", &request, "-nodes"]].concat(),
        );
        let extensions = format!("{name}.ext");
        let all = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n";
        std::fs::write(self.0.file(&extensions), all).unwrap();
        let (crt, ca_key) = (format!("{ca}.crt"), format!("{ca}.key"));
        let by = ["-CA", &crt, "-CAkey", &ca_key, "-CAcreateserial", "-days", "30", "-extfile", &extensions];
        self.openssl(&[&["x509", "-req", "-in", &request, "-out", &out], &by[..], signed].concat());
        self.pair(name)
    }
}

fn trusting(ca: PathBuf) -> EtcdFlags {
    EtcdFlags { cacert: Some(ca), ..EtcdFlags::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_common_kind_of_key_and_signature_is_verified() {
    let (pki, p256, p384, p521) = (
        Pki::new(),
        curve("ec_paramgen_curve:P-256"),
        curve("ec_paramgen_curve:P-384"),
        curve("ec_paramgen_curve:P-521"),
    );
    let (make, rsa, pss) = (
        Maker(&pki),
        vec!["-newkey", "rsa:2048"],
        ["-sha512", "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:-1"],
    );
    let kinds: [(&str, &[&str], &[&str]); 6] = [
        ("p256-sha512", &p256, &["-sha512"]),
        ("p384-sha512", &p384, &["-sha512"]),
        ("p521-sha512", &p521, &["-sha512"]),
        ("p521-sha256", &p521, &["-sha256"]),
        ("rsa-pss", &rsa, &pss),
        ("ed25519", &["-newkey", "ed25519"], &[]),
    ];
    for (name, key, signed) in kinds {
        let ca = make.own(&format!("ca-{name}"), key, signed, "10.0.0.1");
        let server = make.leaf(&format!("server-{name}"), &format!("ca-{name}"), key, signed);
        let client = make.leaf(&format!("client-{name}"), &format!("ca-{name}"), key, signed);
        let reach = EtcdFlags { cert: Some(client.0), key: Some(client.1), ..trusting(ca.0.clone()) };
        let trusted = format!("--trusted-ca-file={}", ca.0.display());
        let etcd = Etcd::tls("3.6", &pki, &server, reach, &["--client-cert-auth", &trusted]).await;
        works(name, etcd.flags.clone()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cas_own_certificate_is_accepted_where_it_is_the_trusted_one() {
    let pki = Pki::new();
    let make = Maker(&pki);
    let own = make.own("own", &["-newkey", "rsa:2048"], &[], "127.0.0.1");
    let etcd = Etcd::tls("3.6", &pki, &own, trusting(own.0.clone()), &[]).await;
    works("its own", etcd.flags.clone()).await;
    // A CA of the same name with another key.
    let other = Pki::new();
    let twin = Maker(&other).own("own", &["-newkey", "rsa:2048"], &[], "127.0.0.1");
    let flags = etcd.with(|flags| flags.cacert = Some(twin.0));
    fails("another of its name", flags, ExitClass::Config, &["is a CA's own"]).await;
    let flags = etcd.with(|flags| flags.server_name = Some("etcd.example.com".to_owned()));
    fails("another name", flags, ExitClass::Config, &["is not for etcd.example.com"]).await;

    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = date_time_ymd(2020, 1, 1);
    let key = KeyPair::generate().unwrap();
    let old = make.pair("old");
    std::fs::write(&old.0, params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&old.1, key.serialize_pem()).unwrap();
    let etcd = Etcd::tls("3.6", &pki, &old, trusting(old.0.clone()), &[]).await;
    fails("its own, and expired", etcd.flags.clone(), ExitClass::Config, &["has expired"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_has_a_cause_and_a_remedy() {
    let pki = Pki::new();
    let make = Maker(&pki);
    let (p256, long, short) = (curve("ec_paramgen_curve:P-256"), ["-newkey", "rsa:2048"], ["-newkey", "rsa:1024"]);
    let k1 = curve("ec_paramgen_curve:secp256k1");
    let weak = make.own("weak", &short, &[], "10.0.0.1");
    let good = make.own("good", &long, &[], "10.0.0.1");
    let odd = make.own("odd", &k1, &[], "10.0.0.1");
    let cases = [
        ("a short key of a CA", make.leaf("by-weak", "weak", &long, &[]), &weak, "the RSA key of a CA is shorter than"),
        ("a short key", make.leaf("short", "good", &short, &[]), &good, "certificate's RSA key is shorter than"),
        ("sha1", make.leaf("sha1", "good", &p256, &["-sha1"]), &good, "that Holdfast does not verify"),
        ("another curve", make.leaf("by-odd", "odd", &p256, &[]), &odd, "that Holdfast does not verify"),
    ];
    for (what, server, ca, says) in cases {
        let etcd = Etcd::tls("3.6", &pki, &server, trusting(ca.0.clone()), &[]).await;
        let error = fails(what, etcd.flags.clone(), ExitClass::Config, &[says]).await;
        let text = error.message();
        assert!(text.len() < 400 && !text.contains('[') && !text.contains("not signed by"), "{what}: {text}");
    }
}
