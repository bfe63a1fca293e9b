//! The CAs of one cluster and its EtcdUsers: their facts for `-o json`, and their lines of the screen.
//!
//! PURE. Decides which end of a CA, which step of an exchange of CAs and which users a person has to know of.

use std::collections::BTreeMap;

use holdfast_api::EtcdUser;
use holdfast_api::condition::{self, Type};
use holdfast_api::tls::{PlaneStatus, Rotation, TlsStatus};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::runbook::page;
use crate::screen::{MESSAGE_LINES, Screen, Tone, message, wrap};
use crate::time::{between, date, parse};

/// Days before the end of a CA. Holdfast exchanges the CAs of three members years earlier.
const CA_ENDS_SOON: i64 = 365;
/// Days before the end of a user's certificate. Holdfast renews it when about 30 of its 90 days remain.
const CERTIFICATE_ENDS_SOON: i64 = 30;

/// The CA of one plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ca {
    /// `client` or `peer`.
    pub plane: &'static str,
    /// End of the CA; absent where the CA is not Holdfast's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Step of the exchange of this CA; absent while none is exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
}

/// One EtcdUser.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// Name of the EtcdUser.
    pub name: String,
    /// Whether the user can log in, and has its permissions.
    pub ready: bool,
    /// Reason of the condition `Ready`; absent until an operator has seen the EtcdUser.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message of the condition `Ready`, where it is not true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// End of the user's certificate; absent with a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_until: Option<Timestamp>,
}

/// Returns the CAs of both planes.
pub fn cas(tls: &TlsStatus) -> Vec<Ca> {
    let ca = |plane, status: &PlaneStatus| Ca {
        plane,
        until: status.ca_not_after.as_deref().and_then(parse),
        rotation: status.rotation,
    };
    vec![ca("client", &tls.client), ca("peer", &tls.peer)]
}

/// Returns the users of this cluster, by name.
pub fn users(objects: &[EtcdUser], cluster: &str) -> Vec<User> {
    let mut users: Vec<User> =
        objects.iter().filter(|object| object.spec.cluster_ref.name == cluster).map(user).collect();
    users.sort_by(|a, b| a.name.cmp(&b.name));
    users
}

fn user(object: &EtcdUser) -> User {
    let status = object.status.clone().unwrap_or_default();
    let condition = condition::find(&status.conditions, Type::Ready);
    let ready = condition.is_some_and(|condition| condition.status == "True");
    User {
        name: object.name_any(),
        ready,
        reason: condition.map(|condition| condition.reason.clone()),
        message: condition.filter(|_| !ready).map(|condition| condition.message.clone()),
        certificate_until: status.certificate_not_after.as_deref().and_then(parse),
    }
}

fn ends_within(days: i64, end: Timestamp, now: Timestamp) -> bool {
    end.duration_since(now).as_hours() < 24 * days
}

/// Returns the lines about CAs below the heading: an end within a year, and the step of an exchange.
pub fn render_cas(cas: &[Ca], now: Timestamp, screen: Screen) -> String {
    let mut out = String::new();
    let mut push = |tone, text: &str| {
        for line in wrap(text, screen.width - 2) {
            out.push_str(&format!("  {}\n", screen.paint(tone, &line)));
        }
    };
    for ca in cas {
        if let Some(end) = ca.until.filter(|end| ends_within(CA_ENDS_SOON, *end, now)) {
            push(Tone::Warning, &format!("{} CA until {} ({})", ca.plane, date(end), between(now, end)));
        }
        if let Some(step) = ca.rotation {
            push(Tone::Moving, &format!("exchange of the {} CA, {step:?}: {}", ca.plane, describe(ca.plane, step)));
        }
    }
    out
}

/// Returns the work of a step of an exchange. docs/security.md has the steps.
fn describe(plane: &str, step: Rotation) -> &'static str {
    match step {
        Rotation::Trusting => "the members restart, one after the other, to trust the next CA beside the present one",
        Rotation::Waiting => {
            "ca.crt holds both CAs. Applications have to read it again within spec.tls.client.rotationGraceSeconds"
        }
        Rotation::Issuing => "the operator issues all certificates from the next CA, one member after the other",
        // Applications have no certificate of the peers' CA.
        Rotation::Retiring if plane == "peer" => "the members restart without the earlier CA",
        Rotation::Retiring => {
            "applications have to read tls.crt again within spec.tls.client.rotationGraceSeconds. Then the members restart without \
             the earlier CA"
        }
    }
}

/// Returns the block about users: their number, those that are not ready by reason, and ends of certificates. Empty without users.
pub fn render_users(users: &[User], now: Timestamp, screen: Screen) -> String {
    if users.is_empty() {
        return String::new();
    }
    let ready = users.iter().filter(|user| user.ready).count();
    let plural = if users.len() == 1 { "" } else { "s" };
    let mut out = screen.heading("USERS");
    out.push_str(&format!("  {} EtcdUser{plural}, {ready} ready\n", users.len()));
    let mut by_reason: BTreeMap<&str, Vec<&User>> = BTreeMap::new();
    for user in users.iter().filter(|user| !user.ready) {
        by_reason.entry(user.reason.as_deref().unwrap_or_default()).or_default().push(user);
    }
    for (reason, users) in by_reason {
        out.push_str(&render_reason(reason, &users, screen));
    }
    let ends = users.iter().filter_map(|user| Some((user.certificate_until?, user.name.as_str())));
    let mut ends: Vec<_> = ends.filter(|(end, _)| ends_within(CERTIFICATE_ENDS_SOON, *end, now)).collect();
    ends.sort_unstable();
    if !ends.is_empty() {
        let title = format!("certificates that end within {CERTIFICATE_ENDS_SOON} days");
        out.push_str(&format!("  {} {}\n", screen.paint(Tone::Warning, "●"), screen.paint(Tone::Warning, &title)));
        let describe = |(end, name)| format!("{name} {} ({})", date(end), between(now, end));
        let ends: Vec<String> = ends.into_iter().map(describe).collect();
        out.push_str(&message(&ends.join(", "), 4, MESSAGE_LINES, screen));
    }
    out
}

/// Returns the lines about the users that are not ready for one reason.
fn render_reason(reason: &str, users: &[&User], screen: Screen) -> String {
    let page = page(reason);
    let (sign, tone) = if page.is_some() { ("▲", Tone::Bad) } else { ("●", Tone::Warning) };
    let title = if reason.is_empty() { "not seen by an operator" } else { reason };
    let names: Vec<&str> = users.iter().map(|user| user.name.as_str()).collect();
    let mut out = format!("  {} {}\n", screen.paint(tone, sign), screen.paint(tone, &format!("not ready: {title}")));
    out.push_str(&message(&names.join(", "), 4, MESSAGE_LINES, screen));
    // Messages that differ name the users; kubectl shows each.
    if let Some(text) =
        users[0].message.as_ref().filter(|text| users.iter().all(|user| user.message.as_ref() == Some(text)))
    {
        out.push_str(&message(text, 4, MESSAGE_LINES, screen));
    }
    if let Some(page) = page {
        out.push_str(&format!("    {}\n", screen.paint(Tone::Faint, &page)));
    }
    out
}
