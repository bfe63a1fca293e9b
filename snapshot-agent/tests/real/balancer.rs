//! A load balancer in front of members: an endpoint that leads to one member, and later to another.

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::front::Front;

/// An endpoint that leads to one server at a time.
pub(crate) struct Balancer {
    front: Front,
    leads_to: watch::Sender<String>,
}

impl Balancer {
    /// Starts an endpoint that leads to this server.
    pub(crate) async fn before(server: &str) -> Self {
        let (leads_to, leads) = watch::channel(address(server));
        let pass = move |mut client: TcpStream, _| {
            let mut leads = leads.clone();
            async move {
                let server = leads.borrow_and_update().clone();
                let mut server = TcpStream::connect(server).await?;
                tokio::select! {
                    ended = tokio::io::copy_bidirectional(&mut client, &mut server) => ended.map(drop),
                    // Like a Pod that leaves a Service.
                    _ = leads.changed() => Ok(()),
                }
            }
        };
        Self { front: Front::of(pass).await, leads_to }
    }

    pub(crate) fn url(&self) -> String {
        self.front.url()
    }

    /// Cuts all connections, and leads later connections to this server.
    pub(crate) fn turn_to(&self, server: &str) {
        self.leads_to.send(address(server)).unwrap();
    }
}

fn address(server: &str) -> String {
    server.trim_start_matches("http://").to_owned()
}
