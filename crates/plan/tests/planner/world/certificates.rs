//! Secrets of certificates in the small world: subject, issuer and end of each. There are no keys.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_api::name::LocalRef;
use holdfast_api::tls::{CertManager, ClientPlane, IssuerRef, PeerPlane, Tls};
use holdfast_api::transport::Transport;
use holdfast_plan::certificate::{
    Ca, CaPlace, Certificates, Contents, Files, Issue, Kept, Known, Origin, Plane, Request, files,
};
use holdfast_plan::pods;

use super::*;

/// Ticks until a member shows a renewed certificate.
const REFRESH: u64 = 20;

const CA_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 90;

/// The Secrets that certificates are copied from, as they were read.
type Read = BTreeMap<String, Result<Known, String>>;

/// A CA, whose key is never the same twice.
fn ca_of(name: &str) -> Ca {
    let not_after = "2036-01-01T00:00:00Z".parse().unwrap();
    Ca { anchor: name.to_owned(), not_after, fingerprint: name.to_owned() }
}

impl World {
    /// Switches the cluster to TLS, the default.
    pub fn secure(&mut self) {
        self.write_cluster(|cluster| cluster.spec.tls = None);
        self.certificates = Some(Certificates::default());
    }

    /// A person edits `spec.tls`, also of a cluster that serves.
    pub fn transport(&mut self, wanted: Transport) {
        let plane = ClientPlane { allow_plaintext: Some(true), ..ClientPlane::default() };
        let tls = match wanted {
            Transport::Plaintext => Some(Tls { insecure: Some(true), ..Tls::default() }),
            Transport::ClientsPlaintext => Some(Tls { client: Some(plane), ..Tls::default() }),
            Transport::PeersPlaintext | Transport::Tls => None,
        };
        self.certificates.get_or_insert_default();
        self.edit(|spec| spec.tls = tls);
    }

    /// Panics where a new Pod would reach a running one on no port: a member without certificates dials no peer with TLS.
    pub(super) fn check_reach(&self, new: &Pod) {
        for (name, pod) in self.pods.iter().filter(|(name, _)| self.processes.contains_key(*name)) {
            let (new, old) = (pods::transport(new), pods::transport(pod));
            assert!(new.reaches(old), "{old:?} of {name} does not reach {new:?}:\n{}", self.log.join("\n"));
        }
        let wrong = |l: &&Listed| {
            let serves = self.pods.get(&l.name).filter(|_| !l.learner).map(pods::transport);
            serves.is_some_and(|it| {
                !l.peer_urls.iter().all(|url| url.starts_with(&format!("{}://", it.peers().as_str())))
            })
        };
        let wrong: Vec<&String> =
            self.groups.values().flat_map(|g| &g.members).filter(wrong).map(|l| &l.name).collect();
        assert!(wrong.len() <= 1, "{wrong:?} are dialled with another scheme:\n{}", self.log.join("\n"));
    }

    /// A plan that skips a step.
    pub fn skip_to_tls(&mut self) {
        let name = self.pods.keys().next().unwrap().clone();
        let mut member = self.members[&name].clone();
        member.spec.tls = Some(holdfast_api::tls::MemberTls::default());
        let mut pod = self.pods[&name].clone();
        member.spec.process.transport = None;
        let volume = k8s_openapi::api::core::v1::Volume { name: "tls".to_owned(), ..Default::default() };
        pod.spec.get_or_insert_default().volumes.get_or_insert_default().push(volume);
        assert_eq!(pods::transport(&pod), Transport::Tls);
        self.pods.remove(&name);
        self.check_reach(&pod);
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
        let ca = match state {
            "of-another-ca" => "ca-2",
            _ => "ca-1",
        };
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
        let (number, ca) = (self.next(), self.issuer.clone());
        let mut known = self.known(format!("{}-{number}", meta::name(metadata)), ca, LEAF_DAYS);
        let names = ["dnsNames", "ipAddresses"].into_iter().flat_map(|key| spec[key].as_array().into_iter().flatten());
        known.names = names.map(|name| name.as_str().unwrap().to_owned()).collect();
        let Some(all) = &mut self.certificates else { return };
        let mut metadata = metadata.clone();
        metadata.uid = Some(format!("uid-{}", meta::name(&metadata)));
        let request = Request { metadata: metadata.clone(), spec: spec.clone(), issuing: false, unready: None };
        all.requests.insert(meta::name(&metadata).to_owned(), request);
        all.sources.insert(meta::name(&metadata).to_owned(), Ok(known));
    }

    /// The issuer of cert-manager gets another CA.
    pub fn exchange_issuer(&mut self, ca: &str) {
        ca.clone_into(&mut self.issuer);
        self.changed();
    }

    /// cert-manager issues one of the members' certificates again, as at two thirds of its life.
    pub fn issue_one_again(&mut self) {
        let name =
            self.certificates.iter().flat_map(|all| all.requests.keys()).find(|name| name.ends_with("-server-cert"));
        let name = name.expect("a request").clone();
        self.issue_again(&name);
    }

