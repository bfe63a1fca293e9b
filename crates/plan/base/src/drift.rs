//! Whether applying an object would change anything, so that a settled cluster costs no writes (I17).
//!
//! Decides by value: compares the wanted object with the live object, and only fields that Holdfast writes count. Fields that
//! the API server or other writers added do not count (I13).

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;
use serde_json::Value;

use super::valid;

/// Whether `live` lacks a field of `want`. An object that cannot be written as JSON counts as different.
pub fn differs<T: Serialize, U: Serialize>(want: &T, live: &U) -> bool {
    differ(want, live, false)
}

/// Whether `live` lacks a field of `want`, for an object with a fingerprint of its rendered form: in lists of named elements,
/// elements of other writers (an admission webhook's variable or volume) do not count. A server-side apply never removes them.
pub fn differs_by_name<T: Serialize, U: Serialize>(want: &T, live: &U) -> bool {
    differ(want, live, true)
}

fn differ<T: Serialize, U: Serialize>(want: &T, live: &U, by_name: bool) -> bool {
    match (serde_json::to_value(want), serde_json::to_value(live)) {
        (Ok(want), Ok(live)) => !covers(&live, &want, by_name),
        (Err(_), _) | (_, Err(_)) => true,
    }
}

/// Whether `live` has every field of `want` with the same value. Lists are compared whole, element by element.
fn covers(live: &Value, want: &Value, by_name: bool) -> bool {
    match (live, want) {
        (Value::Object(live), Value::Object(want)) => want
            .iter()
            .all(|(key, value)| live.get(key).map_or_else(|| is_empty(value), |there| covers(there, value, by_name))),
        (Value::Array(live), Value::Array(want)) if by_name && !want.is_empty() && want.iter().all(named) => {
            let there = |want: &Value| live.iter().find(|live| live.get("name") == want.get("name"));
            want.iter().all(|want| there(want).is_some_and(|there| covers(there, want, by_name)))
        }
        (Value::Array(live), Value::Array(want)) => {
            live.len() == want.len() && live.iter().zip(want).all(|(live, want)| covers(live, want, by_name))
        }
        // The API server normalizes quantities: a written `0.5` reads as `500m`.
        (Value::String(live), Value::String(want)) => live == want || same_quantity(live, want),
        (live, want) => live == want,
    }
}

fn named(element: &Value) -> bool {
    element.get("name").is_some_and(Value::is_string)
}

fn same_quantity(one: &str, other: &str) -> bool {
    let value = |text: &str| valid::thousandths(&Quantity(text.to_owned()));
    value(one).is_some_and(|one| Some(one) == value(other))
}

/// Whether a value is empty. The API server drops empty maps and lists, so an empty value equals an absent one.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{differs, differs_by_name};
    use serde_json::json;

    #[test]
    fn only_our_fields_count() {
        let live = json!({"spec": {"ports": [{"port": 1, "protocol": "TCP"}], "clusterIP": "10.0.0.1"}, "status": {}});
        assert!(!differs(&json!({"spec": {"ports": [{"port": 1}], "selector": {}}}), &live));
        assert!(differs(&json!({"spec": {"ports": [{"port": 2}]}}), &live));
        assert!(differs(&json!({"spec": {"ports": [{"port": 1}, {"port": 2}]}}), &live));
        assert!(differs(&json!({"metadata": {"labels": {"a": "b"}}}), &live));
        let live = json!({"env": [{"name": "INJECTED", "value": "1"}, {"name": "OURS", "value": "2"}]});
        let want = |value: &str| json!({"env": [{"name": "OURS", "value": value}]});
        assert!(differs(&want("2"), &live) && !differs_by_name(&want("2"), &live));
        assert!(differs_by_name(&want("3"), &live));
        assert!(!differs(&json!({"cpu": "0.5", "memory": "1024Mi"}), &json!({"cpu": "500m", "memory": "1Gi"})));
        assert!(differs(&json!({"cpu": "0.5"}), &json!({"cpu": "501m"})));
    }
}
