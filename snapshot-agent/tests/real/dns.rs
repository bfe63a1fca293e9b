//! DNS servers as they exist in the field: the agent resolves etcd and the store where glibc and Go do, and blames DNS where all of
//! them fail.
//!
//! Each save runs in a child of this program, with an /etc/resolv.conf of its own in a mount namespace of its own. Its DNS servers
//! have addresses of loopback and port 53, so this needs root, which the container of `make test` has.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use holdfast_contract::{Compression, EtcdFlags};

use crate::saving::{SAVED, line_of, saving};
use crate::support::{Etcd, S3, save_request};

const A: u16 = 1;
const AAAA: u16 = 28;

/// A server's answer to a question.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Loopback,
    /// NOERROR without a record.
    Empty,
    /// A code without records.
    Code(u8),
    Silence,
}

const SERVFAIL: Answer = Answer::Code(2);
const NXDOMAIN: Answer = Answer::Code(3);
const REFUSED: Answer = Answer::Code(5);

/// A DNS server at port 53, until it is dropped.
struct Server {
    ip: String,
    ended: Arc<AtomicBool>,
}

impl Server {
    fn start(answer: impl Fn(&str, u16) -> Answer + Send + 'static) -> Self {
        // 127.0.53.0/24 and its neighbours: an address in use belongs to another test.
        let (ip, socket) = (1..u16::MAX)
            .find_map(|n| {
                let ip = format!("127.53.{}.{}", n / 250, n % 250 + 1);
                Some((ip.clone(), UdpSocket::bind((ip.as_str(), 53)).ok()?))
            })
            .expect("port 53 on loopback needs root");
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        thread::spawn(move || {
            let mut buffer = [0; 1500];
            while !until.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                if let Some(reply) = reply(&buffer[..length], &answer) {
                    socket.send_to(&reply, from).unwrap();
                }
            }
        });
        Self { ip, ended }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// The answer to one question (RFC 1035, section 4).
fn reply(asked: &[u8], answer: &impl Fn(&str, u16) -> Answer) -> Option<Vec<u8>> {
    let (mut at, mut labels) = (12, vec![]);
    while asked[at] > 0 {
        let length = usize::from(asked[at]);
        labels.push(String::from_utf8_lossy(&asked[at + 1..=at + length]).to_lowercase());
        at += length + 1;
    }
    let kind = u16::from_be_bytes([asked[at + 1], asked[at + 2]]);
    let answer = answer(&labels.join("."), kind);
    let records: &[u8] = match (answer, kind) {
        (Answer::Loopback, A) => &[127, 0, 0, 1],
        (Answer::Loopback, AAAA) => &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        (Answer::Silence, _) => return None,
        _ => &[],
    };
    let code = if let Answer::Code(code) = answer { code } else { 0 };
    let count = u8::from(!records.is_empty());
    // Its identifier, the flags of a response to a recursive question, and the question itself.
    let mut reply = [&asked[..2], &[0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0], &asked[12..at + 5]].concat();
    if count > 0 {
        // The name of the question; class IN, a minute.
        let length = u8::try_from(records.len()).unwrap();
        reply.extend([0xc0, 12]);
        reply.extend(kind.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 60, 0, length]);
        reply.extend(records);
    }
    Some(reply)
}

/// A cluster and a store, both reached by this name.
struct Setup {
    etcd: Etcd,
    s3: S3,
}

impl Setup {
    async fn new() -> Self {
        let etcd = Etcd::start().await;
        etcd.fill(5, 1000).await;
        Self { etcd, s3: S3::start().await }
    }

    /// Saves with this /etc/resolv.conf.
    async fn save(&self, resolv_conf: &str, host: &str) -> String {
        let named = |url: &str| format!("http://{host}:{}", url.rsplit(':').next().unwrap());
        let etcd = EtcdFlags { endpoints: vec![named(&self.etcd.url)], ..EtcdFlags::default() };
        self.save_from(etcd, resolv_conf, named(&self.s3.address)).await
    }

