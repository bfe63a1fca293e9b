//! Publishes a merged database as a snapshot, as a save publishes the stream of an etcd.
//!
//! This file decides the stream: the database of the scratch folder, and etcd's sha256 at its end. The manifest names the base's
//! member and the merge's own proof; no member is asked.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::Stream;
use futures::future::BoxFuture;
use futures::stream;
use holdfast_contract::error::{Error, Result, io_error};
use holdfast_contract::{AskMembers, CompactRequest, SaveRequest, SavedReport};
use holdfast_io::clock;
use holdfast_io::interrupt::Interrupt;
use holdfast_io::sha256::Sha256;
use holdfast_layout::manifest::Manifest;
use holdfast_store::Store;
use tokio::sync::mpsc;

use super::{Ask, Saving};
use holdfast_catalog::merged::MergedSnapshot;
use holdfast_etcd::member::{Candidate, Member};

/// Bytes of the file that are read at a time.
const PIECE: usize = 1 << 20;

/// Pieces that are read ahead.
const AHEAD: usize = 2;

/// Publishes; the time limit of the request counts from the begin of the merge.
pub fn run(request: CompactRequest, merged: MergedSnapshot) -> BoxFuture<'static, Result<SavedReport>> {
    Box::pin(async move {
        let passed = Duration::try_from(clock::now().duration_since(merged.at)).unwrap_or_default();
        let remaining = Duration::from_secs(request.deadline_seconds.into()).saturating_sub(passed);
        let mut interrupt = Interrupt::after(remaining.as_secs())?;
        let saving = publishing(&request, &merged.base);
        let store = Store::open(&saving.store)?;
        let member = member_of(&merged.base, merged.db_bytes)?;
        let version = merged.base.storage_version.clone().unwrap_or_default();
        let path = merged.path();
        let file = File::open(&path).map_err(io_error(format!("opening {}", path.display())))?;
        let attempt = Saving::begin_at(merged.at, &saving, &store, member, &mut interrupt).await?;
        let stream = Ok((version, Box::pin(with_trailer(file))));
        Saving { merged: Some(&merged), ..attempt }.finish(stream, Ask::without_members(), &mut interrupt).await
    })
}

/// Returns the request of a save that publishes the merged database, with the facts of the cluster in the base's manifest.
fn publishing(request: &CompactRequest, base: &Manifest) -> SaveRequest {
    SaveRequest {
        store: request.store.clone(),
        expect_store_id: request.expect_store_id.clone(),
        namespace: request.namespace.clone(),
        cluster: request.cluster.clone(),
        cluster_uid: base.cluster_uid.clone(),
        cluster_spec: base.cluster_spec.as_ref().and_then(|spec| serde_json::to_string(spec).ok()),
        restored_from: base.restored_from.clone(),
        owner_name: request.owner_name.clone(),
        owner_uid: request.owner_uid.clone(),
        schedule_name: request.schedule_name.clone(),
        schedule_uid: request.schedule_uid.clone(),
        pod_uid: request.pod_uid.clone(),
        compression: request.compression,
        ask_members: AskMembers::Never,
        verify: request.verify,
        age_recipients: request.age_recipients.clone(),
        deadline_seconds: request.deadline_seconds,
        ..SaveRequest::default()
    }
}

/// Returns the member of the base: its term, index and membership are those of the merged database.
fn member_of(base: &Manifest, db_bytes: u64) -> Result<Member> {
    let id = |id: &str| {
        u64::from_str_radix(id, 16)
            .map_err(|_| Error::corrupt(format!("the manifest of {} has no valid IDs", base.key)))
    };
    let facts = Candidate {
        endpoint: String::new(),
        cluster_id: id(&base.cluster_id)?,
        member_id: id(&base.member_id)?,
        leader: 0,
        applied: base.raft_applied_index,
        term: base.raft_term,
        learner: false,
        corrupt: false,
        db_bytes,
        used_bytes: db_bytes,
        version: base.etcd_version.clone(),
        storage_version: base.storage_version.clone().unwrap_or_default(),
    };
    Ok(Member { facts, name: base.member.clone(), without_quorum: base.without_quorum })
}

/// Returns the bytes of the file and their sha256, as etcd's snapshot stream ends.
fn with_trailer(file: File) -> impl Stream<Item = Result<Bytes>> + Send {
    let (to_stream, pieces) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = read_pieces(file, &to_stream) {
            // The receiver's own error says more.
            let _ended = to_stream.blocking_send(Err(error));
        }
    });
    stream::unfold(pieces, |mut pieces| async move { pieces.recv().await.map(|piece| (piece, pieces)) })
}

fn read_pieces(mut file: File, to_stream: &mpsc::Sender<Result<Bytes>>) -> Result<()> {
    let mut hash = Sha256::new();
    loop {
        let mut piece = BytesMut::zeroed(PIECE);
        let got = file.read(&mut piece).map_err(io_error("reading the merged database in --scratch"))?;
        if got == 0 {
            break;
        }
        piece.truncate(got);
        hash.update(&piece);
        if to_stream.blocking_send(Ok(piece.freeze())).is_err() {
            return Ok(());
        }
    }
    let _ended = to_stream.blocking_send(Ok(Bytes::copy_from_slice(&hash.finalize())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use futures::StreamExt as _;
    use holdfast_contract::ExitClass;

    use super::*;
    use holdfast_catalog::merged::{check_published, hash_database};
    use holdfast_format::trailer;

    /// The trailer is that of the bytes as they are read: it does not show that they have changed.
    #[tokio::test]
    async fn a_database_that_changed_after_its_proof_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshot.db");
        std::fs::write(&path, vec![7; 2 * PIECE + 4096]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let proven = hash_database(&file, file.metadata().unwrap().len()).unwrap();
        for changes in [false, true] {
            if changes {
                file.write_all_at(b"x", 4096).unwrap();
            }
            let mut stream = Box::pin(with_trailer(File::open(&path).unwrap()));
            let mut hasher = trailer::Hasher::default();
            while let Some(piece) = stream.next().await {
                hasher.update(&piece.unwrap());
            }
            let streamed = hasher.finish().unwrap();
            let checked = check_published(Some(proven), streamed.sha256);
            assert_eq!(checked.err().map(|error| error.class()), changes.then_some(ExitClass::Corrupt));
        }
        assert!(check_published(None, proven).is_err(), "a merge without a hash");
    }
}
