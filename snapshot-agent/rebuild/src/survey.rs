//! `agent survey`: how far a stopped member's data are, read from its volume.
//!
//! This file decides which facts the report has: an unknown number is absent. `etcd/src/stopped.rs` reads the volume, and
//! `survey/text.rs` formats the report.

mod text;

use std::io;

use futures::future::BoxFuture;
use holdfast_bbolt::graft::Recorded;
use holdfast_contract::error::{Result, io_error, task_error};
use holdfast_contract::{SurveyReport, SurveyRequest, VolumeOwner, hex_id};
use holdfast_gate::data_dir::DATABASE;
use holdfast_gate::volume_identity::{Identity, Unread};
use holdfast_io::interrupt::Interrupt;

use holdfast_etcd::stopped::log::{Log, LogError};
use holdfast_etcd::stopped::{Database, Stopped, read_database, read_log, revision};

pub use text::text;

/// Reads a stopped member's volume.
pub fn run(request: SurveyRequest) -> BoxFuture<'static, Result<SurveyReport>> {
    Box::pin(async move {
        let member = Stopped::find(&request.volume)?;
        let mut interrupt = Interrupt::by_signal()?;
        let read = async {
            let survey = tokio::task::spawn_blocking(move || survey(&member));
            survey.await.map_err(|error| task_error(&error))?
        };
        interrupt.unless(read).await
    })
}

/// Surveys a member whose etcd has stopped.
fn survey(member: &Stopped) -> Result<SurveyReport> {
    let data = member.data();
    let mut report = SurveyReport { lock_unknown: member.lock_unknown().map(str::to_owned), ..SurveyReport::default() };
    match read_log(data) {
        Ok(log) => report_log(&mut report, &log),
        Err(LogError::Damaged { ids, why }) => {
            (report.cluster_id, report.member_id) =
                (ids.map(|ids| hex_id(ids.cluster_id)), ids.map(|ids| hex_id(ids.member_id)));
            report.log_damage = Some(why);
        }
        Err(LogError::Missing) => {}
        Err(LogError::Io(error)) => return Err(io_error(format!("reading the log below {}", data.display()))(error)),
    }
    match read_database(&data.join(DATABASE)) {
        Ok(Database { bytes, recorded }) => {
            report.db_bytes = Some(bytes);
            match recorded {
                Ok(recorded) => report_database(&mut report, recorded),
                Err(why) => report.database_damage = Some(why),
            }
        }
        // A member that got a snapshot and was stopped before it opened the snapshot's database has none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error(format!("reading {}", data.join(DATABASE).display()))(error)),
    }
    match Identity::read(data) {
        Ok(identity) => report.identity = identity.map(owner),
        Err(Unread::Nonsense(why)) => report.identity_damage = Some(why),
        Err(Unread::Io(kind, why)) => {
            return Err(io_error("reading the identity of the volume")(io::Error::new(kind, why)));
        }
    }
    Ok(report)
}

fn report_log(report: &mut SurveyReport, log: &Log) {
    report.cluster_id = Some(hex_id(log.ids.cluster_id));
    report.member_id = Some(hex_id(log.ids.member_id));
    report.term = log.state.map(|state| state.term);
    report.vote = log.state.map(|state| state.vote).filter(|vote| *vote != 0).map(hex_id);
    report.commit_index = log.state.map(|state| state.commit);
    report.last_index = Some(log.last_index).filter(|index| *index > 0);
    report.last_term = log.last_term;
    report.snapshot_index = log.snapshot_index;
    report.log_bytes = Some(log.bytes());
    report.log_end = Some(log.end);
}

fn report_database(report: &mut SurveyReport, recorded: Recorded) {
    let Recorded { consistent_index, term, members, reached, auth_enabled } = recorded;
    (report.consistent_index, report.database_term) = (consistent_index, term);
    (report.members, report.auth_enabled) = (Some(members), Some(auth_enabled));
    report.revision = Some(revision(reached));
}

fn owner(identity: Identity) -> VolumeOwner {
    let restore_uid = identity.restore_uid().map(str::to_owned);
    let Identity { cluster_token, member_name, member_uid, claim_uid, pod_start, .. } = identity;
    let pod_start = Some(pod_start).filter(|start| *start > 0);
    VolumeOwner { cluster_token, member_name, member_uid, claim_uid, restore_uid, pod_start }
}