    pub(super) fn issue_again(&mut self, name: &str) {
        let there = self.certificates.as_ref().and_then(|all| all.requests.get(name)).expect("a request").clone();
        self.say(format!("cert-manager issues {name} again, by {}", self.issuer));
        self.ask_cert_manager(&there.metadata, &there.spec);
        self.changed();
    }

    /// A person asks for another CA.
    pub fn rotate(&mut self, request: &str) {
        let put = |cluster: &mut EtcdCluster| {
            let annotations = cluster.metadata.annotations.get_or_insert_default();
            annotations.insert(key::ROTATE_CA.to_owned(), request.to_owned());
        };
        self.write_cluster(put);
    }

    /// Seconds that applications have to read their files.
    pub fn grace(&mut self, seconds: u32) {
        self.edit(|s| {
            let client = s.tls.get_or_insert_default().client.get_or_insert_default();
            client.rotation_grace_seconds = Some(seconds);
        });
    }

    /// Whether no CA is exchanged, and the cluster is as its spec asks.
    pub fn is_exchanged(&self) -> bool {
        let status = self.cluster.as_ref().and_then(|c| c.status.as_ref()?.tls.as_ref());
        let over = status.is_some_and(|tls| tls.client.rotation.is_none() && tls.peer.rotation.is_none());
        let follows = self.certificates.iter().flat_map(|all| all.cas.values());
        let mut follows = follows.filter(|kept| kept.leaves.contains_key(files::NEXT.certificate));
        let loaded =
            |(name, pod): (&String, &Pod)| self.members.get(name).is_some_and(|m| !pods::has_other_cas(pod, m));
        self.complete() && over && follows.next().is_none() && self.pods.iter().all(loaded)
    }

    /// A plan that breaks the rule: a member gets a certificate of a CA that no member has loaded.
    pub fn sign_by_a_stranger(&mut self) {
        let known = self.known("stranger".to_owned(), "ca-of-a-stranger".to_owned(), LEAF_DAYS);
        self.check_trust(files::SERVER, &known);
    }

    /// A plan that breaks the rule: the files of a member lose the CA of the others, and its Pod starts with them.
    pub fn forget_a_ca(&mut self) {
        let name = self.members.keys().next().unwrap().clone();
        let kept = self.certificates.as_mut().and_then(|all| all.members.get_mut(&name)).unwrap();
        let known = kept.leaves.get_mut(files::PEER.certificate).and_then(|known| known.as_mut().ok()).unwrap();
        known.cas.clear();
        let pod = self.pods[&name].clone();
        self.load_cas(&name, &pod);
    }

    /// etcd in a new Pod loads the CAs in the member's files.
    pub(super) fn load_cas(&mut self, member: &str, pod: &Pod) {
        self.loaded.remove(member);
        if !pods::transport(pod).has_certificates() {
            return;
        }
        let Some(kept) = self.certificates.as_ref().and_then(|all| all.members.get(member)) else { return };
        let cas = Plane::ALL.into_iter().flat_map(|plane| {
            let leaf = kept.leaf(plane.shown()).into_iter();
            leaf.flat_map(move |known| known.cas.iter().map(move |ca| (plane, ca.anchor.clone())))
        });
        let cas: BTreeSet<(Plane, String)> = cas.collect();
        for (other, kept) in self.certificates.iter().flat_map(|all| &all.members) {
            let shows = |plane: Plane| kept.leaf(plane.shown()).map(|known| (plane, known.anchor.clone()));
            for shown in Plane::ALL.into_iter().filter_map(shows).filter(|_| self.shows(other)) {
                assert!(cas.contains(&shown), "{other} would be cut off from {member}:\n{}", self.log.join("\n"));
            }
        }
        self.loaded.insert(member.to_owned(), cas);
    }

    /// Whether a member has a Pod that shows certificates.
    fn shows(&self, member: &str) -> bool {
        self.pods.get(member).is_some_and(|pod| pods::transport(pod).has_certificates())
    }

    /// A certificate of a CA that a running member has not loaded cuts that member off.
    fn check_trust(&self, files: Files, known: &Known) {
        let plane = if files == files::PEER { Plane::Peer } else { Plane::Client };
        for (member, cas) in self.loaded.iter().filter(|(member, _)| self.shows(member)) {
            let trusts = cas.contains(&(plane, known.anchor.clone()));
            assert!(trusts, "{member} does not trust {}:\n{}", known.anchor, self.log.join("\n"));
        }
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
        let has = |pod: &Pod| pods::transport(pod).has_certificates();
        let wanted = self.cluster.as_ref().is_some_and(EtcdCluster::has_certificates);
        let held = self.members.values().any(|m| m.spec.transport().has_certificates()) || self.pods.values().any(has);
        let mut all = self.certificates.clone().filter(|_| wanted || held)?;
        all.members.retain(|name, _| self.members.contains_key(name));
        let late = self.refreshed.iter().filter(|(_, at)| self.now < **at + REFRESH);
        for (member, cas) in &self.loaded {
            let pod = self.pods.get(member).filter(|pod| pods::ready(pod));
            let made_so = pod.zip(self.members.get(member)).is_some_and(|(pod, m)| !pods::has_other_cas(pod, m));
            if made_so {
                all.accepted.insert(member.clone(), cas.clone());
            }
        }
        all.unserved = late.map(|(name, _)| name.clone()).filter(|name| self.shows(name)).collect();
        Some(all)
    }

