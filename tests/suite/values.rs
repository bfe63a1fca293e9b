//! The charts' generated files: `values.schema.json`, the table of `README.md`, and the copies below `files/`.
//!
//! Decides how a comment of `values.yaml` reads: `# -- TEXT` above a key describes the value, `# @schema JSON` adds to its schema.
//! A value without a description is a section of ours. `golden.rs` compares and rewrites the files.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use holdfast_manifests as manifests;
use serde_json::{Map, Value, json};

use crate::golden::between_marks;

/// The charts.
pub const CHARTS: [&str; 2] = ["holdfast", "holdfast-cluster"];

/// Values that a chart passes through to a custom resource: chart, value, kind's plural, field, and fields that the chart sets.
const PASSED: [(&str, &str, &str, &str, &[&str]); 4] = [
    ("holdfast-cluster", "cluster", "etcdclusters", "", &["bootstrap"]),
    ("holdfast-cluster", "restore", "etcdclusters", "/properties/bootstrap/properties/restore", &[]),
    ("holdfast-cluster", "schedules", "etcdsnapshotschedules", "", &["clusterRef", "external"]),
    ("holdfast-cluster", "store.spec", "etcdbackupstores", "", &[]),
];

/// Keywords of a CRD's schema that JSON Schema has too.
const SHARED: [&str; 12] = [
    "type",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "required",
    "uniqueItems",
    "maxProperties",
];

/// A value that a user can set.
pub struct Described {
    /// Keys, separated by dots.
    pub path: String,
    /// Text for people.
    pub text: String,
    /// JSON Schema.
    pub schema: Value,
    /// The value in `values.yaml`.
    pub default: Value,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The described values of a chart, in the order of `values.yaml`.
pub fn values(chart: &str) -> Vec<Described> {
    let text = fs::read_to_string(root().join(format!("charts/{chart}/values.yaml"))).unwrap();
    let mut described = parse(&text).unwrap_or_else(|why| panic!("charts/{chart}/values.yaml: {why}"));
    for value in &mut described {
        if let Some(passed) = PASSED.iter().find(|it| it.0 == chart && it.1 == value.path) {
            value.schema = passed_through(passed);
        }
    }
    described
}

/// Reads comments and defaults, or names the flaw.
fn parse(text: &str) -> Result<Vec<Described>, String> {
    let all: Value = serde_saphyr::from_str(text).map_err(|why| why.to_string())?;
    let mut described: Vec<Described> = vec![];
    let mut sections: Vec<String> = vec![];
    let (mut keys, mut comment): (Vec<&str>, Vec<&str>) = (vec![], vec![]);
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(rest) = trimmed.strip_prefix('#') {
            comment.push(rest.strip_prefix(' ').unwrap_or(rest));
            continue;
        }
        let key = trimmed.split_once(':').map(|(key, _)| key.trim_matches('"'));
        let Some(key) = key.filter(|key| key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')) else {
            comment.clear();
            continue;
        };
        keys.truncate((line.len() - trimmed.len()) / 2);
        keys.push(key);
        let path = keys.join(".");
        let inside = described.iter().any(|it| path.starts_with(&format!("{}.", it.path)));
        let default = keys.iter().try_fold(&all, |value, key| value.get(*key));
        let default = default.ok_or_else(|| format!("{path} is not where its indentation says"))?;
        match describe(&comment) {
            Some(_) if inside => return Err(format!("{path} is a part of a described value")),
            Some((text, added)) => {
                let schema = schema_of(default, added).ok_or_else(|| format!("{path} needs a type in @schema"))?;
                described.push(Described { path, text, schema, default: default.clone() });
            }
            None if inside => {}
            None => sections.push(path),
        }
        comment.clear();
    }
    let bare = |section: &&String| !described.iter().any(|it| it.path.starts_with(&format!("{section}.")));
    sections.iter().find(bare).map_or(Ok(()), |path| Err(format!("{path} has no comment that begins with `# --`")))?;
    Ok(described)
}

