//! Tools of the stories.

pub mod apply;
pub mod audit;
pub mod closing;
pub mod collect;
pub mod env;
pub mod exec;
pub mod helm;
pub mod host_operator;
pub mod kfault;
pub mod kube_helpers;
pub mod ledger;
pub mod leftovers;
pub mod luck;
pub mod make;
pub mod mask;
pub mod oracle;
pub mod pki;
pub mod probe;
pub mod program;
pub mod secrets;
pub mod steps;
pub mod stored;
pub mod verbs;
pub mod workload;
pub mod world;

/// Checks a tool; `Err` describes its defect.
pub type Check = fn() -> Result<(), String>;

/// Checks of the tools that judge a story: without a cluster, and named as tests.
pub const CHECKS: [(&str, Check); 4] = [
    ("tools: requests are read", kfault::call::check),
    ("tools: messages of a command are read", exec::check),
    ("tools: what is random is masked", mask::check),
    ("tools: Secrets are found", secrets::check),
];
