//! The form of live progress: a bar at a terminal, otherwise a line for each step and each tenth of the work.
//!
//! Decides the text and when a line is due. `progress.rs` gets the figures.

use std::io::Write as _;
use std::time::Duration;

use holdfast_contract::ProgressReport;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::screen::plain;
use crate::time::size;

/// Interval of lines without a total, when nothing else changes.
const SILENCE: Duration = Duration::from_secs(15);

/// The bar. `{prefix}` is the time of the wait.
const BAR: &str = "{prefix}  {bar:24} {msg}";
/// The bar of work of an unknown size.
const UNMEASURED: &str = "{prefix}  {spinner} {msg}";

/// Shows progress on standard error.
pub(super) struct Meter {
    form: Form,
    explained: bool,
}

enum Form {
    Hidden,
    Bar(ProgressBar),
    Lines { due: Option<Due> },
}

/// The last printed figures.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Due {
    phase: String,
    tenth: Option<u64>,
    at: Duration,
}

impl Meter {
    /// Prints lines, and no figures.
    pub(super) const fn hidden() -> Self {
        Self { form: Form::Hidden, explained: false }
    }

    /// Draws a bar at the terminal.
    pub(super) fn at_terminal() -> Self {
        Self::on(ProgressDrawTarget::stderr())
    }

    fn on(target: ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(None, target).with_style(style(UNMEASURED));
        Self { form: Form::Bar(bar), explained: false }
    }

    /// Prints figures as lines.
    pub(super) const fn in_lines() -> Self {
        Self { form: Form::Lines { due: None }, explained: false }
    }

    /// Shows figures, or that there are none yet.
    pub(super) fn show(&mut self, report: Option<&ProgressReport>, elapsed: Duration) {
        match (&mut self.form, report) {
            (Form::Hidden, _) | (Form::Lines { .. }, None) => {}
            (Form::Bar(bar), report) => draw(bar, report, elapsed),
            (Form::Lines { due }, Some(report)) => {
                if let Some(line) = due_line(due, report, elapsed) {
                    self.say(&line, elapsed);
                }
            }
        }
    }

    /// Prints once why there are no figures. At a terminal the time of the wait goes on.
    pub(super) fn explain(&mut self, why: &str, elapsed: Duration) {
        if !std::mem::replace(&mut self.explained, true) {
            self.say(why, elapsed);
        }
        if let Form::Bar(bar) = &self.form {
            draw(bar, None, elapsed);
        }
    }

    /// Prints a line, after the seconds of the wait.
    pub(super) fn say(&self, words: &str, elapsed: Duration) {
        self.print(&format!("{}  {}", seconds(elapsed), plain(words)));
    }

