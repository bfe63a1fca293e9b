//! The build of this program: version, commit and architecture, for a metric, the log and `holdfast version`.
//!
//! Decides the name of the architecture. `main` knows commit and processor, so that another commit compiles `main` alone.

/// The build of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildInfo {
    /// Version of the workspace.
    pub version: &'static str,
    /// Commit of a release; `unknown` for any other build.
    pub commit: &'static str,
    /// Processor, as images and nodes of Kubernetes name it.
    pub architecture: &'static str,
}

impl BuildInfo {
    /// The commit of a build that is no release.
    pub const NO_COMMIT: &'static str = "unknown";

    /// Returns the build from this commit, `None` where the compiler got none, for a processor as Rust names it.
    #[must_use]
    pub fn from_compiler(commit: Option<&'static str>, processor: &'static str) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: commit.filter(|commit| !commit.is_empty()).unwrap_or(Self::NO_COMMIT),
            architecture: node_architecture(processor),
        }
    }
}

/// Returns Kubernetes' name of an architecture that Rust names.
fn node_architecture(name: &'static str) -> &'static str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_a_commit_says_so() {
        let commit = |given| BuildInfo::from_compiler(given, "x86_64").commit;
        assert_eq!([Some("0123456789ab"), Some(""), None].map(commit), ["0123456789ab", "unknown", "unknown"]);
    }

    #[test]
    fn architectures_have_the_names_of_nodes() {
        assert_eq!(["x86_64", "aarch64", "riscv64"].map(node_architecture), ["amd64", "arm64", "riscv64"]);
    }
}