    async fn save_from(&self, etcd: EtcdFlags, resolv_conf: &str, store: String) -> String {
        let request = save_request(etcd, self.s3.through(store), Compression::None);
        let plain = saving(&request);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resolv.conf");
        fs::write(&file, resolv_conf).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\""]);
        command.arg(&file).arg(plain.get_program()).args(plain.get_args());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        line_of(&tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
    }
}

/// Answers by the name; the search domains `empty` and `broken` have no addresses, each in its own way.
fn awkward(name: &str, kind: u16) -> Answer {
    let (v6, domain) = (kind == AAAA, name.rsplit('.').next().unwrap_or_default());
    match name {
        "single.good" | "both.test" => Answer::Loopback,
        _ if domain == "empty" => Answer::Empty,
        _ if domain == "broken" => SERVFAIL,
        _ if domain == "dropping" && v6 => Answer::Silence,
        _ if domain == "good" => NXDOMAIN,
        "nodata.test" if v6 => Answer::Empty,
        "nx.test" if v6 => NXDOMAIN,
        "servfail.test" if v6 => SERVFAIL,
        "refused.test" if v6 => REFUSED,
        "silent.test" if v6 => Answer::Silence,
        "nodata.test" | "nx.test" | "servfail.test" | "refused.test" | "silent.test" => Answer::Loopback,
        "down.test" => SERVFAIL,
        "refusing.test" => REFUSED,
        "none.test" => Answer::Empty,
        "mute.test" => Answer::Silence,
        _ => NXDOMAIN,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_is_enough_whatever_else_is_answered() {
    let (server, setup) = (Server::start(awkward), Setup::new().await);
    let pod = format!("search empty broken dropping good\nnameserver {}\noptions ndots:5\n", server.ip);
    for host in
        ["both.test", "nodata.test", "nx.test", "servfail.test", "refused.test", "silent.test", "single", "nx.test."]
    {
        let told = setup.save(&pod, host).await;
        assert!(told.starts_with(SAVED), "{host}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_is_asked_where_the_first_does_not_say() {
    let (good, setup) = (Server::start(awkward), Setup::new().await);
    for (what, answer) in [("refuses", REFUSED), ("fails", SERVFAIL), ("is silent", Answer::Silence)] {
        let bad = Server::start(move |_, _| answer);
        let two = format!("nameserver {}\nnameserver {}\n", bad.ip, good.ip);
        let told = setup.save(&two, "both.test").await;
        assert!(told.starts_with(SAVED), "{what}: {told}");
    }
    // The wait does not repeat for each search domain.
    let mute = Server::start(|_, _| Answer::Silence);
    let pod = format!("search a b c d\nnameserver {}\nnameserver {}\noptions ndots:5\n", mute.ip, good.ip);
    let told = setup.save(&pod, "both.test").await;
    assert!(told.starts_with(SAVED), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_dns_is_called_one() {
    let (server, setup) = (Server::start(awkward), Setup::new().await);
    let (conf, address) = (format!("search empty\nnameserver {}\noptions ndots:5\n", server.ip), &server.ip);
    for (host, says) in [
        ("down.test", "answers SERVFAIL for down.test"),
        ("refusing.test", "answers REFUSED for refusing.test"),
        ("mute.test", "does not answer for mute.test"),
        ("gone.test.", "answers NXDOMAIN for gone.test"),
        ("none.test", "neither an A nor an AAAA record"),
    ] {
        let begun = Instant::now();
        // etcd by this name, and then only the store.
        let store = format!("http://{host}:{}", setup.s3.address.rsplit(':').next().unwrap());
        for told in [setup.save(&conf, host).await, setup.save_from(setup.etcd.flags(), &conf, store).await] {
            assert!(told.starts_with("failed NameUnresolved Transient"), "{host}: {told}");
            assert!(told.contains(&format!("DNS server {address} ")) && told.contains(says), "{host}: {told}");
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{host}: {:?}", begun.elapsed());
    }
    let nobody = setup.save("search example.com\n", "both.test").await;
    assert!(nobody.starts_with("failed NameUnresolved") && nobody.contains("DNS server 127.0.0.1 "), "{nobody}");
}
