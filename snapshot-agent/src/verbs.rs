//! Layer 6: the verbs of `holdfast agent`, one folder each. A verb imports the layers below and [`common`], never another
//! verb.

pub(crate) mod common;
pub mod compare;
pub mod contents;
pub mod copy;
pub mod defrag;
pub mod gate;
pub mod inspect;
pub mod install;
pub mod latest;
pub mod list;
pub mod log;
pub mod probe;
pub mod prune;
pub mod recall;
pub mod remove;
pub mod report;
pub mod restore;
pub mod save;
pub mod verify;
