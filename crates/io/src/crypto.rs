//! The provider of cryptography for TLS.

/// Installs aws-lc-rs for TLS, once per process; an earlier choice of the binary stays.
pub fn install_crypto() {
    // An error means that a provider is installed already.
    let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