/// The text and the additional schema of a comment, if it describes a value.
fn describe(comment: &[&str]) -> Option<(String, Map<String, Value>)> {
    let first = comment.iter().position(|line| line.starts_with("-- "))?;
    let (mut words, mut schema) = (vec![], Map::new());
    for line in &comment[first..] {
        match line.strip_prefix("@schema ") {
            Some(text) => schema.extend(serde_json::from_str::<Map<String, Value>>(text).unwrap()),
            None => words.push(line.trim_start_matches("-- ").trim()),
        }
    }
    Some((words.join(" "), schema))
}

/// The schema of a value by its default.
fn schema_of(default: &Value, added: Map<String, Value>) -> Option<Value> {
    let mut schema = Map::new();
    let kind = match default {
        Value::Null => None,
        Value::Bool(_) => Some("boolean"),
        Value::Number(_) => Some("integer"),
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("array"),
        Value::Object(_) => Some("object"),
    };
    schema.extend(kind.map(|kind| ("type".to_owned(), json!(kind))));
    schema.extend(added);
    schema.contains_key("type").then_some(Value::Object(schema))
}

/// The schema of a value that is a custom resource's spec, or a list of those with a name.
fn passed_through(&(_, _, plural, field, without): &(&str, &str, &str, &str, &[&str])) -> Value {
    let crds = manifests::crds().unwrap();
    let crd = crds.iter().find(|crd| crd["spec"]["names"]["plural"] == plural).unwrap();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let mut schema = json_schema(crd.pointer(&format!("{spec}{field}")).unwrap());
    // The API server asks for the rest: a default of the chart, or another value, may hold it.
    schema.as_object_mut().unwrap().remove("required");
    let properties = schema["properties"].as_object_mut().unwrap();
    properties.retain(|name, _| !without.contains(&name.as_str()));
    if plural != "etcdsnapshotschedules" {
        return schema;
    }
    properties["snapshotTemplate"].as_object_mut().unwrap().remove("required");
    properties.insert("name".to_owned(), json!({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}));
    schema["required"] = json!(["name", "schedule"]);
    json!({"type": "array", "items": schema})
}

