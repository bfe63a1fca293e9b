//! Validated values to Kubernetes objects; infallible.
