//! Reads the operator's annotations on the Pod, from a downward API file.
//!
//! kubelet writes a line for each annotation, `key="value"`, with the value as a Go string literal, so a value can never start
//! a line of its own. The parser fails closed: an invalid permission is no permission, and an invalid number is an error, never
//! absent.

use std::fs;
use std::path::Path;

use holdfast_contract::{JOINED, MAY_START_EMPTY, STARTED};

/// The operator's annotations on the Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotations {
    /// [`MAY_START_EMPTY`].
    pub may_start_empty: Option<String>,
    /// [`STARTED`]; 0 if absent. `Err`: it is invalid, or the file cannot be read.
    pub started: Result<u64, String>,
    /// [`JOINED`]; `None` if absent. `Err`: as for `started`.
    pub joined: Result<Option<String>, String>,
}

impl Annotations {
    /// Reads the file.
    pub fn read(path: &Path) -> Self {
        match fs::read_to_string(path) {
            Ok(file) => Self::parse(&file),
            Err(error) => {
                let why = format!("{}: {error}", path.display());
                Self { may_start_empty: None, started: Err(why.clone()), joined: Err(why) }
            }
        }
    }

    fn parse(file: &str) -> Self {
        let counted = |value: &str| number(value).ok_or_else(|| format!("{STARTED}={value:?} is no number"));
        Self {
            may_start_empty: annotation(file, MAY_START_EMPTY).ok().flatten(),
            started: annotation(file, STARTED).and_then(|value| value.as_deref().map_or(Ok(0), counted)),
            joined: annotation(file, JOINED).and_then(|value| value.map(named).transpose()),
        }
    }

    /// Whether this claim may be empty. Never after a Pod has served from it or a member has joined (I3).
    pub fn permit_empty(&self, claim_uid: &str) -> bool {
        let named = self.may_start_empty.as_deref() == Some(claim_uid);
        named && !claim_uid.is_empty() && self.started == Ok(0) && self.joined == Ok(None)
    }
}

/// Parses digits only: `parse` alone would accept a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Checks that the value is two IDs of etcd: any other value would make every log foreign.
fn named(value: String) -> Result<String, String> {
    let id = |hex: &str| (1..=16).contains(&hex.len()) && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    match value.split_once('/') {
        Some((cluster, member)) if id(cluster) && id(member) => Ok(value),
        _ => Err(format!("{JOINED}={value:?} does not name a cluster and a member")),
    }
}

/// Returns this annotation's value, if the file has the annotation. `Err`: the value is invalid.
fn annotation(file: &str, key: &str) -> Result<Option<String>, String> {
    let literal = file.lines().find_map(|line| {
        let (name, literal) = line.split_once('=').unwrap_or((line, ""));
        (name == key).then_some(literal)
    });
    let Some(literal) = literal else { return Ok(None) };
    let value = literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).and_then(unescape);
    value.map(Some).ok_or_else(|| format!("{key} has no value that can be read"))
}

/// Undoes Go's `strconv.Quote`. `None`: the text is no such literal.
fn unescape(quoted: &str) -> Option<String> {
    let mut out = Vec::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    let mut buffer = [0; 4];
    while let Some(c) = chars.next() {
        if c == '"' {
            return None;
        }
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let simple = match chars.next()? {
            'a' => b'\x07',
            'b' => b'\x08',
            'f' => b'\x0c',
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => b'\x0b',
            '\\' => b'\\',
            '"' => b'"',
            'x' => u8::try_from(hex(&mut chars, 2)?).ok()?,
            'u' => {
                out.extend_from_slice(char::from_u32(hex(&mut chars, 4)?)?.encode_utf8(&mut buffer).as_bytes());
                continue;
            }
            'U' => {
                out.extend_from_slice(char::from_u32(hex(&mut chars, 8)?)?.encode_utf8(&mut buffer).as_bytes());
                continue;
            }
            _ => return None,
        };
        out.push(simple);
    }
    String::from_utf8(out).ok()
}

