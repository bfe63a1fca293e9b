//! Ports for servers that tests start.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// The testbed's own etcd, which may start at the same moment.
const TESTBED: [u16; 2] = [21_379, 21_380];

/// A port of loopback that nobody listens on, and that is given once.
///
/// Not one of those that the kernel gives to whoever connects: between the look and the start it might. They are below
/// Kubernetes' own (`NodePort`s begin at 30000) and above those that its parts listen on.
pub(crate) fn free() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id().wrapping_mul(97);
    loop {
        let n = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).into()) % 18_000;
        let port = 12_000 + u16::try_from(n).unwrap();
        if !TESTBED.contains(&port) && is_ours(port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Whether no other program of these tests, and no child of theirs, has this number: a name that only one process can have,
/// until it ends.
fn is_ours(port: u16) -> bool {
    let name = SocketAddr::from_abstract_name(format!("holdfast-test-port-{port}")).unwrap();
    UnixListener::bind_addr(&name).map(std::mem::forget).is_ok()
}
