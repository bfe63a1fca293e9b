//! `/healthz`, `/readyz` and `/metrics`.
//!
//! Healthy: the process answers. Ready: the caches are filled; a standby is ready too, because it could lead at once.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use holdfast_api::EtcdSnapshot;
use holdfast_api::snapshot::Phase;
use tokio::net::TcpListener;

use super::clock;
use super::metrics::Metrics;
use super::object_metrics;
use super::status::cluster_state;
use holdfast_kube::kinds::Caches;

/// Data of the pages.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// The operator's metrics.
    pub(super) metrics: Arc<Metrics>,
    /// Whether the caches are filled.
    pub(super) ready: Arc<AtomicBool>,
    /// Source of the metrics of clusters, snapshots and stores, computed for each scrape.
    pub(super) caches: Caches,
}

/// Serves the pages until the process ends, so that probes get answers during the shutdown too.
pub(super) async fn serve(listen: SocketAddr, pages: Pages) -> anyhow::Result<()> {
    let listener = bind(listen).await.with_context(|| format!("--listen {listen}: the address cannot be used"))?;
    let app = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(pages);
    axum::serve(listener, app).await.context("HTTP server")
}

/// Binds the address. `[::]` takes IPv4 as well; a kernel without IPv6 lacks the address.
async fn bind(listen: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(listen).await {
        Err(error) if listen.ip() == Ipv6Addr::UNSPECIFIED && !has_no_room(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, listen.port())).await
        }
        bound => bound,
    }
}

/// Whether the port is taken or forbidden, in either family.
fn has_no_room(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied)
}

async fn ready(State(pages): State<Pages>) -> (StatusCode, &'static str) {
    if pages.ready.load(Ordering::Acquire) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the caches are not filled yet\n")
    }
}

async fn metrics(State(pages): State<Pages>) -> impl IntoResponse {
    let clusters = pages.caches.clusters.state();
    for state in ["ready", "degraded", "progressing"] {
        pages.metrics.clusters(state, clusters.iter().filter(|c| cluster_state(c) == state).count());
    }
    let snapshots = pages.caches.snapshots.state();
    for phase in Phase::ALL {
        let is = |s: &&Arc<EtcdSnapshot>| s.status.as_ref().map(|s| s.phase).unwrap_or_default() == phase;
        pages.metrics.snapshots(phase.as_str(), snapshots.iter().filter(is).count());
    }
    // A standby's view of the schedules may be old for a long time without a sign of it.
    let schedules = if pages.metrics.is_leading() { pages.caches.schedules.state() } else { vec![] };
    let stores = pages.caches.backup_stores.state();
    let objects = object_metrics::registry(&clusters, &stores, &schedules, clock::now());
    match pages.metrics.render(&objects) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text)
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn both_families_are_served_where_the_kernel_has_them() {
        let listener = bind("[::]:0".parse().unwrap()).await.unwrap();
        let at = listener.local_addr().unwrap();
        TcpStream::connect((Ipv4Addr::LOCALHOST, at.port())).await.unwrap();
        if at.is_ipv6() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, at.port())).await.unwrap();
        }
        let taken = bind(at).await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    }
}
