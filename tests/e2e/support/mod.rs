//! What stories are told with.

pub mod apply;
pub mod closing;
pub mod collect;
pub mod env;
pub mod exec;
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

/// Whether a tool does as it should; if not, what is wrong.
pub type Check = fn() -> Result<(), String>;

/// Whether the tools that judge do so rightly: without a cluster, and named as tests.
pub const CHECKS: [(&str, Check); 4] = [
    ("tools: requests are read", kfault::call::check),
    ("tools: messages of a command are read", exec::check),
    ("tools: what is random is masked", mask::check),
    ("tools: Secrets are found", secrets::check),
];
