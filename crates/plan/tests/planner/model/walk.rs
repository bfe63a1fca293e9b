//! Long histories: random actors take random steps, and at the end the way to rest.
//!
//! Decides each next step by a seed. The search finds breaches by the shortest history; a walk goes further than the search.

use std::hash::Hasher;

use super::bugs::Bug;
use super::facts::{Facts, SLOTS};
use super::requests::Order;
use super::search::{Found, Mix, Model, Searched, Step, everybody, steps};
use super::sight::Kube;

impl Model {
    /// Takes `steps` steps of one history.
    pub fn walk(
        &mut self,
        start: &Facts,
        sizes: &[u8],
        (seed, length): (u64, usize),
        walked: &mut Searched,
    ) -> Result<(), Found> {
        let mut chance = Mix::default();
        let (mut facts, mut way) = (start.clone(), vec![]);
        for n in 0..length {
            if usize::from(facts.fresh) >= SLOTS {
                break;
            }
            chance.write_u64(seed + n as u64);
            let luck = chance.finish() as usize;
            // Mishaps are rarer than work.
            let may = if luck.is_multiple_of(4) { steps(&facts, sizes) } else { everybody(&facts) };
            let step = may[(luck / 4) % may.len()];
            match self.after(&facts, step) {
                Ok(None) => continue,
                Ok(Some(next)) => facts = next,
                Err(breach) => {
                    way.push(step);
                    return Err(Found { breach, history: history(self.bug, start, &way) });
                }
            }
            way.push(step);
            walked.steps += 1;
        }
        walked.states += 1;
        let rests = self.comes_to_rest(&facts, walked);
        rests.map_err(|(breach, end)| Found { breach, history: history(self.bug, start, &way) + &end })
    }
}

/// The steps of a history, with the orders of the plans.
pub fn history(bug: Option<Bug>, start: &Facts, way: &[Step]) -> String {
    let mut out = format!("{} voters, {:?} leads", start.voters(), start.leader);
    let (mut facts, mut model) = (Some(start.clone()), Model::with(bug));
    for step in way {
        let order: Option<Order> = facts.as_ref().and_then(|facts| match step {
            Step::Pass | Step::Send => model.decide(facts, Kube::of(facts)).order,
            Step::MemberPass(n) | Step::MemberSend(n) => model.decide_member(facts, *n)?.order,
            Step::Finish => model.decide(facts, (**facts.begun.as_ref()?).clone()).order,
            _ => None,
        });
        out.push_str(&format!("\n{step:?}{}", order.map(|o| format!(": {o:?}")).unwrap_or_default()));
        facts = facts.and_then(|facts| model.after(&facts, *step).ok()?);
    }
    out
}
