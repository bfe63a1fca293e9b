//! Renders `agent compare-members` as an argument vector.

use super::Argv;
use crate::CompareRequest;

impl CompareRequest {
    /// Returns the arguments after `agent compare-members`.
    pub fn to_args(&self) -> Vec<String> {
        let Self { etcd, expect_cluster_id, member_seconds, json, deadline_seconds } = self;
        Argv::default()
            .and(etcd.to_args())
            .option("expect-cluster-id", expect_cluster_id.as_ref())
            .flag("member-seconds", member_seconds)
            .switch("json", *json)
            .flag("deadline-seconds", deadline_seconds)
            .0
    }
}

#[cfg(test)]
mod tests {
    use proptest::option::of as option;
    use proptest::prelude::*;

    use super::*;
    use crate::EtcdFlags;
    use crate::args::tests::parsed;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just("--json".to_owned()), Just("--".to_owned()), Just("-v".to_owned()), "[^,]{1,30}"]
    }

    proptest! {
        #[test]
        fn a_compare_request_survives_the_command_line(
            endpoints in proptest::collection::vec(text(), 1..5), expect_cluster_id in option(text()),
            (member_seconds, json, deadline_seconds) in any::<(u32, bool, u32)>(),
        ) {
            let etcd = EtcdFlags { endpoints, ..EtcdFlags::default() };
            let request = CompareRequest { etcd, expect_cluster_id, member_seconds, json, deadline_seconds };
            prop_assert_eq!(parsed::<CompareRequest>(request.to_args())?, request);
        }
    }
}
