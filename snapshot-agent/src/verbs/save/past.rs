//! What earlier saves of the same etcd have left in the store: when two members last agreed, the one that is read now among
//! them.
//!
//! It reads the store, for some seconds at most, and changes nothing. It decides where that is looked for; what spares a
//! second voter is decided in `etcd/hash_kv/due.rs`. What cannot be found out is no agreement, and no save fails for it:
//! credentials that may only write are a careful choice.

use std::pin::pin;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use tokio::time::timeout;

use crate::catalog::attempts::last_attempts;
use crate::catalog::look::{Looked, look};
use crate::error::Result;
use crate::etcd::hash_kv::due;
use crate::format::layout::{Folder, attempt_time};
use crate::format::manifest::Manifest;
use crate::store::Store;

/// Earlier saves that are looked at, the newest. With more than these in a day a second voter is asked more often.
const MOST: usize = 32;

/// Of them at a time: a stream goes by meanwhile.
const AT_ONCE: usize = 4;

/// After this the hashing costs less than the waiting.
const WITHIN: Duration = Duration::from_secs(10);

/// The saves before one that is under way.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) store: Store,
    /// The folder of the one that is under way.
    pub(super) attempt: Folder,
    /// When that began.
    pub(super) at: Timestamp,
    /// ID (hex) of the etcd cluster.
    pub(super) cluster_id: String,
    /// Name of the member that is read.
    pub(super) source: String,
}

impl Past {
    /// When the newest save began that spares a second voter; `None` also where that cannot be found out.
    pub(super) async fn agreed(&self) -> Option<Timestamp> {
        known(WITHIN, self.newest()).await
    }

    async fn newest(&self) -> Result<Option<Timestamp>> {
        let Some(lineage) = self.attempt.parent() else { return Ok(None) };
        let (_, begun) = last_attempts(&self.store, &lineage, MOST, Some(&self.attempt)).await?;
        // A name says when its save began, so the older ones need not be read.
        let is_recent =
            |folder: &Folder| attempt_time(folder.name()).is_some_and(|began| due::is_recent(began, self.at));
        let looks: Vec<_> = begun.into_iter().rev().filter(is_recent).map(|folder| self.look_at(folder)).collect();
        let mut looked = pin!(stream::iter(looks).buffered(AT_ONCE));
        while let Some(found) = looked.next().await {
            if let Some(began) = found? {
                return Ok(Some(began));
            }
        }
        Ok(None)
    }

    /// When this one began, if it spares a second voter.
    async fn look_at(&self, folder: Folder) -> Result<Option<Timestamp>> {
        Ok(match look(&self.store, &folder, |manifest| self.is_ours(manifest, &folder)).await? {
            Looked::Complete(manifest) => {
                let agreed_by = manifest.verification.map(|found| found.agreed_by).unwrap_or_default();
                let spares = due::spares(manifest.started_at, &agreed_by, &self.source, self.at);
                spares.then_some(manifest.started_at)
            }
            // Whatever it once said cannot be read.
            Looked::WithoutManifest | Looked::Unwanted | Looked::Broken(_) => None,
        })
    }

    /// Whether a manifest stands in its place, and is of this very etcd: members of others may have the same names.
    fn is_ours(&self, manifest: &Manifest, folder: &Folder) -> bool {
        manifest.key == folder.as_str() && manifest.cluster_id == self.cluster_id
    }
}

