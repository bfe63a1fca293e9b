//! Rules for plans about a store.

use super::{Verdict, rule};
use crate::api::{EtcdBackupStoreStatus, component, key};
use crate::plan::build::job::{expects, probes};
use crate::plan::store::{Observed, known};
use crate::plan::{Act, Plan, meta};

/// Whether a plan keeps the rules.
pub fn store(seen: &Observed, plan: &Plan<EtcdBackupStoreStatus>) -> Verdict {
    rule("I13", plan.ensures.is_empty(), "a store has nothing that is applied")?;
    let Some(act) = &plan.act else { return Ok(()) };
    let Act::StartJob(job) = act else {
        return rule("I13", false, "a store's pass never changes anything but starts its probe");
    };
    let meta = &seen.store.metadata;
    rule("I18", !meta::deleting(meta), "nothing is started for a store that is being deleted")?;
    rule("I13", seen.job.is_none(), "a probe is started once")?;
    let owned = meta::controlled_by(&job.metadata, meta::uid(meta)) && job.metadata.namespace == meta.namespace;
    rule("I13", owned, "a store's Job is its own and stands beside it")?;
    let template = job.spec.as_ref().map(|s| &s.template);
    rule("I13", template.and_then(|t| t.spec.as_ref()).is_some_and(probes), "a store's Job probes and nothing else")?;
    let told = known(&seen.store).is_none_or(|known| expects(job, &known.id));
    rule("I25", told, "a store whose mark is known is probed for it")?;
    let agent = template.and_then(|t| t.metadata.as_ref());
    let agent = agent.is_some_and(|m| meta::label(m, key::COMPONENT) == Some(component::SNAPSHOT_AGENT));
    rule("I16", agent, "an agent's Pod never stands behind a Service of a cluster")
}
