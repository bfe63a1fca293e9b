//! Resolves names to addresses, as glibc and Go do.
//!
//! A static binary has musl's resolver, which fails where glibc and Go continue: when one of A and AAAA gives SERVFAIL, REFUSED
//! or NXDOMAIN, or a search domain gives no records. This file decides which names to ask for, in which order and from which
//! server, and which answer counts: the first address, of either family. hickory asks one server one question. There is no
//! cache: each look-up reads /etc/resolv.conf and /etc/hosts.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, select};
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, future};
use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, TokioResolver};
use tokio::time::timeout;

use super::dns_error::{Answer, NameError, ServerAnswer};

/// Time for a whole look-up: within the time of a connection (5 s), so that the error names DNS.
const WITHIN: Duration = Duration::from_secs(4);

/// Time after which the next server is asked as well.
const NEXT_AFTER: Duration = Duration::from_secs(1);

/// Time for the other family, once one family has an address or the A query says that the name does not exist: a server that
/// drops AAAA queries must not delay the answer.
const OTHER_FAMILY: Duration = Duration::from_millis(300);

/// Maximum number of servers, as in glibc (resolv.conf(5): MAXNS).
const SERVERS: usize = 3;

/// Returns the addresses of a host, IPv4 first.
///
/// # Errors
///
/// The answer of the DNS servers.
pub async fn look_up(host: &str) -> Result<Vec<IpAddr>, NameError> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![ip]);
    }
    let file = |path| fs::read(path).unwrap_or_default();
    System::parse(&file("/etc/resolv.conf"), &file("/etc/hosts")).look_up(host).await
}

/// The same resolver for hyper's connectors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resolver;

impl tower_service::Service<hyper_util::client::legacy::connect::dns::Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = NameError;
    type Future = BoxFuture<'static, Result<Self::Response, NameError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NameError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: hyper_util::client::legacy::connect::dns::Name) -> Self::Future {
        async move {
            let found = look_up(name.as_str()).await?;
            Ok(found.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect::<Vec<_>>().into_iter())
        }
        .boxed()
    }
}

/// Settings from the two files.
struct System {
    hosts: Hosts,
    servers: Vec<Server>,
    search: Vec<Name>,
    ndots: usize,
    attempts: usize,
}

/// One DNS server.
struct Server {
    ip: IpAddr,
    client: TokioResolver,
}

impl System {
    fn parse(resolv_conf: &[u8], hosts_file: &[u8]) -> Self {
        let mut hosts = Hosts::default();
        // Unreadable lines are ignored.
        drop(hosts.read_hosts_conf(String::from_utf8_lossy(hosts_file).as_bytes()));
        let (config, options) = parse(resolv_conf);
        let servers = config.name_servers.iter().take(SERVERS).filter_map(|server| {
            let alone = ResolverConfig::from_parts(None, vec![], vec![server.clone()]);
            let mut client = TokioResolver::builder_with_config(alone, TokioRuntimeProvider::default());
            *client.options_mut() = asking(&options);
            Some(Server { ip: server.ip, client: client.build().ok()? })
        });
        let servers = servers.collect();
        // resolv.conf(5): `domain` is an older keyword for a search list of one domain.
        let search = if config.search.is_empty() { config.domain.into_iter().collect() } else { config.search };
        Self { hosts, servers, search, ndots: options.ndots, attempts: options.attempts.clamp(1, 5) }
    }

    async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, NameError> {
        let Ok(name) = Name::from_str_relaxed(host) else { return Err(NameError::new(host, None, false)) };
        let known = self.known(&name);
        if !known.is_empty() {
            return Ok(known);
        }
        let names = self.names(&name);
        let searched = names.len() > 1;
        // A silent server is asked last for the other names, because each search domain would wait for it again.
        let mut silent: Vec<IpAddr> = vec![];
        let asked = async {
            let mut most: Option<ServerAnswer> = None;
            for name in &names {
                match self.ask(name, &mut silent).await {
                    Ok(found) => return Ok(found),
                    Err(answer) => most = Some(more(most, answer)),
                }
            }
            Err(NameError::new(host, most, searched))
        };
        if let Ok(answer) = timeout(WITHIN, asked).await {
            return answer;
        }
        let first = self.servers.first().map(|server| server.ip);
        let server = silent.first().copied().or(first).unwrap_or(Ipv4Addr::LOCALHOST.into());
        let answer = ServerAnswer { server, name: host.to_owned(), answer: Answer::Silent };
        Err(NameError::new(host, Some(answer), searched))
    }

