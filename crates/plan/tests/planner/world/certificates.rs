//! Secrets of certificates in the small world: subject, issuer and end of each. There are no keys.

use std::collections::BTreeMap;

use holdfast_api::name::LocalRef;
use holdfast_api::tls::{CertManager, ClientPlane, IssuerRef, PeerPlane, Tls};
use holdfast_plan::certificate::{Certificates, Contents, Issue, Kept, Known, Origin, Plane, Request, files};

use super::*;

/// Ticks until a member shows a renewed certificate.
const REFRESH: u64 = 20;

const CA_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 90;

/// The Secrets that certificates are copied from, as they were read.
type Read = BTreeMap<String, Result<Known, String>>;

impl World {
    /// Switches the cluster to TLS, the default.
    pub fn secure(&mut self) {
        self.write_cluster(|cluster| cluster.spec.tls = None);
        self.certificates = Some(Certificates::default());
    }

    /// Switches the cluster to certificates of a person.
    pub fn own(&mut self) {
        let named = |name: &str| Some(LocalRef { name: name.to_owned() });
        let client = ClientPlane {
            server_secret_ref: named("server"),
            operator_client_secret_ref: named("operator"),
            ..ClientPlane::default()
        };
        let peer = PeerPlane { secret_ref: named("peer"), ..PeerPlane::default() };
        self.take_certificates_from(Tls { client: Some(client), peer: Some(peer), ..Tls::default() });
    }

    /// Switches the cluster to cert-manager.
    pub fn managed(&mut self) {
        let issuer_ref = IssuerRef { name: "pki".to_owned(), kind: None, group: None };
        let by = CertManager { issuer_ref };
        let client = ClientPlane { cert_manager: Some(by.clone()), ..ClientPlane::default() };
        let peer = PeerPlane { cert_manager: Some(by), ..PeerPlane::default() };
        self.take_certificates_from(Tls { client: Some(client), peer: Some(peer), ..Tls::default() });
    }

    fn take_certificates_from(&mut self, tls: Tls) {
        self.write_cluster(|cluster| cluster.spec.tls = Some(tls));
        self.certificates = Some(Certificates::default());
    }

    /// A person writes a Secret with a certificate, or deletes it.
    pub fn source(&mut self, secret: &str, state: &str) {
        let ca = if state == "of-another-ca" { "ca-2" } else { "ca-1" };
        let mut known = self.known(format!("{secret}-{}", self.now), ca.to_owned(), 365);
        if secret != "operator" {
            known.names = ["*.a.ns.svc", "a-client.ns.svc"].map(str::to_owned).into();
        }
        match state {
            "good" | "of-another-ca" => {}
            "expired" => known.not_after = self.time(),
            "without-names" => known.names.clear(),
            "gone" => {}
            other => panic!("{other}?"),
        }
        let Some(all) = &mut self.certificates else { return };
        match state {
            "gone" => drop(all.sources.remove(secret)),
            _ => drop(all.sources.insert(secret.to_owned(), Ok(known))),
        }
        self.changed();
    }

    /// A person installs cert-manager.
    pub fn install_cert_manager(&mut self) {
        if let Some(all) = &mut self.certificates {
            all.cert_manager = true;
        }
        self.changed();
    }

    /// cert-manager issues every requested certificate at once.
    pub(super) fn ask_cert_manager(&mut self, metadata: &ObjectMeta, spec: &serde_json::Value) {
        let mut known = self.known(format!("{}-1", meta::name(metadata)), "ca-1".to_owned(), LEAF_DAYS);
        let names = ["dnsNames", "ipAddresses"].into_iter().flat_map(|key| spec[key].as_array().into_iter().flatten());
        known.names = names.map(|name| name.as_str().unwrap().to_owned()).collect();
        let Some(all) = &mut self.certificates else { return };
        let request = Request { metadata: metadata.clone(), spec: spec.clone(), unready: None };
        all.requests.insert(meta::name(metadata).to_owned(), request);
        all.sources.insert(meta::name(metadata).to_owned(), Ok(known));
    }