    pub(super) fn issue(&mut self, issue: &Issue) -> Result<(), ()> {
        let mut all = self.certificates.take().ok_or(())?;
        let name = meta::name(&issue.metadata).to_owned();
        let member = self.members.keys().find(|member| format!("{member}-tls") == name).cloned();
        let there = member.as_ref().and_then(|member| all.members.get(member).map(|kept| kept.target.clone()));
        let uid = there.as_ref().map_or_else(|| format!("uid-{}", self.next()), |there| there.uid.clone());
        let version = self.next().to_string();
        let standing = match (&issue.contents, member.as_ref(), name.as_str()) {
            (Contents::Ca { plane, .. } | Contents::NextCa { plane, .. } | Contents::PromoteCa { plane, .. }, ..) => {
                all.cas.get(plane)
            }
            (_, Some(member), _) => all.members.get(member),
            (_, None, "a-operator-tls") => all.operator.as_ref(),
            (_, None, _) => all.client.as_ref(),
        };
        let standing_now = standing.map(|kept| &kept.target);
        let same = issue.replaces.as_ref() == standing_now;
        let signs = |(plane, (_, ca)): (&Plane, &(String, String))| {
            all.cas.get(plane).and_then(|kept| kept.leaf(files::CA)).is_some_and(|known| known.fingerprint == *ca)
        };
        let judged = match &issue.contents {
            Contents::Leaves { cas, copies, .. } => {
                let unchanged = |(secret, contents): (&String, &String)| {
                    all.sources
                        .get(secret)
                        .and_then(|known| known.as_ref().ok())
                        .is_some_and(|it| it.contents == *contents)
                };
                cas.iter().all(signs) && copies.iter().all(unchanged)
            }
            _ => true,
        };
        // The guards of the operator's writer.
        if !same || !judged {
            self.certificates = Some(all);
            return Err(());
        }
        let mut leaves = standing.map(|kept| kept.leaves.clone()).unwrap_or_default();
        let mut rotated_for = standing.and_then(|kept| kept.rotated_for.clone());
        let exchanged = standing.and_then(|kept| kept.exchanged);
        let exchanges = matches!(issue.contents, Contents::Leaves { exchanges: true, .. });
        match &issue.contents {
            Contents::NextCa { request, .. } => {
                rotated_for = request.clone().or(rotated_for);
                let own = format!("ca-{version}");
                leaves.insert(files::NEXT.certificate, Ok(self.known(own.clone(), own, CA_DAYS)));
            }
            Contents::PromoteCa { .. } => {
                let next = leaves.remove(files::NEXT.certificate).unwrap();
                leaves.insert(files::CA.certificate, next);
            }
            contents => leaves.extend(self.leaves(&all.sources, contents, &version)),
        }
        if let Contents::Leaves { trusts, leaves: written, .. } = &issue.contents {
            for (file, known) in &mut leaves {
                let files = [files::PEER, files::SERVER, files::ETCDCTL, files::CLIENT];
                let files = *files.iter().find(|files| files.certificate == *file).unwrap();
                let Some(cas) = trusts.get(files.ca) else { continue };
                let ca = |place: &CaPlace| ca_of(&place.fingerprint);
                let known = known.as_mut().unwrap();
                known.cas = cas.iter().map(ca).collect();
                if written.iter().any(|leaf| leaf.files == files) {
                    self.check_trust(files, known);
                }
            }
        }
        let kept = Kept {
            target: Target { name: name.clone(), uid, resource_version: version.clone() },
            owner: issue.metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).next(),
            typed: true,
            rotated_for,
            exchanged: if exchanges { Some(self.time()) } else { exchanged },
            written: Some(self.time()),
            digest: format!("digest-{version}"),
            leaves,
        };
        match (&issue.contents, member, name.as_str()) {
            (Contents::Ca { plane, .. } | Contents::NextCa { plane, .. } | Contents::PromoteCa { plane, .. }, ..) => {
                drop(all.cas.insert(*plane, kept));
            }
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
            cas: vec![ca_of(&ca)],
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
            Contents::Ca { .. } => {
                let own = format!("ca-{version}");
                BTreeMap::from([(files::CA.certificate, Ok(known(own.clone(), own, CA_DAYS)))])
            }
            Contents::NextCa { .. } | Contents::PromoteCa { .. } => BTreeMap::new(),
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

    pub(super) fn bundle(&mut self, metadata: &ObjectMeta, cas: &[CaPlace]) {
        if let Some(all) = &mut self.certificates {
            all.bundle = Some((metadata.clone(), cas.iter().map(|place| place.fingerprint.clone()).collect()));
        }
    }
}
