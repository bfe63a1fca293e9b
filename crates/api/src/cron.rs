//! `CronJob`s of a schedule: the rule of their due times, and how a status names them.
//!
//! Decides the shape of a line. `plan::due_times` parses lines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// CEL rule of due times as cron writes them.
pub(crate) const LINE: &str = "self.matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|(([0-9*,/?-]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC|SUN|MON|TUE|WED|THU|FRI|SAT)+ +){4}([0-9*,/?-]|sun|mon|tue|wed|thu|fri|sat|SUN|MON|TUE|WED|THU|FRI|SAT)+)$')";

/// Message of that rule.
pub(crate) const LINE_WORDS: &str = "schedule needs five fields, such as 7 * * * *, or @hourly, @daily, @weekly, @monthly or @yearly; seconds, @every, TZ=, L, W and # are not supported";

/// Pattern of a time zone's name in the IANA database.
pub(crate) const ZONE: &str = r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$";

/// CEL rule of a time zone: the zone of a controller's own machine is no name.
pub(crate) const NAMED_ZONE: &str = "self.lowerAscii() != 'local'";

/// Message of that rule.
pub(crate) const NAMED_ZONE_WORDS: &str = "timeZone needs a name such as Europe/Berlin";

/// A `CronJob`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CronJobRef {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}
