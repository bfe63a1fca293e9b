//! Hours, days, weeks, months and years in a time zone.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::entry::Reason;

/// Name of a period: two times with the same name are in the same period, and a later period has a greater name.
pub(super) type Name = (i16, i16, i8, i32);

/// A length of periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Period {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Period {
    pub(super) const fn reason(self) -> Reason {
        match self {
            Self::Hour => Reason::Hourly,
            Self::Day => Reason::Daily,
            Self::Week => Reason::Weekly,
            Self::Month => Reason::Monthly,
            Self::Year => Reason::Yearly,
        }
    }

    /// Returns the period of this time. An hour that clocks show twice counts as two: their offsets differ.
    pub(super) fn name(self, at: Timestamp, zone: &TimeZone) -> Name {
        let time = at.to_zoned(zone.clone());
        match self {
            Self::Hour => (time.year(), time.day_of_year(), time.hour(), -time.offset().seconds()),
            Self::Day => (time.year(), time.day_of_year(), 0, 0),
            Self::Week => {
                let week = time.date().iso_week_date();
                (week.year(), week.week().into(), 0, 0)
            }
            Self::Month => (time.year(), time.month().into(), 0, 0),
            Self::Year => (time.year(), 0, 0, 0),
        }
    }
}
