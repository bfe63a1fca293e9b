//! The door to the agent: a request in, an exit code out.
//!
//! Decides nothing: `snapshot_agent` does the work, and its `report` turns the outcome into the report and the exit code.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use holdfast_contract::error::Result;
use holdfast_contract::{
    CompactRequest, CompareRequest, ContentsRequest, CopyRequest, DefragRequest, GateRequest, InspectRequest,
    LatestRequest, ListRequest, ProbeRequest, ProofLevel, PruneRequest, RecallRequest, RemovalReport, RemoveRequest,
    RemovedReport, Report, RestoreRequest, SaveRequest, SurveyRequest, UndeleteRequest, VerifyRequest,
};
use serde::Serialize;
use snapshot_agent::catalog::recall;
use snapshot_agent::verbs::contents::Found;
use snapshot_agent::verbs::report::text;
use snapshot_agent::verbs::restore::{compact, undelete as past};
use snapshot_agent::verbs::save::{dry_run, merged};
use snapshot_agent::verbs::{
    compare, contents, copy, defrag, gate, inspect, install, latest, list, log, probe, prune, recall as runs, remove,
    report, restore, save, survey, undelete, verify,
};

use crate::cli::{LogVerb, RenderFlags};
use holdfast_manifests::restore as restored;

/// `agent save`.
pub async fn save(request: SaveRequest) -> anyhow::Result<u8> {
    let json = request.json;
    if request.dry_run {
        return match dry_run::run(request).await {
            Ok(found) if !json => show(&found.lines()),
            found => print(found),
        };
    }
    let by_hand = request.owner_uid.is_none();
    let saved = save::run(request).await;
    let text = saved.as_ref().ok().filter(|_| !json).map(|saved| text::of_saved(saved, by_hand));
    Ok(finish(&saved.map(|saved| Report::Saved(Box::new(saved))), text))
}

/// `agent compact`: merges, then publishes the result as a save does.
pub async fn compact(request: CompactRequest) -> anyhow::Result<u8> {
    let (json, by_hand) = (request.json, request.owner_uid.is_none());
    let saved = match compact::run(request.clone()).await {
        Ok(Some(database)) => merged::run(request, database).await,
        Ok(None) => return show("nothing to do: the log holds no revision after the newest snapshot\n"),
        Err(error) => Err(error),
    };
    let text = saved.as_ref().ok().filter(|_| !json).map(|saved| text::of_saved(saved, by_hand));
    Ok(finish(&saved.map(|saved| Report::Saved(Box::new(saved))), text))
}

/// `agent inspect`.
pub async fn inspect(request: InspectRequest) -> u8 {
    end(&inspect::run(request).await.map(|saved| Report::Saved(Box::new(saved))))
}

/// `agent latest`.
pub async fn latest(request: LatestRequest) -> u8 {
    end(&latest::run(request).await.map(Report::Latest))
}

/// `agent recall`.
pub async fn recall(request: RecallRequest) -> u8 {
    end(&runs::run(request).await.map(Report::Recalled))
}

/// `agent restore`.
pub async fn restore(request: RestoreRequest) -> u8 {
    let asked = request.clone();
    let restored = restore::run(request).await;
    let text = restored.as_ref().ok().filter(|_| !asked.json).map(|restored| text::of_restored(restored, &asked));
    finish(&restored.map(Report::Restored), text)
}

/// `agent survey`.
pub async fn survey(request: SurveyRequest) -> u8 {
    let json = request.json;
    let found = survey::run(request).await;
    let text = found.as_ref().ok().filter(|_| !json).map(survey::text);
    finish(&found.map(|found| Report::Surveyed(Box::new(found))), text)
}

/// `agent verify`: lines, or JSON for programs.
pub async fn verify(request: VerifyRequest) -> anyhow::Result<u8> {
    let json = request.json;
    let began = Instant::now();
    let request = match request.search() {
        Some(search) => match latest::run(search).await {
            Ok(found) => request.found(found.key, began.elapsed().as_secs()),
            Err(error) => return Ok(end(&Err(error))),
        },
        None => request,
    };
    let drills = request.snapshot.key.clone().filter(|_| request.level == ProofLevel::Drill);
    let found = verify::run(request).await;
    let Some(key) = drills else {
        return match found {
            Ok(found) if !json => show(&found.lines()),
            found => print(found),
        };
    };
    let drilled = verify::drilled(&key, &found);
    let code = report::finish_drill(&drilled);
    if let (Ok(_), Some(failed)) = (&found, &drilled.failed) {
        tracing::error!(class = ?failed.class, "{}", failed.message);
    }
    match found {
        Ok(found) if !json => put(found.lines().as_bytes())?,
        Ok(found) => put((serde_json::to_string_pretty(&found)? + "\n").as_bytes())?,
        Err(error) => tracing::error!(class = ?error.class(), "{error}"),
    }
    Ok(code)
}