fn hex(chars: &mut std::str::Chars<'_>, digits: usize) -> Option<u32> {
    (0..digits).try_fold(0, |number, _| Some(number * 16 + chars.next()?.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_is_found_and_read() {
        let file = "a/b=\"1\"\nholdfast.dev/may-start-empty=\"0f-1\"\nz=\"tab\\t \\\"q\\\" \\u00e9 \\x41\"\n";
        let found = |key| annotation(file, key).unwrap();
        assert_eq!(found("holdfast.dev/may-start-empty").as_deref(), Some("0f-1"));
        assert_eq!(found("z").as_deref(), Some("tab\t \"q\" é A"));
        assert_eq!(found("b"), None);
        assert_eq!(annotation("", "b"), Ok(None));
    }

    #[test]
    fn another_annotations_value_is_no_annotation() {
        let file = "evil=\"\\nholdfast.dev/may-start-empty=\\\"u\\\"\"\n";
        assert_eq!(annotation(file, "holdfast.dev/may-start-empty"), Ok(None));
    }

    #[test]
    fn half_a_line_says_nothing() {
        for line in ["k=", "k=\"", "k=\"v", "k=v", "k", "k=\"a\"b\"", "k=\"\\\"", "k=\"\\x4\"", "k=\"\\q\""] {
            annotation(line, "k").expect_err(line);
        }
        assert_eq!(annotation("k=\"\"", "k"), Ok(Some(String::new())));
    }

    #[test]
    fn a_number_is_digits_and_anything_else_is_an_error() {
        let started = |value: &str| Annotations::parse(&format!("a=\"b\"\n{STARTED}={value}\n")).started;
        for (value, expected) in [("\"0\"", 0), ("\"7\"", 7), ("\"18446744073709551615\"", u64::MAX)] {
            assert_eq!(started(value), Ok(expected), "{value}");
        }
        for value in
            ["", "7", "\"\"", "\"+7\"", "\"-1\"", "\" 7\"", "\"7 \"", "\"0x7\"", "\"18446744073709551616\"", "\"7"]
        {
            started(value).expect_err(value);
        }
        Annotations::parse(STARTED).started.expect_err("a name without a value");
        assert_eq!(Annotations::parse("").started, Ok(0), "a Pod from before there was a count");
        Annotations::read("/nonexistent".as_ref()).started.expect_err("unknown is not absent");
    }

    #[test]
    fn whom_a_member_joined_as_is_two_ids_and_anything_else_is_an_error() {
        let joined = |value: &str| Annotations::parse(&format!("{JOINED}={value}\n")).joined;
        assert_eq!(joined("\"c1/a1\""), Ok(Some("c1/a1".to_owned())));
        for value in ["", "\"\"", "\"c1\"", "\"c1/\"", "\"/a1\"", "\"C1/a1\"", "\"c1/a1/b\"", "\"0x1/a1\"", "\"c1/a1"] {
            joined(value).expect_err(value);
        }
        assert_eq!(Annotations::parse("").joined, Ok(None), "it has not joined, or nobody has said so yet");
        Annotations::read("/nonexistent".as_ref()).joined.expect_err("unknown is not absent");
    }

    #[test]
    fn a_claim_from_which_a_pod_has_served_is_never_permitted_to_be_empty() {
        let permitted = |file: &str| Annotations::parse(file).permit_empty("u");
        assert!(permitted(&format!("{MAY_START_EMPTY}=\"u\"\n")));
        assert!(permitted(&format!("{MAY_START_EMPTY}=\"u\"\n{STARTED}=\"0\"\n")));
        assert!(!permitted(&format!("{MAY_START_EMPTY}=\"u\"\n{STARTED}=\"1\"\n")));
        assert!(!permitted(&format!("{MAY_START_EMPTY}=\"u\"\n{STARTED}=\"x\"\n")));
        assert!(!permitted(&format!("{MAY_START_EMPTY}=\"u\"\n{JOINED}=\"c1/a1\"\n")));
        assert!(!permitted(&format!("{MAY_START_EMPTY}=\"u\"\n{JOINED}=\"x\"\n")));
        assert!(!permitted(&format!("{MAY_START_EMPTY}=\"v\"\n")));
        assert!(!Annotations::parse(&format!("{MAY_START_EMPTY}=\"\"\n")).permit_empty(""));
    }

    proptest! {
        #[test]
        fn anything_is_read_without_a_panic(file in "\\PC{0,60}", key in "[a-z]{0,3}") {
            let _ = annotation(&file, &key);
            let _ = annotation(&format!("{key}=\"{file}\""), &key);
        }
    }
}
