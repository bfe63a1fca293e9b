//! `agent run`: the command of the containers that Holdfast makes.
//!
//! Decides where the request comes from: the environment alone.

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Error};
use holdfast_contract::{PodFacts, REQUEST, Request};

use super::{Agent, Cli, Command, LogVerb};

/// Variables of `agent run`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFlags {
    /// The request, as JSON.
    #[arg(long, env = REQUEST, hide = true, hide_env_values = true)]
    pub request: String,
    /// Facts of the Pod.
    #[command(flatten)]
    pub facts: PodFacts,
}

impl RunFlags {
    /// Returns the requested command.
    pub fn command(self) -> Result<Command, Error> {
        let refused = |why| Cli::command().error(ErrorKind::ValueValidation, format!("{REQUEST}: {why}"));
        let mut request = Request::from_text(&self.request).map_err(refused)?;
        request.fill_in(self.facts);
        Ok(request.into())
    }
}

impl From<Request> for Command {
    fn from(request: Request) -> Self {
        Self::Agent(match request {
            Request::Save(request) => Agent::Save(request.into()),
            Request::Log(request) => Agent::Log(LogVerb::Record(request.into()).into()),
            Request::Inspect(request) => Agent::Inspect(request.into()),
            Request::Latest(request) => Agent::Latest(request.into()),
            Request::Recall(request) => Agent::Recall(request.into()),
            Request::Prune(request) => Agent::Prune(request.into()),
            Request::Remove(request) => Agent::Remove(request.into()),
            Request::Probe(request) => Agent::Probe(request.into()),
            Request::Verify(request) => Agent::Verify(request.into()),
            Request::Compact(request) => Agent::Compact(request.into()),
            Request::CompareMembers(request) => Agent::CompareMembers(request.into()),
            Request::Restore(request) => Agent::Restore(request.into()),
            Request::Survey(request) => Agent::Survey(request.into()),
            Request::Undelete(request) => Agent::Undelete(request.into()),
            Request::Gate(request) => return Self::Gate(request.into()),
        })
    }
}
