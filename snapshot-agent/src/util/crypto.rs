//! The one provider of cryptography for TLS.

/// Chooses aws-lc-rs for TLS, once for the process; what the binary has chosen stands.
pub fn install_crypto() {
    // An error says that one is installed already.
    let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