    /// Ages all certificates except the CAs by this many days.
    pub fn age(&mut self, days: i64) {
        let by = SignedDuration::from_hours(24 * days);
        let Some(all) = &mut self.certificates else { return };
        let kept = all.operator.iter_mut().chain(&mut all.client).chain(all.members.values_mut());
        for known in kept.flat_map(|kept| kept.leaves.values_mut()).filter_map(|leaf| leaf.as_mut().ok()) {
            known.not_before -= by;
            known.not_after -= by;
        }
        self.changed();
    }

    /// A person deletes the Secret of a CA, or of the first member.
    pub fn delete_secret(&mut self, which: &str) {
        let Some(all) = &mut self.certificates else { return };
        match which {
            "peer-ca" => drop(all.cas.remove(&Plane::Peer)),
            "client-ca" => drop(all.cas.remove(&Plane::Client)),
            _ => drop(all.members.pop_first()),
        }
        self.changed();
    }

    pub(super) fn seen_certificates(&self) -> Option<Certificates> {
        let mut all = self.certificates.clone()?;
        all.members.retain(|name, _| self.members.contains_key(name));
        let late = self.refreshed.iter().filter(|(_, at)| self.now < **at + REFRESH);
        all.unserved = late.map(|(name, _)| name.clone()).filter(|name| self.pods.contains_key(name)).collect();
        Some(all)
    }

    pub(super) fn issue(&mut self, issue: &Issue) -> Result<(), ()> {
        let mut all = self.certificates.take().ok_or(())?;
        let name = meta::name(&issue.metadata).to_owned();
        let member = self.members.keys().find(|member| format!("{member}-tls") == name).cloned();
        let there = member.as_ref().and_then(|member| all.members.get(member).map(|kept| kept.target.clone()));
        let uid = there.as_ref().map_or_else(|| format!("uid-{}", self.next()), |there| there.uid.clone());
        let version = self.next().to_string();
        let kept = Kept {
            target: Target { name: name.clone(), uid, resource_version: version.clone() },
            owner: issue.metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).next(),
            typed: true,
            written: Some(self.time()),
            digest: format!("digest-{version}"),
            leaves: self.leaves(&all.sources, &issue.contents, &version),
        };
        match (&issue.contents, member, name.as_str()) {
            (Contents::Ca(plane), ..) => drop(all.cas.insert(*plane, kept)),
            (_, Some(member), _) => {
                if there.is_some() {
                    self.refreshed.insert(member.clone(), self.now);
                }
                all.members.insert(member, kept);
            }
            (_, None, "a-operator-tls") => all.operator = Some(kept),
            (_, None, _) => all.client = Some(kept),
        }
        self.certificates = Some(all);
        self.changed();
        Ok(())
    }

    fn known(&self, fingerprint: String, ca: String, days: i64) -> Known {
        Known {
            anchor: ca.clone(),
            contents: fingerprint.clone(),
            fingerprint,
            ca,
            for_servers: true,
            for_clients: true,
            common_name: None,
            names: vec![],
            not_before: self.time() - SignedDuration::from_hours(1),
            not_after: self.time() + SignedDuration::from_hours(24 * days),
        }
    }

    fn leaves(
        &self,
        sources: &Read,
        contents: &Contents,
        version: &str,
    ) -> BTreeMap<&'static str, Result<Known, String>> {
        let known = |fingerprint, ca, days| self.known(fingerprint, ca, days);
        match contents {
            Contents::Ca(_) => {
                let own = format!("ca-{version}");
                BTreeMap::from([(files::CA.certificate, Ok(known(own.clone(), own, CA_DAYS)))])
            }
            Contents::Leaves { leaves, cas, .. } => leaves
                .iter()
                .map(|leaf| {
                    if let Origin::Copied(secret) = &leaf.origin {
                        return (leaf.files.certificate, sources[secret].clone());
                    }
                    let fingerprint = format!("{}-{version}", leaf.files.certificate);
                    let known = Known {
                        common_name: leaf.common_name.clone(),
                        names: leaf.names.clone(),
                        ..known(fingerprint, cas[&leaf.plane].1.clone(), LEAF_DAYS)
                    };
                    (leaf.files.certificate, Ok(known))
                })
                .collect(),
        }
    }

    pub(super) fn bundle(&mut self, metadata: &ObjectMeta, ca: &str) {
        if let Some(all) = &mut self.certificates {
            all.bundle = Some((metadata.clone(), Some(ca.to_owned())));
        }
    }
}
