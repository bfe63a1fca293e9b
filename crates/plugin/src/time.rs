//! Times in words: ages, waits and dates of a status. PURE: the present time is an argument.

use jiff::{SignedDuration, Timestamp};

/// Reads a time of a status.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Returns the time between two times in its largest useful unit: `45s`, `12m`, `5h`, `12d`.
pub fn between(from: Timestamp, to: Timestamp) -> String {
    span(to.duration_since(from))
}

/// Returns a duration in its largest useful unit. A negative duration counts as none.
pub fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns how long ago a time is, or in how long it comes.
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now { format!("in {}", between(now, at)) } else { format!("{} ago", between(at, now)) }
}

/// Returns the date of a time, in UTC.
pub fn date(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

/// Returns hour and minute of a time, in UTC.
pub fn clock(at: Timestamp) -> String {
    at.strftime("%H:%MZ").to_string()
}

/// Formats bytes: `812 B`, `1.2 GiB`. One digit after the point, rounded down.
pub fn size(bytes: u64) -> String {
    let mut unit = 0;
    let mut tenths = u128::from(bytes) * 10;
    while tenths >= 10_240 && unit < 5 {
        tenths /= 1024;
        unit += 1;
    }
    let name = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit];
    if unit == 0 { format!("{bytes} B") } else { format!("{}.{} {name}", tenths / 10, tenths % 10) }
}

/// Returns a number with a comma between thousands.
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if number < 0 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_have_few_characters() {
        let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
        for (at, words) in [
            ("2026-11-27T11:59:15Z", "45s ago"),
            ("2026-11-27T11:48:00Z", "12m ago"),
            ("2026-11-27T14:00:01Z", "in 2h"),
            ("2026-11-15T12:00:00Z", "12d ago"),
        ] {
            assert_eq!(relative(parse(at).unwrap(), now), words);
        }
        assert_eq!((date(now), clock(now)), ("2026-11-27".to_owned(), "12:00Z".to_owned()));
        assert_eq!([size(812), size(1536), size(5 << 30)], ["812 B", "1.5 KiB", "5.0 GiB"]);
        assert_eq!([grouped(7), grouped(1000), grouped(-1_234_567)], ["7", "1,000", "-1,234,567"]);
        assert_eq!(parse("yesterday"), None);
    }
}