    /// Returns addresses that need no server: those of the hosts file, and localhost (RFC 6761).
    fn known(&self, name: &Name) -> Vec<IpAddr> {
        let look_up = |kind| self.hosts.lookup_static_host(&Query::query(name.to_lowercase(), kind));
        let found: Vec<_> = [RecordType::A, RecordType::AAAA]
            .into_iter()
            .filter_map(look_up)
            .flat_map(|lookup| lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>())
            .collect();
        if found.is_empty() && name.is_localhost() {
            return vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        }
        found
    }

    /// Returns the names to ask for, in the order of resolv.conf(5): a name with a final dot alone, a name with `ndots` dots
    /// first as it is, any other name with the search domains first.
    fn names(&self, name: &Name) -> Vec<Name> {
        let whole = |mut name: Name| {
            name.set_fqdn(true);
            name
        };
        let as_is = whole(name.clone());
        if name.is_fqdn() {
            return vec![as_is];
        }
        let dots = usize::from(name.num_labels()).saturating_sub(1);
        let mut names = if dots >= self.ndots { vec![as_is.clone()] } else { vec![] };
        names.extend(self.search.iter().filter_map(|domain| name.clone().append_domain(domain).ok()).map(whole));
        names.push(as_is);
        let mut unique: Vec<Name> = vec![];
        for name in names {
            if !unique.contains(&name) {
                unique.push(name);
            }
        }
        unique
    }

    /// Returns the first answer that counts, from the servers in order. A silent server, or one with an unclear answer, does
    /// not stop the query of the next.
    async fn ask(&self, name: &Name, silent: &mut Vec<IpAddr>) -> Result<Vec<IpAddr>, ServerAnswer> {
        let mut order: Vec<&Server> = self.servers.iter().collect();
        order.sort_by_key(|server| silent.contains(&server.ip));
        let mut turns = order.repeat(self.attempts).into_iter();
        let (mut asked, mut most) = (FuturesUnordered::new(), None);
        loop {
            let turn = turns.next();
            match turn {
                Some(server) => asked.push(server.ask(name)),
                None if asked.is_empty() => {
                    let no_server = || ServerAnswer {
                        server: Ipv4Addr::LOCALHOST.into(),
                        name: text(name),
                        answer: Answer::Unreachable("/etc/resolv.conf names no server".to_owned()),
                    };
                    return Err(most.unwrap_or_else(no_server));
                }
                None => {}
            }
            match timeout(NEXT_AFTER, asked.next()).await {
                Ok(Some(Ok(found))) => return Ok(found),
                Ok(Some(Err(answer))) if answer.answer.is_no() => return Err(answer),
                Ok(Some(Err(answer))) => most = Some(more(most, answer)),
                Ok(None) => {}
                Err(_) => silent.extend(turn.map(|server| server.ip)),
            }
        }
    }
}

impl Server {
    /// Asks for both families at once.
    async fn ask(&self, name: &Name) -> Result<Vec<IpAddr>, ServerAnswer> {
        let (v4, v6) = (self.query(name, RecordType::A).boxed(), self.query(name, RecordType::AAAA).boxed());
        let (first, other, is_v4) = match select(v4, v6).await {
            future::Either::Left((first, other)) => (first, other, true),
            future::Either::Right((first, other)) => (first, other, false),
        };
        let second = match &first {
            Ok(_) => timeout(OTHER_FAMILY, other).await.unwrap_or(Err(Answer::Silent)),
            // NXDOMAIN for A means that the name does not exist; for AAAA some servers return it for existing names.
            Err(Answer::NoSuchName) if is_v4 => timeout(OTHER_FAMILY, other).await.unwrap_or(Err(Answer::NoSuchName)),
            Err(_) => other.await,
        };
        let mut found = match (first, second) {
            (Ok(first), Ok(second)) => [first, second].concat(),
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => found,
            (Err(first), Err(second)) => {
                return Err(ServerAnswer { server: self.ip, name: text(name), answer: first.max(second) });
            }
        };
        found.sort_by_key(IpAddr::is_ipv6);
        Ok(found)
    }

    async fn query(&self, name: &Name, kind: RecordType) -> Result<Vec<IpAddr>, Answer> {
        let lookup = self.client.lookup(name.clone(), kind).await.map_err(|error| Answer::from(&error))?;
        let found: Vec<_> = lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect();
        if found.is_empty() { Err(Answer::NoAddress) } else { Ok(found) }
    }
}

/// Returns the more informative answer; of equal answers the first.
fn more(first: Option<ServerAnswer>, second: ServerAnswer) -> ServerAnswer {
    first.filter(|first| first.answer >= second.answer).unwrap_or(second)
}

/// Formats a name as users write it.
fn text(name: &Name) -> String {
    name.to_string().trim_end_matches('.').to_owned()
}