/// What was found within this time; nothing, where that fails.
async fn known(within: Duration, looking: impl Future<Output = Result<Option<Timestamp>>>) -> Option<Timestamp> {
    let why = match timeout(within, looking).await {
        Ok(Ok(found)) => return found,
        Ok(Err(error)) => error.message().to_owned(),
        Err(_) => format!("the store has not said within {} s", within.as_secs()),
    };
    tracing::info!(why, "when two members last agreed is not known: a second one is asked");
    None
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::contract::StoreFlags;
    use crate::error::Error;
    use crate::format::manifest::sample;

    const LINEAGE: &str = "shop/orders/1a2b3c4d";

    /// An earlier save that began at this time of the day; its folder.
    fn saved(mount: &Path, time: &str, more: &Value) -> PathBuf {
        let key = format!("{LINEAGE}/20261121T{}Z-99887766-00000001", time.replace(':', ""));
        let at = format!("2026-11-21T{time}Z");
        let manifest = json!({"member": "m1", "startedAt": at, "endedAt": at});
        sample::put(mount, &key, &sample::but(sample::but(sample::manifest(&key), &manifest), more))
    }

    fn agreed_by(members: &[&str]) -> Value {
        json!({"verification": {"level": "HashKV", "agreedBy": members}})
    }

    /// A store, and the past of a save there that begins at noon.
    fn at_noon() -> (TempDir, Past) {
        let mount = tempfile::tempdir().unwrap();
        let url = format!("file://{}", mount.path().display());
        let past = Past {
            store: Store::open(&StoreFlags { url, ..StoreFlags::default() }).unwrap(),
            attempt: Folder::parse("key", &format!("{LINEAGE}/20261121T120000Z-99887766-ffffffff")).unwrap(),
            at: "2026-11-21T12:00:00.5Z".parse().unwrap(),
            cluster_id: "cafe".to_owned(),
            source: "m1".to_owned(),
        };
        (mount, past)
    }

    fn today(time: &str) -> Timestamp {
        format!("2026-11-21T{time}Z").parse().unwrap()
    }

    #[tokio::test]
    async fn the_newest_save_that_two_agreed_on_is_found() {
        let (one, two, others) = (agreed_by(&["m1"]), agreed_by(&["m1", "m2"]), agreed_by(&["m2", "m3"]));
        let but = |name: &str, value: Value| {
            let mut changed = two.clone();
            changed[name] = value;
            changed
        };
        for (what, saves, found) in [
            ("nothing was saved", vec![], None),
            ("one", vec![("10:00:00", two.clone())], Some(today("10:00:00"))),
            ("the newer of two", vec![("09:00:00", two.clone()), ("10:00:00", two.clone())], Some(today("10:00:00"))),
            ("alone since then", vec![("10:00:00", two.clone()), ("11:00:00", one.clone())], Some(today("10:00:00"))),
            ("never but alone", vec![("10:00:00", one)], None),
            ("from before this was recorded", vec![("10:00:00", json!({}))], None),
            ("this source was not asked", vec![("10:00:00", others)], None),
            ("it says another day", vec![("10:00:00", but("startedAt", json!("2026-11-20T10:00:00Z")))], None),
            ("it says a day to come", vec![("10:00:00", but("startedAt", json!("2026-11-22T10:00:00Z")))], None),
            ("begun after this one", vec![("12:00:01", two.clone())], None),
            ("another etcd", vec![("10:00:00", but("clusterId", json!("beef")))], None),
            ("it was put there", vec![("10:00:00", but("key", json!("shop/orders/1a2b3c4d/x")))], None),
            ("its data was cut", vec![("10:00:00", but("storedBytes", json!(6)))], None),
            ("of a later version", vec![("10:00:00", but("formatVersion", json!(99)))], None),
            (
                "behind one that cannot be read",
                vec![("10:00:00", two.clone()), ("11:00:00", but("formatVersion", json!(99)))],
                Some(today("10:00:00")),
            ),
        ] {
            let (mount, past) = at_noon();
            for (time, more) in saves {
                saved(mount.path(), time, &more);
            }
            assert_eq!(past.agreed().await, found, "{what}");
        }
    }

    #[tokio::test]
    async fn so_many_are_looked_at_and_no_more() {
        let (mount, past) = at_noon();
        saved(mount.path(), "10:00:00", &agreed_by(&["m1", "m2"]));
        for minute in 1..MOST {
            saved(mount.path(), &format!("11:{minute:02}:00"), &agreed_by(&["m1"]));
        }
        assert_eq!(past.agreed().await, Some(today("10:00:00")));
        saved(mount.path(), "11:59:00", &agreed_by(&["m1"]));
        assert_eq!(past.agreed().await, None);
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_read_or_does_not_answer_spares_nobody() {
        assert_eq!(known(Duration::from_millis(1), std::future::pending()).await, None, "it is not waited for");
        let denied = async { Err(Error::denied("it may not be listed")) };
        assert_eq!(known(WITHIN, denied).await, None);

        let (mount, past) = at_noon();
        saved(mount.path(), "10:00:00", &agreed_by(&["m1", "m2"]));
        assert_eq!(past.agreed().await, Some(today("10:00:00")));
        let unknown = saved(mount.path(), "11:00:00", &json!({})).join("manifest.json");
        fs::remove_file(&unknown).unwrap();
        fs::create_dir(&unknown).unwrap();
        assert_eq!(past.agreed().await, None, "unknown is not absent");
    }
}
