//! Defragmentation: free space of the members' databases goes back to their volumes.
//!
//! Decides the shape. `plan::cluster::defragment` decides when and which member.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where `spec.defragmentation.freePercent` is absent: half of the file.
const FREE_PERCENT: u8 = 50;

/// Where `spec.defragmentation.pauseSeconds` is absent: clients reconnect, and caches of the disk fill.
const PAUSE_SECONDS: u32 = 600;

/// When Holdfast defragments members. etcd serves nothing on a member meanwhile, about a second for each 300 MB in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defragmentation {
    /// `WhenNeeded` (default): a member whose file has at least `freePercent` and `freeBytes` of free space, or whose file is
    /// above 80 % of its quota and has 20 % of free space; one member at a time, followers first and the leader
    /// last, while every member is well and no snapshot is being saved. A cluster of one member, whose clients wait
    /// meanwhile, needs a `window`. `Never`: not even to end a `NOSPACE` alarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DefragmentationMode")]
    pub mode: Option<DefragmentationMode>,
    /// Least free part of a member's file in percent, 1 to 99; default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub free_percent: Option<u8>,
    /// Least free space of a member's file; default 256Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<Quantity>,
    /// Shortest time in seconds between the end of one defragmentation and the next one, 0 to 86400; default 600. A `NOSPACE`
    /// alarm waits for no pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub pause_seconds: Option<u32>,
    /// Size up to which Holdfast raises `options.quotaBackendBytes` by itself, such as `8Gi`; default: never. The quota doubles,
    /// up to this size, when a `NOSPACE` alarm ends with no defragmentation, or a file is above 80 % of its quota and less than
    /// 20 % of it is free. Members restart one after the other; with one or two members writes stop meanwhile, so before the
    /// alarm the quota doubles only inside `window`. The spec stays; `status.latches.grantedQuota` has the quota. `storage.size`
    /// needs room for this size and the log (1 GiB, or half of a volume below 2 GiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_quota_to: Option<Quantity>,
    /// Times at which Holdfast defragments; default: any time. A `NOSPACE` alarm waits for no window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
}

/// When Holdfast defragments a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DefragmentationMode {
    /// When a member's file has enough free space.
    #[default]
    WhenNeeded,
    /// Never.
    Never,
}

/// A recurring period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Beginning of the period as a cron line with five fields, such as `0 2 * * *`.
    #[schemars(length(min = 1, max = 100))]
    pub schedule: String,
    /// Length of the period in seconds, 60 to 86400. A defragmentation that has begun goes on to its end.
    #[schemars(range(min = 60, max = 86_400))]
    pub seconds: u32,
    /// Time zone of the line, such as `Europe/Berlin`; default `Etc/UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
}

impl Defragmentation {
    /// Least free part of a member's file in percent.
    pub fn free_percent(&self) -> u8 {
        self.free_percent.unwrap_or(FREE_PERCENT)
    }

    /// Shortest time in seconds between two defragmentations.
    pub fn pause_seconds(&self) -> u32 {
        self.pause_seconds.unwrap_or(PAUSE_SECONDS)
    }

    /// Least free space of a member's file.
    pub fn free_bytes(&self) -> Quantity {
        self.free_bytes.clone().unwrap_or_else(|| Quantity("256Mi".to_owned()))
    }
}

/// Defragmentation of a member that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defragmenting {
    /// Name of the member.
    pub member: String,
    /// Time of the decision (RFC 3339). When the cluster has its turn, the member's Pod leaves the Service for clients.
    pub at: String,
    /// Bytes of the file.
    #[schemars(range(min = 0))]
    pub bytes: i64,
    /// Bytes of the file in use.
    #[schemars(range(min = 0))]
    pub used_bytes: i64,
    /// Time at which the Pod had left the Service for clients (RFC 3339): etcd is asked to defragment two seconds later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
}

/// Last defragmentation of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defragmented {
    /// Name of the member.
    pub member: String,
    /// Time of its end (RFC 3339).
    pub at: String,
    /// Bytes of the file before.
    #[schemars(range(min = 0))]
    pub before_bytes: i64,
    /// Bytes of the file afterwards. Where less than half of the free space came back, Holdfast waits a day before it
    /// defragments the member again.
    #[schemars(range(min = 0))]
    pub after_bytes: i64,
    /// Whether less than half of the free space came back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ineffective: bool,
}
