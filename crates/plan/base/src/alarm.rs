//! Alarms that etcd raises.
//!
//! Decides their kinds and etcd's names for them. `cluster/alarms.rs` decides what follows an alarm.

/// One raised alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Member ID; 0 where etcd does not know which member is corrupt.
    pub member_id: u64,
    /// The kind.
    pub kind: AlarmKind,
}

/// The kind of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    /// A member's database has reached its quota.
    NoSpace,
    /// A member's data differs from the data of the other members.
    Corrupt,
}

impl AlarmKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::NoSpace, Self::Corrupt];

    /// Returns etcd's name of the kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSpace => "NOSPACE",
            Self::Corrupt => "CORRUPT",
        }
    }
}
