//! Parsers of names on the command line. Decide the form of a name, and the remedy for a wrong one.

/// Parses an image's name. kubelet checks the rest.
pub fn image(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("name the image that holds this binary, for example registry.example.com/holdfast:0.1.0".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses an object's name: a DNS name.
pub fn object(text: &str) -> Result<String, String> {
    dns(text, "-.", 253, "a name has at most 253 characters: a-z, 0-9, '-' and '.'")
}

/// Parses a namespace's name: a DNS label.
pub fn namespace(text: &str) -> Result<String, String> {
    let remedy = "a namespace is a DNS label: a-z, 0-9 and '-', at most 63 characters";
    dns(text, "-", holdfast_api::name::MAX_LABEL, remedy)
}

/// Parses a DNS domain.
pub fn domain(text: &str) -> Result<String, String> {
    dns(text, "-.", 253, "a domain is of a-z, 0-9, '-' and '.', without a dot at its end: cluster.local")
}

/// Parses a name that a certificate may hold: a DNS name, `*.` and a domain, `*`, or an IP address. An empty text is no name.
pub fn allowed_name(text: &str) -> Result<String, String> {
    let below = text.strip_prefix("*.").unwrap_or(text).to_ascii_lowercase();
    if text.is_empty() || text == "*" || holdfast_api::tls::is_address(text) || domain(&below).is_ok() {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is no name: etcd.example.org, *.example.org for all below, * for all, or an IP address"))
}

/// Parses a name of lower-case letters and digits, with `between` allowed inside.
fn dns(text: &str, between: &str, most: usize, remedy: &str) -> Result<String, String> {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = (1..=most).contains(&text.len())
        && text.chars().all(|c| edge(c) || between.contains(c))
        && text.starts_with(edge)
        && text.ends_with(edge);
    if fits { Ok(text.to_owned()) } else { Err(remedy.to_owned()) }
}