/// The part of a CRD's schema that JSON Schema can say. Fields that the CRD does not name are refused.
fn json_schema(crd: &Value) -> Value {
    let mut schema = Map::new();
    for word in SHARED {
        schema.extend(crd.get(word).map(|value| (word.to_owned(), value.clone())));
    }
    if crd["x-kubernetes-int-or-string"] == true {
        schema.insert("type".to_owned(), json!(["integer", "string"]));
    }
    if let Some(properties) = crd["properties"].as_object() {
        let all: Map<String, Value> = properties.iter().map(|(name, it)| (name.clone(), json_schema(it))).collect();
        schema.insert("properties".to_owned(), Value::Object(all));
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
    if crd["additionalProperties"].is_object() {
        schema.insert("additionalProperties".to_owned(), json_schema(&crd["additionalProperties"]));
    }
    if crd["items"].is_object() {
        schema.insert("items".to_owned(), json_schema(&crd["items"]));
    }
    if crd["nullable"] == true {
        let mut kinds = match schema.remove("type") {
            Some(Value::Array(kinds)) => kinds,
            kind => kind.into_iter().collect(),
        };
        kinds.push(json!("null"));
        schema.insert("type".to_owned(), json!(kinds));
        if let Some(Value::Array(all)) = schema.get_mut("enum") {
            all.push(Value::Null);
        }
    }
    Value::Object(schema)
}

/// The schema of all values of a chart.
fn schema(chart: &str) -> Value {
    let closed = || json!({"type": "object", "additionalProperties": false, "properties": {}});
    let mut whole = closed();
    for Described { path, text, schema, .. } in values(chart) {
        let mut place = &mut whole;
        let (sections, key) = path.rsplit_once('.').unwrap_or(("", &path));
        for section in sections.split('.').filter(|section| !section.is_empty()) {
            let properties = place["properties"].as_object_mut().unwrap();
            place = properties.entry(section).or_insert_with(closed);
        }
        place["properties"][key] = schema;
        place["properties"][key]["description"] = json!(text);
    }
    whole["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    // Helm gives every chart that is a part of another one the values of `global`, and `condition: NAME.enabled` of the parent's
    // dependency adds `enabled`.
    whole["properties"]["global"] =
        json!({"type": "object", "description": "Helm's own: values of a chart that contains this one."});
    whole["properties"]["enabled"] =
        json!({"type": "boolean", "description": "Helm's own: the condition of a chart that contains this one."});
    whole
}

fn table(chart: &str) -> String {
    let mut table = "\n| value | type | default | |\n|---|---|---|---|\n".to_owned();
    for Described { path, text, schema, default } in values(chart) {
        let kind = match (&schema["enum"], &schema["type"]) {
            (Value::Array(all), _) => {
                all.iter().map(|value| format!("`{}`", value.as_str().unwrap())).collect::<Vec<_>>().join(", ")
            }
            (_, Value::Array(all)) => all.iter().map(|kind| kind.as_str().unwrap()).collect::<Vec<_>>().join(" or "),
            (_, kind) => kind.as_str().unwrap().to_owned(),
        };
        table += &format!("| `{path}` | {kind} | `{default}` | {} |\n", text.replace('|', "\\|"));
    }
    table + "\n"
}

/// Every generated file of the charts, and its text.
pub fn files() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for chart in CHARTS {
        let text = serde_json::to_string_pretty(&schema(chart)).unwrap() + "\n";
        files.insert(format!("charts/{chart}/values.schema.json"), text);
        let readme = format!("charts/{chart}/README.md");
        files.insert(readme.clone(), between_marks(&readme, "the values", &table(chart)));
    }
    for crd in manifests::crds().unwrap() {
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap();
        let text = manifests::yaml(std::slice::from_ref(&crd)).unwrap();
        files.insert(format!("charts/holdfast/files/crds/{plural}.yaml"), text);
    }
    for name in ["alerts.yaml", "dashboard.json"] {
        let text = fs::read_to_string(root().join("charts").join(name)).unwrap();
        files.insert(format!("charts/holdfast/files/{name}"), text);
    }
    files
}

#[test]
fn each_value_needs_a_comment_that_describes_it() {
    let of = |text: &str| parse(text).map(|all| all.into_iter().map(|it| it.path).collect::<Vec<_>>());
    let told = "a:\n  # -- B.\n  b: 1\n  # -- C\n  #    and more.\n  # @schema {\"maximum\": 3}\n  c:\n    d: x\n";
    assert_eq!(of(told).unwrap(), ["a.b", "a.c"]);
    let c = &parse(told).unwrap()[1];
    assert_eq!((c.text.as_str(), &c.schema), ("C and more.", &json!({"type": "object", "maximum": 3})));
    assert_eq!(of("a:\n  b: 1\n").unwrap_err(), "a has no comment that begins with `# --`");
    assert_eq!(of("# -- A.\na: null\n").unwrap_err(), "a needs a type in @schema");
    assert_eq!(of("# -- A.\na:\n  # -- B.\n  b: 1\n").unwrap_err(), "a.b is a part of a described value");
}

#[test]
fn a_field_that_a_crd_lacks_is_refused() {
    let crd = json!({"type": "object", "required": ["a"], "x-kubernetes-validations": [], "properties": {
        "a": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}}},
        "b": {"x-kubernetes-int-or-string": true, "nullable": true, "description": "a quantity"},
    }});
    assert_eq!(
        json_schema(&crd),
        json!({"type": "object", "required": ["a"], "additionalProperties": false, "properties": {
            "a": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": ["string", "null"]}}},
            "b": {"type": ["integer", "string", "null"]},
        }})
    );
}
