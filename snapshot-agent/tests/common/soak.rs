//! How often tests that look for rare things do it.

/// The first usually, the second where `HOLDFAST_SOAK` is set.
pub(crate) fn soak<T>(usually: T, soaking: T) -> T {
    if std::env::var_os("HOLDFAST_SOAK").is_some_and(|soak| !soak.is_empty()) { soaking } else { usually }
}
