//! CAs in the files of Holdfast's Secrets.
//!
//! Decides nothing: `trust.rs` decides which CAs belong there.

use super::{Observed, holders};
use holdfast_base::certificate::{Ca, CaPlace, Certificates, Files, Kept, Plane, files};

/// The certificate of a CA, and its place.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) ca: &'a Ca,
    pub(super) secret: &'a str,
    pub(super) file: &'static str,
}

impl Placed<'_> {
    pub(super) fn place(&self) -> CaPlace {
        CaPlace { fingerprint: self.ca.fingerprint.clone(), secret: self.secret.to_owned(), file: self.file }
    }
}

/// Returns the CAs in the files of Holdfast's Secrets of a plane.
pub(super) fn staged<'a>(seen: &'a Observed, certificates: &'a Certificates, plane: Plane) -> Vec<Placed<'a>> {
    let of_members = holders(seen).filter_map(|m| certificates.members.get(m.name()));
    let of_members = of_members.flat_map(|kept| in_file(kept, plane.shown()));
    let operators = certificates.operator.iter().filter(|_| plane == Plane::Client);
    operators.flat_map(|kept| in_file(kept, files::CLIENT)).chain(of_members).collect()
}

/// Returns the anchors of the CAs in the files of Holdfast's Secrets of a plane.
pub(super) fn staged_anchors<'a>(
    seen: &'a Observed,
    certificates: &'a Certificates,
    plane: Plane,
) -> impl Iterator<Item = &'a String> {
    staged(seen, certificates, plane).into_iter().map(|placed| &placed.ca.anchor)
}

/// Returns the CAs beside a certificate of a Secret.
pub(super) fn in_file(kept: &Kept, files: Files) -> impl Iterator<Item = Placed<'_>> {
    let cas = kept.leaf(files).into_iter().flat_map(|known| &known.cas);
    cas.map(move |ca| Placed { ca, secret: &kept.target.name, file: files.ca })
}
