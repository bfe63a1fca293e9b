//! The operator is killed after its n-th write, for every n, and restarted: each run ends like an undisturbed run, and creates
//! nothing twice on the way.
//!
//! With `make test` three of the sweeps take one random n each, with `make soak` every sweep takes all of them, or those from
//! `HOLDFAST_FROM` on. There are three
//! sorts of crashes: after the answer arrived, after the API server carried out the write and before its answer, and before the
//! request. The sweeps of one run take the sorts in turn.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::support::env::{soak, soak_from};
use crate::support::host_operator::{DIE_AFTER, HostOperator, Seat, send};
use crate::support::kfault::{Fault, Kfault, Rule};
use crate::support::ledger::Ledger;
use crate::support::luck::Luck;
use crate::support::oracle::End;
use crate::support::workload::{Ground, Workload};
use crate::support::world::{PATIENCE, World};

/// The sweeps, in the order in which they take the sorts of crashes.
const SWEEPS: [&str; 13] = [
    "crashes_while_growing",
    "crashes_while_scaling",
    "crashes_while_parking",
    "crashes_while_replacing",
    "crashes_while_losing",
    "crashes_while_saving",
    "crashes_while_recording",
    "crashes_while_restoring",
    "crashes_while_rolling",
    "crashes_while_upgrading",
    "crashes_while_making_users",
    "crashes_while_exchanging_cas",
    "crashes_while_turning_tls_on",
];

/// Sorts of crashes. A run takes one sweep for each sort.
const SORTS: usize = 3;

/// Whether a story is a sweep that this run leaves to other runs. The run's seed chooses.
pub fn rests(story: &str) -> bool {
    let Some(place) = SWEEPS.iter().position(|name| *name == story) else { return false };
    // `sample` gives the sweeps of one remainder the same sort by the seed's own remainder. The rest of the seed chooses among
    // these sweeps, so that each sweep meets every sort in time.
    let same_sort = (SWEEPS.len() - place % SORTS).div_ceil(SORTS);
    let seed = usize::try_from(Luck::turn()).unwrap_or_default();
    !soak() && place / SORTS != seed / SORTS % same_sort
}

/// A cluster grows from nothing to three members.
pub async fn growing(w: &World) -> Result<()> {
    sweep(w, Workload::Grow).await
}

/// A cluster goes from three members to five and back.
pub async fn scaling(w: &World) -> Result<()> {
    sweep(w, Workload::Scale(&[3, 5, 3])).await
}

/// A cluster goes from three members to none and back.
pub async fn parking(w: &World) -> Result<()> {
    sweep(w, Workload::Scale(&[3, 0, 3])).await
}

/// A changed option rolls through three members.
pub async fn rolling(w: &World) -> Result<()> {
    sweep(w, Workload::Roll).await
}

/// Three members go to the next minor, with a rehearsal.
pub async fn upgrading(w: &World) -> Result<()> {
    sweep(w, Workload::Upgrade).await
}

/// A cluster with authentication gets a user.
pub async fn making_users(w: &World) -> Result<()> {
    sweep(w, Workload::User).await
}

/// Both CAs of three members are exchanged.
pub async fn exchanging_cas(w: &World) -> Result<()> {
    sweep(w, Workload::ExchangeCas).await
}

/// Three members in plaintext get TLS.
pub async fn turning_tls_on(w: &World) -> Result<()> {
    sweep(w, Workload::TurnTlsOn).await
}

/// A member of three is replaced on request.
pub async fn replacing(w: &World) -> Result<()> {
    sweep(w, Workload::Replace).await
}

/// A member of three loses its claim and is replaced on that evidence.
pub async fn losing(w: &World) -> Result<()> {
    sweep(w, Workload::Lose).await
}

/// A snapshot is saved to a volume.
pub async fn saving(w: &World) -> Result<()> {
    sweep(w, Workload::Save).await
}

/// A run of a schedule is recorded.
pub async fn recording(w: &World) -> Result<()> {
    sweep(w, Workload::Schedule).await
}

/// A member is restored from a snapshot.
pub async fn restoring(w: &World) -> Result<()> {
    sweep(w, Workload::Restore).await
}

/// Moment of a crash.
#[derive(Clone, Copy, Debug)]
enum Crash {
    /// After the answer to the n-th write; changes of etcd's membership count.
    AfterAnswer(u64),
    /// After the n-th write to the API server was carried out, and before its answer.
    BeforeAnswer(u64),
    /// Before the n-th write to the API server.
    BeforeWrite(u64),
}

impl Crash {
    const fn n(self) -> u64 {
        match self {
            Self::AfterAnswer(n) | Self::BeforeAnswer(n) | Self::BeforeWrite(n) => n,
        }
    }

    /// The name of the crash's run.
    fn run(self) -> String {
        match self {
            Self::AfterAnswer(n) => format!("a{n}"),
            Self::BeforeAnswer(n) => format!("b{n}"),
            Self::BeforeWrite(n) => format!("c{n}"),
        }
    }

    const fn earlier(self) -> Self {
        let n = self.n() - 1 - self.n() / 8;
        match self {
            Self::AfterAnswer(_) => Self::AfterAnswer(n),
            Self::BeforeAnswer(_) => Self::BeforeAnswer(n),
            Self::BeforeWrite(_) => Self::BeforeWrite(n),
        }
    }
}

