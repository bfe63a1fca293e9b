//! A member that is cut off from its cluster: clients reach it, and it answers with its last state. It runs in a network namespace
//! of its own, with one link for members and one for clients.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use holdfast_contract::{Compression, ExitClass};
use snapshot_agent::verbs::save;

use crate::members::{all, lead, saves_all_of_it};
use crate::support::{Etcd, bin, eventually, file_store, files, free_port, save_request};

/// A link between the host and the namespace: its name in the namespace, and its network of four addresses, from the range that is
/// reserved for benchmarks (RFC 2544).
struct Link {
    name: &'static str,
    here: String,
    there: String,
}

impl Link {
    fn new(name: &'static str, second: u8, port: u16) -> Self {
        let at = |host: u8| format!("198.{second}.{}.{}", port >> 8, (port & 0xfc) as u8 + host);
        Self { name, here: at(1), there: at(2) }
    }
}

/// The network namespace at the other end.
struct Island {
    name: String,
    members: Link,
    clients: Link,
}

impl Drop for Island {
    fn drop(&mut self) {
        let _gone = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap();
    assert!(output.status.success(), "ip {args:?}, as root: {}", String::from_utf8_lossy(&output.stderr));
}

impl Island {
    fn new() -> Self {
        // No other test has this number.
        let port = free_port();
        let name = format!("hf{port}");
        ip(&["netns", "add", &name]);
        let island = Self { name, members: Link::new("members", 18, port), clients: Link::new("clients", 19, port) };
        for link in [&island.members, &island.clients] {
            let outside = format!("{}{}", island.name, &link.name[..1]);
            ip(&["link", "add", &outside, "type", "veth", "peer", "name", link.name, "netns", &island.name]);
            ip(&["addr", "add", &format!("{}/30", link.here), "dev", &outside]);
            ip(&["link", "set", &outside, "up"]);
            ip(&["-n", &island.name, "addr", "add", &format!("{}/30", link.there), "dev", link.name]);
            ip(&["-n", &island.name, "link", "set", link.name, "up"]);
        }
        island
    }

    /// Cuts the link to the other members, or restores it; clients reach the member all the time.
    fn in_sight(&self, is: bool) {
        ip(&["-n", &self.name, "link", "set", self.members.name, if is { "up" } else { "down" }]);
    }

    /// Starts two members on the host and the last one in the namespace.
    async fn three(&self) -> Vec<Etcd> {
        let hosts = [&self.members.here, &self.members.here, &self.members.there];
        let peers = hosts.map(|host| format!("http://{host}:{}", free_port()));
        let all: Vec<_> = peers.iter().enumerate().map(|(i, peer)| format!("m{i}={peer}")).collect();
        let all = format!("--initial-cluster={}", all.join(","));
        let starts = peers.iter().enumerate().map(async |(i, peer)| {
            let folder = tempfile::tempdir().unwrap();
            let (name, etcd) = (format!("m{i}"), bin("etcd"));
            if i < 2 {
                let data = folder.path().join("data");
                return Etcd::on(folder, &data, &name, peer, &[&all]).await;
            }
            let there = folder.path().join("etcd-there");
            let script = format!("#!/bin/sh\nexec ip netns exec {} {} \"$@\"\n", self.name, etcd.display());
            fs::write(&there, script).unwrap();
            fs::set_permissions(&there, fs::Permissions::from_mode(0o755)).unwrap();
            Etcd::by(there, folder, &self.clients.there, &name, peer, &[&all]).await
        });
        futures::future::join_all(starts).await
    }
}

/// Makes an acknowledged write on the host's side, as soon as there is a leader.
async fn acknowledged(members: &[Etcd]) -> i64 {
    eventually("a write", async || {
        let answer = members[0].client().await.put("acknowledged", "", None).await.ok()?;
        Some(answer.header()?.revision())
    })
    .await
}

/// Checks that a save from a member without confirmation fails: no backup, rather than an old one.
async fn refused_alone(what: &str, member: &Etcd) {
    let mount = tempfile::tempdir().unwrap();
    let request = save_request(member.flags(), file_store(mount.path()), Compression::Zstd);
    let error = save::run(request).await.expect_err(what);
    println!("{what}: {error}");
    assert_eq!(error.class(), ExitClass::Transient, "{what}: {error}");
    assert_eq!(files(mount.path()), [] as [&str; 0], "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_member_knows_that_is_cut_off_is_no_backup() {
    let island = Island::new();
    let members = island.three().await;
    members[0].fill(30, 10_000).await;
    saves_all_of_it("all well", all(&members), acknowledged(&members).await).await;

    lead(&members, 0).await;
    // The member still names its leader, and lacks the write: once among others, once alone.
    island.in_sight(false);
    let since = acknowledged(&members).await;
    let (read, _) = saves_all_of_it("a follower, just cut off", all(&members), since).await;
    assert_ne!(read, 2);
    island.in_sight(true);
    members[2].ready().await;
    island.in_sight(false);
    let since = acknowledged(&members).await;
    refused_alone("a follower, just cut off", &members[2]).await;
    refused_alone("a follower, cut off for a while", &members[2]).await;
    island.in_sight(true);
    members[2].ready().await;
    let (read, _) = saves_all_of_it("in sight again", members[2].flags(), since).await;
    assert_eq!(read, 2);

    lead(&members, 2).await;
    island.in_sight(false);
    // The member takes itself for the leader until no peer has answered for the time of an election.
    refused_alone("the leader, just cut off", &members[2]).await;
    let since = acknowledged(&members).await;
    let (read, _) = saves_all_of_it("the leader is cut off", all(&members), since).await;
    assert_ne!(read, 2);
    island.in_sight(true);
    members[2].ready().await;
    saves_all_of_it("all well again", all(&members), acknowledged(&members).await).await;
}