/// `agent contents`: tables, JSON for programs, or one value as it is.
pub async fn contents(request: ContentsRequest) -> anyhow::Result<u8> {
    let json = request.json;
    match contents::run(request).await {
        Ok(Found::Value(value)) => {
            put(&value)?;
            Ok(0)
        }
        Ok(Found::Contents(contents)) if !json => show(&contents.table()),
        Ok(Found::Contents(contents)) => print(Ok(contents)),
        Err(error) => Ok(end(&Err(error))),
    }
}

/// `agent copy`: prints the copied snapshots even if some copies failed.
pub async fn copy(request: CopyRequest) -> anyhow::Result<u8> {
    let json = request.json;
    let copies = match copy::run(request).await {
        Ok(copies) => copies,
        Err(error) => return Ok(end(&Err(error))),
    };
    if json {
        print(Ok(&copies.copies))?;
    } else {
        show(&copies.table())?;
    }
    Ok(copies.failed.map_or(0, |error| end(&Err(error))))
}

/// `agent render-restore`: YAML for kubectl.
pub async fn render_restore(flags: RenderFlags) -> anyhow::Result<u8> {
    match recall::manifest(&flags.store, &flags.key, flags.deadline_seconds).await {
        Ok(manifest) => show(&restored::yaml(&flags.wanted(manifest))?),
        Err(error) => Ok(end(&Err(error))),
    }
}

/// `agent probe`: prints the trials even if the store is not usable.
pub async fn probe(request: ProbeRequest) -> anyhow::Result<u8> {
    let json = request.json;
    let ended = match probe::run(request).await {
        Ok(ended) => ended,
        Err(error) => return Ok(end(&Err(error))),
    };
    let text = if json { serde_json::to_string_pretty(&ended.probed)? + "\n" } else { ended.probed.table() };
    if let Some(error) = &ended.failed {
        tracing::error!(class = ?error.class(), "{error}");
    }
    let code = report::finish_probe(&ended.probed);
    put(text.as_bytes()).map(|()| code)
}

/// `agent compare-members`: prints the members even if their data differ.
pub async fn compare_members(request: CompareRequest) -> anyhow::Result<u8> {
    let json = request.json;
    let compared = match compare::run(request).await {
        Ok(compared) => compared,
        Err(error) => return Ok(end(&Err(error))),
    };
    let text = if json { serde_json::to_string_pretty(&compared)? + "\n" } else { compare::text(&compared) };
    let code = report::finish_comparison(&compared);
    put(text.as_bytes()).map(|()| code)
}

/// `agent log`: prints the result of the run, or the covers.
pub async fn log(verb: LogVerb) -> anyhow::Result<u8> {
    match verb {
        LogVerb::Record(request) => print(log::run(*request).await),
        LogVerb::Status(request) => {
            let json = request.json;
            match log::status::run(*request).await {
                Ok(logs) if !json => show(&log::status::table(&logs)),
                logs => print(logs),
            }
        }
    }
}

/// `agent defrag`: prints the members even if the run ended early.
pub async fn defrag(request: DefragRequest) -> anyhow::Result<u8> {
    let defrag::Ended { report, failed } = match defrag::run(request.clone()).await {
        Ok(ended) => ended,
        Err(error) => return Ok(end(&Err(error))),
    };
    let json = serde_json::to_string_pretty(&report)? + "\n";
    let text = if request.json { json } else { defrag::text(&report, &request) };
    put(text.as_bytes())?;
    Ok(failed.map_or(0, |error| end(&Err(error))))
}

