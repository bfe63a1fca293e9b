//! Programs of this machine that a story starts: they end with the story, even if the story is killed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};

use super::kube_helpers::until;
use super::world::PATIENCE;

/// A command that ends with the thread of the story.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A running program; dropping it ends it. Its standard input stays open until `finish`.
pub struct Program {
    child: Child,
    pub log: PathBuf,
}

impl Program {
    /// Starts a command that writes to this log.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log)?;
        let child = command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(file).spawn();
        Ok(Self { child: child.with_context(|| format!("start {command:?}"))?, log: log.to_owned() })
    }

    /// Fails once the program has ended.
    pub fn runs(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "the program ended with {ended:?}: {}", self.log.display());
        Ok(())
    }

    /// Waits until the log contains these words.
    pub async fn until_said(&mut self, words: &str) -> Result<()> {
        until(words, PATIENCE, async || {
            if std::fs::read_to_string(&self.log)?.contains(words) {
                return Ok(Ok(()));
            }
            self.runs()?;
            Ok(Err("not yet".to_owned()))
        })
        .await
    }

    /// Kills the program.
    pub fn end(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Closes its standard input and waits. Porcupine alone may take five minutes for the record and for the record with a hole.
    pub async fn finish(&mut self) -> Result<ExitStatus> {
        drop(self.child.stdin.take());
        until("the program to end", 3 * PATIENCE, async || {
            Ok(self.child.try_wait()?.ok_or_else(|| "it runs".to_owned()))
        })
        .await
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
