//! Counts created and deleted objects, from watches that start before the story and see everything.
//!
//! An object is counted by its UID, so a broken watch counts no object twice. The oracle judges the counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::world::World;

/// Counted kinds: everything that the operator creates, and the Pods of its Jobs.
const COUNTED: [&str; 8] =
    ["Pod", "PersistentVolumeClaim", "EtcdMember", "EtcdSnapshot", "Job", "CronJob", "Service", "PodDisruptionBudget"];

/// Life of one object.
#[derive(Clone, Debug)]
struct Life {
    kind: &'static str,
    name: String,
    gone: bool,
}

type Lives = Arc<Mutex<BTreeMap<String, Life>>>;

/// The counter; dropping it stops the watches.
pub struct Ledger {
    lives: Lives,
    _watches: JoinSet<()>,
}

/// Number of creations and of deletions.
pub type Count = (usize, usize);

impl Ledger {
    /// Starts the watches, and returns when each of them has its first list.
    pub async fn start(w: &World) -> Result<Self> {
        let lives = Lives::default();
        let mut watches = JoinSet::new();
        let mut standing = vec![];
        for kind in COUNTED {
            let (stands, seen) = watch::channel(false);
            standing.push(seen);
            let events = watcher(w.api(kind), watcher::Config::default()).default_backoff();
            watches.spawn(follow(kind, events, Arc::clone(&lives), stands));
        }
        for mut seen in standing {
            let stands = seen.wait_for(|stands| *stands);
            tokio::time::timeout(Duration::from_secs(30), stands).await.context("a watch does not stand")??;
        }
        Ok(Self { lives, _watches: watches })
    }

    /// Creations and deletions by kind and name; `name` gives the name under which an object is counted, or excludes it.
    pub fn counts(&self, name: impl Fn(&str) -> Option<String>) -> BTreeMap<String, Count> {
        let lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = BTreeMap::new();
        for life in lives.values() {
            if let Some(name) = name(&life.name) {
                let (created, deleted): &mut Count = counts.entry(format!("{} {name}", life.kind)).or_default();
                *created += 1;
                *deleted += usize::from(life.gone);
            }
        }
        counts
    }
}

async fn follow(
    kind: &'static str,
    events: impl futures::Stream<Item = watcher::Result<watcher::Event<DynamicObject>>>,
    lives: Lives,
    stands: watch::Sender<bool>,
) {
    let mut events = std::pin::pin!(events);
    // UIDs of a new list while it arrives: an object that is missing in it was deleted between two watches.
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        let mut lives = lives.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = |object: &DynamicObject, gone: bool| {
            let uid = object.uid().unwrap_or_default();
            let life = lives.entry(uid).or_insert_with(|| Life { kind, name: object.name_any(), gone });
            life.gone |= gone;
        };
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) => {
                live(&object, false);
                listed.insert(object.uid().unwrap_or_default());
            }
            watcher::Event::InitDone => {
                for (uid, life) in lives.iter_mut().filter(|(_, life)| life.kind == kind) {
                    life.gone |= !listed.contains(uid);
                }
                drop(lives);
                stands.send_replace(true);
            }
            watcher::Event::Apply(object) => live(&object, false),
            watcher::Event::Delete(object) => live(&object, true),
        }
    }
}