    /// Prints a line above the bar.
    pub(super) fn print(&self, line: &str) {
        // Progress is for a person who may be gone.
        let write = || _ = writeln!(std::io::stderr(), "{line}");
        match &self.form {
            Form::Bar(bar) => bar.suspend(write),
            Form::Hidden | Form::Lines { .. } => write(),
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        if let Form::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("█▓░")
}

fn draw(bar: &ProgressBar, report: Option<&ProgressReport>, elapsed: Duration) {
    let total = report.and_then(|report| report.bytes_total);
    if bar.length() != total {
        bar.set_style(style(if total.is_some() { BAR } else { UNMEASURED }));
        match total {
            Some(total) => bar.set_length(total),
            None => bar.unset_length(),
        }
    }
    bar.set_prefix(seconds(elapsed));
    bar.set_message(report.map_or_else(|| "waiting".to_owned(), line));
    bar.set_position(report.map_or(0, |report| report.bytes_done));
    bar.tick();
}

/// Returns the time of a wait, as each line begins.
fn seconds(elapsed: Duration) -> String {
    format!("{:>5} s", elapsed.as_secs())
}

/// Returns the line, if it is due: at a new step, a new tenth of the work, and now and then without a total.
fn due_line(due: &mut Option<Due>, report: &ProgressReport, elapsed: Duration) -> Option<String> {
    let now = Due { phase: report.phase.clone(), tenth: report.percent().map(|percent| percent / 10), at: elapsed };
    let is_due = due.as_ref().is_none_or(|before| {
        (&before.phase, before.tenth) != (&now.phase, now.tenth)
            || (now.tenth.is_none() && elapsed >= before.at + SILENCE)
    });
    is_due.then(|| {
        *due = Some(now);
        line(report)
    })
}

/// Returns the figures: `saving: 42%, 54.0 MiB of 128.0 MiB, 12.0 MiB/s, 7 s left`.
fn line(report: &ProgressReport) -> String {
    let ProgressReport { phase, bytes_done, bytes_total, rate_per_second, started_at: _ } = report;
    if bytes_total.is_none() && *bytes_done == 0 {
        return plain(phase);
    }
    let done = match bytes_total {
        Some(total) => format!("{}%, {} of {}", report.percent().unwrap_or(0), size(*bytes_done), size(*total)),
        None => size(*bytes_done),
    };
    let remaining = report.seconds_left().filter(|seconds| *seconds > 0).map(describe_remaining).unwrap_or_default();
    plain(&format!("{phase}: {done}, {}/s{remaining}", size(*rate_per_second)))
}

fn describe_remaining(seconds: u64) -> String {
    let text = match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    };
    format!(", {text} left")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;
    use jiff::Timestamp;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn report(phase: &str, bytes_done: u64, bytes_total: Option<u64>, rate_per_second: u64) -> ProgressReport {
        ProgressReport {
            phase: phase.to_owned(),
            bytes_done,
            bytes_total,
            started_at: Timestamp::UNIX_EPOCH,
            rate_per_second,
        }
    }

    /// A terminal of 100 columns that keeps its lines.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(&format!("{line}\n"))
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().unwrap().clear();
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_bar_has_the_time_the_part_and_the_figures() {
        // A bar of its own for each frame: indicatif leaves frames out that follow each other fast.
        let drawn = |report: Option<ProgressReport>, elapsed| {
            let terminal = Terminal::default();
            let mut meter = Meter::on(ProgressDrawTarget::term_like_with_hz(Box::new(terminal.clone()), 255));
            meter.show(report.as_ref(), Duration::from_secs(elapsed));
            terminal.0.lock().unwrap().trim_end().to_owned()
        };
        assert!(drawn(None, 1).ends_with("waiting"));
        let half = report("saving", 64 * MIB, Some(128 * MIB), 8 * MIB);
        assert_eq!(
            drawn(Some(half), 12),
            "   12 s  ████████████▓░░░░░░░░░░░ saving: 50%, 64.0 MiB of 128.0 MiB, 8.0 MiB/s, 8 s left"
        );
        let unmeasured = drawn(Some(report("reading back", 3 * MIB, None, MIB)), 20);
        assert!(
            unmeasured.starts_with("   20 s  ") && unmeasured.ends_with("reading back: 3.0 MiB, 1.0 MiB/s"),
            "{unmeasured}"
        );
    }

    #[test]
    fn figures_fit_in_a_line() {
        for (report, expected) in [
            (report("starting", 0, None, 0), "starting"),
            (report("saving", 0, Some(MIB), 0), "saving: 0%, 0 B of 1.0 MiB, 0 B/s"),
            (report("saving", MIB, Some(8 << 30), 10 * MIB), "saving: 0%, 1.0 MiB of 8.0 GiB, 10.0 MiB/s, 14 min left"),
            (report("saving", 0, Some(8 << 30), MIB), "saving: 0%, 0 B of 8.0 GiB, 1.0 MiB/s, 3 h left"),
            (report("saving", MIB, Some(MIB), MIB), "saving: 100%, 1.0 MiB of 1.0 MiB, 1.0 MiB/s"),
            // A Pod's answer cannot move the cursor.
            (report("\x1b[2Jsaving", 0, None, 0), "\\x1b[2Jsaving"),
        ] {
            assert_eq!(line(&report), expected);
        }
    }

    #[test]
    fn a_line_is_due_at_each_step_and_each_tenth() {
        let mut due = None;
        let mut printed = |phase: &str, done: u64, total: Option<u64>, at: u64| {
            due_line(&mut due, &report(phase, done, total, 1), Duration::from_secs(at)).is_some()
        };
        assert!(printed("starting", 0, None, 1));
        assert!(!printed("starting", 0, None, 15));
        assert!(printed("starting", 0, None, 16), "now and then");
        assert!(printed("saving", 0, Some(100), 17), "a step");
        assert!(!printed("saving", 9, Some(100), 18));
        assert!(printed("saving", 10, Some(100), 19), "a tenth");
        assert!(!printed("saving", 19, Some(100), 200));
        assert!(printed("saving", 100, Some(100), 201));
    }
}
