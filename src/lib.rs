//! Holdfast: runs etcd clusters on Kubernetes and proves that their backups restore.
//!
//! One pass of every controller:
//!
//! ```text
//! watch caches ─┐
//! live reads  ──┼─► observe ─► Observed ─► plan ─► Plan ─► safety ─► act
//! etcd RPCs   ──┘  (operator)             (pure)          (pure)    (operator)
//! ```
//!
//! * [`holdfast_api`]: the custom resources, one file per kind.
//! * [`holdfast_operator`]: effects only: watches, reads, writes, etcd, the lease.
//! * [`holdfast_plan`]: pure decisions, in four crates behind one door. Start reading at `crates/plan/base/src/lib.rs`.
//! * [`cli`]: flags to plain structs; [`agent`]: the door to the data mover; [`logs`]: format and destination of log lines.
//! * [`holdfast_plugin`]: the commands for people, as a plugin of kubectl.
//! * [`holdfast_manifests`]: the objects that the operator needs to run.
//!
//! The dependency rule: this crate → `holdfast_operator` → `holdfast_plan` → `holdfast_api` → `holdfast_contract`, and this crate → `holdfast_plugin` →
//! `holdfast_cluster` and `holdfast_base`. Never the other way; Cargo holds it.

#![cfg_attr(
    test,
    allow(
        missing_docs,
        unreachable_pub,
        clippy::pedantic,
        clippy::unwrap_in_result,
        reason = "tests favour plain words"
    )
)]

pub mod agent;
pub mod cli;
pub mod logs;