/// Returns the options for one question to one server.
fn asking(options: &ResolverOpts) -> ResolverOpts {
    let mut asking = options.clone();
    asking.timeout = options.timeout.clamp(Duration::from_secs(1), WITHIN);
    // `System::ask` repeats.
    asking.attempts = 0;
    asking.num_concurrent_reqs = 1;
    asking.cache_size = 0;
    asking.use_hosts_file = ResolveHosts::Never;
    asking
}

/// Parses resolv.conf. Without a server the default is this machine (resolv.conf(5)). An unreadable search list is ignored, and
/// its servers are kept.
fn parse(text: &[u8]) -> (ResolverConfig, ResolverOpts) {
    const LOCAL: &[u8] = b"\nnameserver 127.0.0.1\n";
    let is_search = |line: &&[u8]| line.starts_with(b"search") || line.starts_with(b"domain");
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !is_search(line));
    let without: Vec<u8> = lines.collect::<Vec<_>>().join(&b'\n');
    let texts =
        [text.to_owned(), [text, LOCAL].concat(), without.clone(), [&without, LOCAL].concat(), LOCAL.to_owned()];
    let read = texts.iter().find_map(|text| parse_resolv_conf(text).ok());
    read.unwrap_or_else(|| (ResolverConfig::from_parts(None, vec![], vec![]), ResolverOpts::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(resolv_conf: &str, host: &str) -> Vec<String> {
        let system = System::parse(resolv_conf.as_bytes(), b"");
        system.names(&Name::from_str_relaxed(host).unwrap()).iter().map(text).collect()
    }

    #[test]
    fn names_are_asked_for_in_the_order_of_resolv_conf() {
        let pod = "search ns.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n";
        let [first, second] = ["ns.svc.cluster.local", "svc.cluster.local"];
        assert_eq!(names(pod, "etcd"), [format!("etcd.{first}"), format!("etcd.{second}"), "etcd".to_owned()]);
        let store = "s3.example.com";
        assert_eq!(names(pod, store), [format!("{store}.{first}"), format!("{store}.{second}"), store.to_owned()]);
        assert_eq!(names(pod, "s3.example.com."), [store], "a dot at the end");
        let many = "a.b.c.d.e.f";
        assert_eq!(names(pod, many), [many.to_owned(), format!("{many}.{first}"), format!("{many}.{second}")]);
        let host = "search example.com\nnameserver 10.0.0.1\n";
        assert_eq!(names(host, "a.b"), ["a.b", "a.b.example.com"], "ndots is 1");
        assert_eq!(names("domain example.com\nnameserver 10.0.0.1\n", "a"), ["a.example.com", "a"]);
        assert_eq!(names("search .\nnameserver 10.0.0.1\n", "a.b"), ["a.b"]);
    }

    #[test]
    fn servers_and_limits_are_those_of_resolv_conf() {
        let of = |text: &str| {
            let system = System::parse(text.as_bytes(), b"");
            let servers: Vec<_> = system.servers.iter().map(|server| server.ip.to_string()).collect();
            (servers.join(" "), system.attempts, system.search.len())
        };
        assert_eq!(of(""), ("127.0.0.1".to_owned(), 2, 0));
        assert_eq!(of("search a\noptions attempts:3\n"), ("127.0.0.1".to_owned(), 3, 1));
        let four = "nameserver 10.0.0.1\nnameserver fd00::1\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n";
        assert_eq!(of(four), ("10.0.0.1 fd00::1 10.0.0.3".to_owned(), 2, 0));
        let long = format!("search {}\nnameserver 10.0.0.1\n", "a".repeat(70));
        assert_eq!(of(&long), ("10.0.0.1".to_owned(), 2, 0), "a search domain that cannot be one");
        let timeout = |text: &str| asking(&parse(text.as_bytes()).1).timeout.as_secs();
        assert_eq!([timeout("options timeout:2"), timeout("options timeout:30"), timeout("")], [2, 4, 4]);
    }

    #[tokio::test]
    async fn the_file_of_hosts_and_localhost_need_no_server() {
        // No server listens there.
        let nowhere = b"nameserver 127.0.0.2\noptions timeout:1 attempts:1\n";
        let system = System::parse(nowhere, b"10.1.2.3 Store.example.com store # a store\nfd00::1 store\nnonsense\n");
        for (host, found) in
            [("store", "10.1.2.3 fd00::1"), ("store.EXAMPLE.com", "10.1.2.3"), ("localhost", "127.0.0.1 ::1")]
        {
            let ips: Vec<_> = system.look_up(host).await.unwrap().iter().map(ToString::to_string).collect();
            assert_eq!(ips.join(" "), found);
        }
        let error = system.look_up("other").await.unwrap_err().to_string();
        assert!(error.contains("DNS server 127.0.0.2") && error.contains("other"), "{error}");
        let error = system.look_up(&"a.".repeat(200)).await.unwrap_err().to_string();
        assert!(error.contains("is no name that DNS can hold"), "{error}");
    }
}
