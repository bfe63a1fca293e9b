//! More snapshots than one page of a store's listing: all of them are found, the last as well as the first.

use holdfast_contract::{Compression, EtcdFlags, InspectRequest, LatestRequest, ListRequest, SaveRequest};

use crate::backends::Backend;
use crate::faults::{messages, save_stream, snapshot};
use crate::support::save_request;
use futures::stream::{self, StreamExt};
use snapshot_agent::verbs::list::State;
use snapshot_agent::verbs::{inspect, latest, list};

/// More than one page of S3; of Azure, whose pages have 5000, the agent requests the same size.
const BEGUN: usize = 1_100;

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_on_a_later_page_is_there_too() {
    for backend in Backend::all().await {
        let request = SaveRequest {
            owner_uid: Some("5a0b1c2d".to_owned()),
            ..save_request(EtcdFlags::default(), backend.flags.clone(), Compression::Zstd)
        };
        let saved = save_stream(request, stream::iter(messages(&snapshot(64)))).await.unwrap();
        let lineage = saved.key.rsplit_once('/').unwrap().0;
        // Attempts of long ago and of the future, so that the whole snapshot is neither the first nor the last.
        let begun = (0..BEGUN).map(|number| {
            let year = if number % 2 == 0 { 2001 } else { 2090 };
            format!("{lineage}/{year}0101T0000{:02}Z-99887766-{number:08x}/snapshot.db.zst", number % 60)
        });
        stream::iter(begun).for_each_concurrent(16, |key| put(&backend, key)).await;

        let wanted = ListRequest { store: backend.flags.clone(), deadline_seconds: 120, ..ListRequest::default() };
        let listed = list::run(wanted).await.unwrap();
        let of = |state: State| listed.iter().filter(|entry| entry.state == state).count();
        assert_eq!((of(State::Incomplete), of(State::Complete)), (BEGUN, 1), "{}", backend.name);

        let wanted = InspectRequest {
            store: backend.flags.clone(),
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
            owner_uid: "5a0b1c2d".to_owned(),
            deadline_seconds: 120,
            ..InspectRequest::default()
        };
        assert_eq!(inspect::run(wanted).await.unwrap().key, saved.key, "{}", backend.name);

        let wanted = LatestRequest {
            store: backend.flags.clone(),
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
            lineage: None,
            deadline_seconds: 120,
            ..LatestRequest::default()
        };
        assert_eq!(latest::run(wanted).await.unwrap().key, saved.key, "{}", backend.name);
    }
}

async fn put(backend: &Backend, key: String) {
    backend.put(&key, "x").await;
}
