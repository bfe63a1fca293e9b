//! etcd versions: the minor decides how options are written, the patch which defects are known.
//!
//! Decides parsing and the floors. Does not decide whether a version may follow another.

use std::fmt;

/// A version 3.5.Z, 3.6.Z or 3.7.Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The minor: 5, 6 or 7.
    pub minor: u32,
    /// The patch.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "3.{}.{}", self.minor, self.patch)
    }
}

impl Version {
    /// Returns a version that Holdfast supports.
    pub fn parse(text: &str) -> Option<Self> {
        let (minor, patch) = text.strip_prefix("3.")?.split_once('.')?;
        let number = |part: &str| {
            (!part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse::<u32>().ok()).flatten()
        };
        let version = Self { minor: number(minor)?, patch: number(patch)? };
        (5..=7).contains(&version.minor).then_some(version)
    }

    /// Whether the server allows several learners at a time, which Holdfast always uses.
    pub const fn many_learners(self) -> bool {
        self.minor >= 6
    }

    /// Whether etcd adds a member while a quorum of the grown cluster is connected; older patches require every voter to be
    /// connected (etcd PR 21667 and 21669).
    pub const fn adds_beside_silent(self) -> bool {
        match self.minor {
            5 => self.patch >= 30,
            6 => self.patch >= 11,
            _ => true,
        }
    }

    /// Returns the known defects of a version below the floor of its minor, and the floor.
    pub const fn known_defect(self) -> Option<(&'static str, &'static str)> {
        match self.minor {
            5 if self.patch < 26 => {
                Some(("members that were removed can come back and promotions can be lost at an upgrade", "3.5.26"))
            }
            6 if self.patch < 11 => {
                Some(("permissions can be bypassed, and no member can be added while one of five is down", "3.6.11"))
            }
            7 if self.patch < 1 => Some(("a published security defect of its watches", "3.7.1")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_numbers_of_a_known_minor() {
        assert_eq!(Version::parse("3.6.16"), Some(Version { minor: 6, patch: 16 }));
        for text in ["", "3.6", "3.6.", "3.4.1", "3.8.0", "v3.6.1", "3.6.1-rc.0", "3.6.+1", "3.6.1.1", "4.6.1"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_floors_are_safe_and_what_is_below_is_not() {
        for (below, floor) in [("3.5.25", "3.5.26"), ("3.6.10", "3.6.11"), ("3.7.0", "3.7.1")] {
            assert_eq!(Version::parse(below).and_then(Version::known_defect).map(|(_, f)| f), Some(floor));
            assert_eq!(Version::parse(floor).and_then(Version::known_defect), None);
        }
    }
}
