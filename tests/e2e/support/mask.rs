//! Replaces the parts that differ between any two runs: random names, UIDs, IDs, times, and the run's own names.
//!
//! Decides which parts a comparison omits, and nothing about the comparison.

use holdfast_contract::Request;
use serde_json::Value;

/// Fields that do not matter for the comparison.
const DROPPED: &[&str] = &[
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "generateName",
    "clusterIP",
    "clusterIPs",
    "nodeName",
    "volumeName",
    "lastTransitionTime",
    "observedGeneration",
    "message",
    // A raft index: it depends on the number of elections.
    "logSince",
    // Digests of certificates.
    "staged",
    "holdfast.dev/tls",
];

/// Fields of a request that do not matter: the order of names, which is random, decides which member waits for which at a first start;
/// and the key of a stored snapshot holds times and random parts.
const DROPPED_OF_REQUESTS: [&str; 2] = ["after", "key"];

/// A run's own names, with their replacements.
#[derive(Clone, Debug)]
pub struct Mask(Vec<(String, &'static str)>);

impl Mask {
    /// Creates the mask of these names.
    pub fn new(names: &[(&str, &'static str)]) -> Self {
        Self(names.iter().map(|(name, place)| ((*name).to_owned(), *place)).collect())
    }

    /// Whether an object's name holds a name of the run.
    pub fn owns(&self, name: &str) -> bool {
        name.split(|c: char| !c.is_ascii_alphanumeric()).any(|token| self.place(token).is_some())
    }

    /// The text with every random part replaced.
    pub fn text(&self, text: &str) -> String {
        if text.parse::<jiff::Timestamp>().is_ok() {
            return "TIME".to_owned();
        }
        let text = uids(text);
        let mut out = String::new();
        // Whether a random suffix may follow: after a name of the run or after another suffix.
        let mut suffix_may_follow = false;
        for (token, separator) in tokens(&text) {
            let hex = token.bytes().all(|b| b.is_ascii_hexdigit());
            if let Some(place) = self.place(token) {
                out.push_str(place);
                suffix_may_follow = separator == "-";
            } else if suffix_may_follow && (token.len() == 5 || (token.len() == 8 && hex)) {
                out.push('*');
                suffix_may_follow = separator == "-";
            } else {
                out.push_str(if hex && token.len() >= 12 { "HEX" } else { token });
                // The name of a schedule's `CronJob` has `backup` before its suffix.
                suffix_may_follow = suffix_may_follow && token == "backup";
            }
            out.push_str(separator);
        }
        out
    }

    /// The value with every random part replaced, without the fields that do not matter.
    pub fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if Request::from_text(text).is_ok() => {
                let mut request = serde_json::from_str(text).unwrap_or_default();
                drop_fields(&mut request);
                self.value(&request)
            }
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.value(item)).collect()),
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .filter(|(name, _)| !DROPPED.contains(&name.as_str()))
                    .map(|(name, value)| (self.text(name), self.value(value)))
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    fn place(&self, token: &str) -> Option<&'static str> {
        self.0.iter().find(|(name, _)| name == token).map(|(_, place)| *place)
    }
}

/// Removes [`DROPPED_OF_REQUESTS`].
fn drop_fields(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|name, _| !DROPPED_OF_REQUESTS.contains(&name.as_str()));
        fields.values_mut().for_each(drop_fields);
    }
}

/// Runs of letters and digits, each with the separator behind it.
fn tokens(text: &str) -> Vec<(&str, &str)> {
    let mut out = vec![];
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (token, behind) = rest.split_at(end);
        let end = behind.find(|c: char| c.is_ascii_alphanumeric()).unwrap_or(behind.len());
        let (separator, next) = behind.split_at(end);
        out.push((token, separator));
        rest = next;
    }
    out
}

/// Replaces UIDs.
fn uids(text: &str) -> String {
    let is_uid = |part: &str| {
        part.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if rest.get(..36).is_some_and(is_uid) {
            out.push_str("UID");
            rest = &rest[36..];
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}

/// Checks that every random part is replaced, and nothing else.
pub fn check() -> Result<(), String> {
    let mask = Mask::new(&[("c7", "CLUSTER"), ("s7", "SNAPSHOT")]);
    let cases = [
        ("c7", "CLUSTER"),
        ("c7-client", "CLUSTER-client"),
        ("data-c7-x2z4b", "data-CLUSTER-*"),
        ("c70-x2z4b", "c70-x2z4b"),
        ("source-x2z4b", "source-x2z4b"),
        ("s7-0123abcd-q1w2e", "SNAPSHOT-*-*"),
        ("c7-x2z4b=http://c7-x2z4b.c7.ns.svc:2380", "CLUSTER-*=http://CLUSTER-*.CLUSTER.ns.svc:2380"),
        ("9f0b6c1e-1c2d-4e5f-8a9b-0123456789ab", "UID"),
        ("ns-c7-9f0b6c1e-1c2d-4e5f-8a9b-0123456789ab", "ns-CLUSTER-UID"),
        ("--expect-cluster-id=cdf818194e3a8c32", "--expect-cluster-id=HEX"),
        ("2026-11-21T19:37:37Z", "TIME"),
        ("True", "True"),
    ];
    cases.iter().try_for_each(|(text, should)| {
        let is = mask.text(text);
        if is == *should { Ok(()) } else { Err(format!("{text:?} was masked as {is:?}, and should be {should:?}")) }
    })
}
