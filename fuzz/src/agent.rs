//! The modules of the snapshot agent that do without network and runtime, as they are: no copy, no object store to compile.

#![allow(dead_code, unused_imports, reason = "some parts are used by modules that are not here")]

// A folder of its own, so that the modules find their own parts beside them.
#[path = "../../snapshot-agent/src"]
mod modules {
    pub mod contract;
    pub mod error;
    pub mod scan;

    pub mod format {
        pub mod layout;
        pub mod manifest;
        pub mod trailer;
    }

    pub mod util {
        pub mod sha256;
    }
}

pub use modules::{contract, error, format, scan, util};