/// `agent undelete`: restores the point, compares it and puts keys back. Prints the counts even if the run ended early.
pub async fn undelete(request: UndeleteRequest) -> anyhow::Result<u8> {
    let ended = match past::run(request.clone()).await {
        Ok(state) => undelete::run(request.clone(), state).await,
        Err(error) => Err(error),
    };
    let undelete::Ended { report, differences, failed } = match ended {
        Ok(ended) => ended,
        Err(error) => return Ok(end(&Err(error))),
    };
    if request.json {
        // In pieces: the list may be longer than the memory.
        let mut piece = String::new();
        for found in differences.read()? {
            piece += &(serde_json::to_string(&found?)? + "\n");
            if piece.len() >= PIECE {
                put(std::mem::take(&mut piece).as_bytes())?;
            }
        }
        put((piece + &serde_json::to_string(&report)? + "\n").as_bytes())?;
    } else {
        put(undelete::text(&report, &request).as_bytes())?;
    }
    Ok(failed.map_or(0, |error| end(&Err(error))))
}

/// `agent prune`: prints the judged and removed snapshots even if the run ended early.
pub async fn prune(request: PruneRequest) -> anyhow::Result<u8> {
    let json = request.json;
    let pruned = match prune::run(request).await {
        Ok(pruned) => pruned,
        Err(error) => return Ok(end(&Err(error))),
    };
    let text = if json { serde_json::to_string_pretty(&pruned)? + "\n" } else { pruned.table() };
    if let Some(error) = &pruned.failed {
        tracing::error!(class = ?error.class(), "{error}");
    }
    let code = report::finish_removal(&RemovalReport::Pruned(Box::new(pruned.report)));
    put(text.as_bytes()).map(|()| code)
}

/// `agent remove`: prints the report, or why the agent removed nothing.
pub async fn remove(request: RemoveRequest) -> anyhow::Result<u8> {
    let removed = match remove::run(request).await {
        Ok(removed) => RemovalReport::Removed(removed),
        Err(error) => return Ok(end(&Err(error))),
    };
    if let RemovalReport::Removed(RemovedReport { refused: Some(refused), .. }) = &removed {
        tracing::error!(reason = refused.reason, "{}", refused.message);
    }
    let code = report::finish_removal(&removed);
    put(format!("{}\n", serde_json::to_string(&removed)?).as_bytes()).map(|()| code)
}

/// `agent list`: a table, or JSON for programs.
pub async fn list(request: ListRequest) -> anyhow::Result<u8> {
    let (json, nothing) = (request.json, list::nothing(&request));
    match list::run(request).await {
        Ok(found) if !json && found.is_empty() => show(&nothing),
        Ok(found) if !json => show(&list::table(&found)),
        found => print(found),
    }
}

/// `gate`: returns only if etcd may not start.
pub async fn gate(request: GateRequest) -> u8 {
    end(&gate::run(request).await.map(|never| match never {}))
}

/// `install`: reports only a failure.
pub async fn install(target: &Path) -> u8 {
    match install::run(target).await {
        Ok(()) => 0,
        Err(error) => end(&Err(error)),
    }
}

/// `install --etcd-to`: reports only a failure.
pub async fn install_etcd(folder: &Path) -> u8 {
    match install::run_etcd(folder).await {
        Ok(()) => 0,
        Err(error) => end(&Err(error)),
    }
}

/// Prints a result for people.
fn show(text: &str) -> anyhow::Result<u8> {
    put(text.as_bytes()).map(|()| 0)
}

/// Writes a result to standard output. A lost result, on a full disk or in a closed pipe, is a failure.
fn put(result: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(result).and_then(|()| out.flush()).context("the result cannot be written to standard output")
}

/// Prints a result as JSON on standard output. The result is no report and goes to no termination message.
fn print(found: Result<impl Serialize>) -> anyhow::Result<u8> {
    match found {
        Ok(found) => show(&(serde_json::to_string_pretty(&found)? + "\n")),
        Err(error) => Ok(end(&Err(error))),
    }
}

/// Sends the report to kubelet, to the log, and, for people and scripts, to standard output.
fn end(outcome: &Result<Report>) -> u8 {
    finish(outcome, None)
}

/// Same as [`end`], with a text on standard output instead of the JSON. kubelet gets the JSON in each case.
fn finish(outcome: &Result<Report>, text: Option<String>) -> u8 {
    let code = report::finish(outcome);
    match outcome {
        Ok(_) => {
            let output = text.unwrap_or_else(|| report::render(outcome) + "\n");
            if let Err(error) = put(output.as_bytes()) {
                tracing::error!("{error:#}");
                return LOST;
            }
        }
        Err(error) => tracing::error!(class = ?error.class(), "{error}"),
    }
    code
}

/// Bytes that are written to standard output at a time.
const PIECE: usize = 64 << 10;

/// Exit code of a run whose result did not reach standard output.
const LOST: u8 = 1;