struct Sweep<'a> {
    w: &'a World,
    workload: Workload,
    ground: Ground,
    ledger: Ledger,
    /// Connected directly to the API server.
    direct: Seat,
    /// Connected through the proxy, under the same identity.
    proxied: Seat,
    proxy: Kfault,
    reference: End,
}

async fn sweep(w: &World, workload: Workload) -> Result<()> {
    let ledger = Ledger::start(w).await?;
    let proxy = Kfault::start(&w.env).await?;
    let direct = Seat::new(w, "host", None).await?;
    let proxied = Seat::new(w, "host", Some(&proxy.url)).await?;
    let mut operator = direct.start(&[])?;
    let ground = w.step("what it needs", workload.prepare(w)).await?;

    operator.until_leading().await?;
    let before = operator.writes().await?;
    let undisturbed = async {
        workload.begin(w, "r0").await?;
        workload.finish(w, "r0", &ground).await?;
        End::reached(w, &ledger, &workload.mask("r0")).await
    };
    let reference = w.step("an undisturbed run", undisturbed).await?;
    // A restarted operator counts from zero.
    let writes = operator.writes().await?.saturating_sub(before);
    ensure!(writes >= 3, "an undisturbed run made {writes} writes only");
    workload.clear(w, "r0").await?;
    operator.kill()?;

    let sweep = Sweep { w, workload, ground, ledger, direct, proxied, proxy, reference };
    if soak() {
        sweep.all(writes).await?;
    } else {
        sweep.sample(writes).await?;
    }
    sweep.direct.no_defects()
}

impl Sweep<'_> {
    /// Crashes at every n, until a run ends without a crash; the other two sorts at every fourth n.
    async fn all(&self, writes: u64) -> Result<()> {
        for n in soak_from().. {
            if !self.crash(Crash::AfterAnswer(n)).await? {
                ensure!(n > writes / 2, "an undisturbed run makes {writes} writes, and this one fewer than {n}");
                return Ok(());
            }
            if n % 4 == 1 {
                self.crash(Crash::BeforeAnswer(n)).await?;
                self.crash(Crash::BeforeWrite(n)).await?;
            }
        }
        Ok(())
    }

    /// Crashes once, at a random write.
    async fn sample(&self, writes: u64) -> Result<()> {
        let n = 1 + Luck::of(self.w.story).below(writes);
        let sweep = SWEEPS.iter().position(|story| *story == self.w.story).context("a sweep in the list")?;
        let mut crash = match (Luck::turn() + sweep as u64) % 3 {
            0 => Crash::AfterAnswer(n),
            1 => Crash::BeforeAnswer(n),
            _ => Crash::BeforeWrite(n),
        };
        // The number of writes in a run varies a little: a crash that came too late moves to an earlier write.
        while !self.crash(crash).await? {
            ensure!(crash.n() > 1, "a run without a single write: {crash:?}");
            crash = crash.earlier();
        }
        Ok(())
    }

    /// Makes one run with a crash, and compares it with the undisturbed run. Returns whether the crash came.
    async fn crash(&self, crash: Crash) -> Result<bool> {
        self.w.step(&format!("{crash:?}"), self.disturbed(crash, &crash.run())).await
    }

    /// Makes the run.
    async fn disturbed(&self, crash: Crash, run: &str) -> Result<bool> {
        let Self { w, workload, .. } = *self;
        workload.begin(w, run).await?;
        let mut operator = self.doomed(crash)?;
        let crashed = self.until_crash(&mut operator, run).await?;
        // An operator before its crash may crash later, and then no operator would finish the run.
        operator.kill()?;
        operator = self.direct.start(&[])?;
        workload.finish(w, run, &self.ground).await?;
        End::same(w, &self.ledger, &workload.mask(run), &self.reference).await.with_context(|| format!("{crash:?}"))?;
        workload.clear(w, run).await?;
        operator.kill()?;
        Ok(crashed)
    }

    /// Starts an operator with this crash.
    fn doomed(&self, crash: Crash) -> Result<HostOperator> {
        self.proxy.clear();
        let n = match crash {
            Crash::AfterAnswer(n) => return self.direct.start(&[(DIE_AFTER, n.to_string())]),
            Crash::BeforeAnswer(n) | Crash::BeforeWrite(n) => n,
        };
        let operator = self.proxied.start(&[])?;
        let pid = operator.pid();
        let blow = std::sync::Arc::new(move || drop(send("KILL", pid)));
        self.proxy.add(match crash {
            Crash::BeforeWrite(_) => Rule::at_write("killed before a write", n, Fault::KillBefore(blow)),
            _ => Rule::at_write("killed after a write", n, Fault::KillAfterCommit(blow)),
        });
        Ok(operator)
    }

    /// Waits for the crash, or for the end of the run without a crash.
    async fn until_crash(&self, operator: &mut HostOperator, run: &str) -> Result<bool> {
        let begun = Instant::now();
        let mut done: Option<Instant> = None;
        loop {
            if let Some(status) = operator.ended()? {
                // Killed by itself or by the story; any other end is a defect.
                ensure!(matches!(status.signal(), Some(6 | 9)), "the operator ended with {status}");
                return Ok(true);
            }
            if done.is_none() && self.workload.done(self.w, run).await? {
                done = Some(Instant::now());
            }
            // The operator's last writes come after the end that a user waits for.
            if done.is_some_and(|at| at.elapsed() > Duration::from_secs(3)) {
                return Ok(false);
            }
            ensure!(begun.elapsed() < PATIENCE, "neither a crash nor an end");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
