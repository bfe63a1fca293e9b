//! Kubernetes quantities (`8Gi`, `500m`, `1e3`) as whole numbers.
//!
//! Decides the value, with Kubernetes' own grammar. Fractions are rounded up, as Kubernetes does: `1.1Gi` has no whole
//! number of bytes, and a volume of that size has one byte more.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Returns a quantity as whole bytes, rounded up; `None` for an invalid quantity.
pub fn bytes(quantity: &Quantity) -> Option<u64> {
    counted(quantity, 1).and_then(|b| u64::try_from(b).ok())
}

/// Returns a quantity in thousandths (the finest unit that Kubernetes keeps for CPU and memory), rounded up; `None` for an invalid
/// quantity.
pub fn thousandths(quantity: &Quantity) -> Option<u128> {
    counted(quantity, 1000)
}

/// Returns a quantity in parts of a unit, with `in_one` parts per unit.
fn counted(quantity: &Quantity, in_one: u128) -> Option<u128> {
    let text = quantity.0.as_str();
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || whole.len() > 20 || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let (multiplier, divisor) = unit(suffix)?;
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?.checked_mul(divisor)?;
    Some(digits.checked_mul(multiplier)?.checked_mul(in_one)?.div_ceil(scale))
}

/// Returns multiplier and divisor of a suffix.
fn unit(suffix: &str) -> Option<(u128, u128)> {
    let power = |base: u128, n: u32| base.checked_pow(n).map(|m| (m, 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => power(10, 3),
        "M" => power(10, 6),
        "G" => power(10, 9),
        "T" => power(10, 12),
        "P" => power(10, 15),
        "E" => power(10, 18),
        "Ki" => power(1024, 1),
        "Mi" => power(1024, 2),
        "Gi" => power(1024, 3),
        "Ti" => power(1024, 4),
        "Pi" => power(1024, 5),
        "Ei" => power(1024, 6),
        exponent => power(10, exponent.strip_prefix(['e', 'E'])?.parse::<u32>().ok().filter(|n| *n <= 18)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_does() {
        let read = |text: &str| bytes(&Quantity(text.to_owned()));
        for (text, value) in [
            ("0", 0),
            ("8Gi", 8 << 30),
            ("1.5Gi", 3 << 29),
            ("+2Ki", 2048),
            ("10G", 10_000_000_000),
            ("1e3", 1000),
            ("1E3", 1000),
            ("2E", 2_000_000_000_000_000_000),
            (".5k", 500),
            ("3000m", 3),
            // Kubernetes' `Value()` gives the same.
            ("1.1Gi", 1_181_116_007),
            ("0.1Mi", 104_858),
            ("1.0001Gi", 1_073_849_199),
            ("1181116006400m", 1_181_116_007),
            ("1500m", 2),
            ("0.5", 1),
            ("1n", 1),
        ] {
            assert_eq!(read(text), Some(value), "{text}");
        }
        for text in ["", "Gi", "1GiB", "1 Gi", "-1", "1.2.3", "1e", "1e99", "99999999999999999999E", "x"] {
            assert_eq!(read(text), None, "{text}");
        }
        let fine = |text: &str| thousandths(&Quantity(text.to_owned()));
        assert_eq!((fine("250m"), fine("250.5m"), fine("1.0001Gi")), (Some(250), Some(251), Some(1_073_849_198_183)));
    }
}
