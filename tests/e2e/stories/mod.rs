//! The stories, each in a file of its own.

mod admission;
mod api_trouble;
mod apiserver;
mod auth;
mod bitnami;
mod compaction;
mod corruption;
mod crashes;
mod decoding;
mod defrag;
mod deletion;
mod drills;
mod ending;
mod gate;
mod growth;
mod helm;
mod input;
mod latest;
mod log;
mod lost;
mod meanwhile;
mod memory;
mod mistakes;
mod names;
mod namespace;
mod passwords;
mod plugin;
mod pods;
mod point;
mod policies;
mod proxied;
mod pruning;
mod quiet;
mod recurring;
mod refusals;
mod removal;
mod replace;
mod restores;
mod retention;
mod returns;
mod robustness;
mod rolling;
mod rotation;
mod scale;
mod schedules;
mod snapshots;
mod space;
mod store_trouble;
mod stores;
mod survivors;
mod tls;
mod tls_managed;
mod tls_own;
mod traffic;
mod transport;
mod upgrade;
mod volumes;
mod whole;
mod zombie;

pub use crashes::rests;

use crate::story;
use crate::support::world::Story;

/// Every story. Stories with many Pods are apart from each other: the node has CPU for some twenty members.
pub fn all() -> Vec<Story> {
    let mut all = vec![
        story!(on host "alert_fires_with_the_operator_dead", schedules::alert_with_the_operator_dead),
        story!(on host "schedule_without_operator", schedules::without_operator),
        story!(on host "log_without_operator", log::without_operator),
        story!(on host "compaction_overtakes", log::compaction_overtakes),
        story!("store_away", log::store_away),
        story!("recurring_backups", recurring::tell),
        story!("manual_run_is_recorded", schedules::by_hand),
        story!("a_drill_every_night", drills::tell),
        story!("a_snapshot_and_the_log_are_merged", compaction::tell),
        story!("a_kube_apiserver_boots_on_the_backup", decoding::tell),
        // Seven members, beside stories with one each.
        story!("plugin_with_its_rights", plugin::tell),
        story!("retention_accelerated", pruning::accelerated),
        story!("locked_snapshots_are_shown", pruning::locked),
        story!("suspicious_stores_are_not_pruned", pruning::stopped),
        story!("deleting_an_object_with_policy_delete", removal::tell),
        story!("a_refused_secret_keeps_no_clients_out", policies::quota_on_secrets),
        story!("a_sidecar_that_never_ends", policies::sidecar),
        story!("a_write_that_is_taken_back_is_named", policies::taken_back),
        story!("retention_is_told", retention::tell),
        story!("a_settled_cluster_is_quiet", quiet::tell),
        story!("a_settled_cluster_with_users_is_quiet", quiet::with_users),
        story!(on host "api_trouble", api_trouble::tell),
        story!("refusals_are_told", refusals::tell),
        story!("an_edit_that_admission_refuses", admission::tell),
        story!("what_is_lost_is_read_back", lost::tell),
        story!("the_whole_story_on_3_5", whole::on_3_5),
        story!("trouble_with_the_store", store_trouble::tell),
        story!(on host "crashes_while_growing", crashes::growing),
        story!("emptied_and_foreign_volumes_are_refused", gate::tell),
        story!("one_store_for_many", stores::tell),
        story!("restores_into_every_version", restores::tell),
        story!("restores_the_latest", latest::tell),
        story!("asked_while_it_restores", meanwhile::tell),
        story!("back_to_a_minute_ago", point::tell),
        story!("the_whole_story_on_3_7", whole::on_3_7),
        story!(on host "a_store_behind_a_proxy", proxied::tell),
        story!("the_whole_story", whole::tell),
        story!(on host "crashes_while_restoring", crashes::restoring),
        story!("clusters_shrink", scale::shrink),
        story!("writes_while_scaling", scale::under_writers),
        story!("options_roll", rolling::tell),
        story!("upgrade_3_5_3_6_3_7", upgrade::tell),
        story!("volume_grows_at_the_roll", volumes::at_the_roll),
        story!("parked_and_back", scale::park),
        story!(on host "crashes_while_scaling", crashes::scaling),
        story!(on host "crashes_while_parking", crashes::parking),
        story!(on host "crashes_while_rolling", crashes::rolling),
        story!(on host "crashes_while_upgrading", crashes::upgrading),
        story!(on host "robustness", robustness::tell),
        story!(on host "killed_while_scaling", scale::killed),
        story!("a_bad_change_stops_at_one", rolling::bad),
        story!("a_lost_volume_is_replaced", replace::lost_volume),
        story!("upgrade_back_and_refused", upgrade::back),
        story!("volume_grows_online", volumes::online),
        story!("the_last_snapshot", ending::tell),
        story!("back_in_place", returns::in_place),
        story!("back_fails_and_returns", returns::fails),
        story!("a_return_is_undone", returns::undone),
        story!("quorum_lost_from_a_member", survivors::from_a_member),
        story!("quorum_lost_survivor_is_behind", survivors::is_behind),
        story!("space_comes_back", defrag::comes_back),
        story!("nospace_ends_by_itself", defrag::full),
        story!("nospace_says_the_ways_out", defrag::quota_grows),
        story!("a_corrupt_log_is_replaced", replace::corrupt_log),
        story!("a_corrupt_alarm_is_answered", replace::corrupt_alarm),
        story!("many_restarts_change_nothing", replace::many_restarts),
        story!("two_of_three_lost", replace::two_of_three),
        story!("memory_members", memory::tell),
        story!(on host "crashes_while_replacing", crashes::replacing),
        story!(on host "crashes_while_losing", crashes::losing),
        story!(on host "crashes_while_exchanging_cas", crashes::exchanging_cas),
        story!(on host "crashes_while_turning_tls_on", crashes::turning_tls_on),
    ];
    all.extend(with_certificates());
    all.extend([
        story!("clusters_grow", growth::tell),
        story!("resize_refused", volumes::refused),
        story!("a_flipped_bit_is_refused", corruption::tell),
        story!(on host "zombie", zombie::tell),
        story!("a_namespace_can_be_deleted", namespace::tell),
        story!("all_pods_deleted_at_once", pods::all_at_once),
        story!(on host "crashes_while_saving", crashes::saving),
        story!(on host "crashes_while_recording", crashes::recording),
        story!(on host "crashes_while_making_users", crashes::making_users),
        story!("volumes_that_are_too_small", space::tell),
        story!("helm_install_upgrade_uninstall", helm::tell),
        story!("from_bitnami", bitnami::tell),
        story!("a_deleted_pod_comes_back_as_itself", pods::one),
        story!("labels_taken_from_a_pod_are_put_back", pods::relabelled),
        story!("a_store_whose_name_has_no_ipv6", names::tell),
        story!(on host "a_save_that_never_ran", snapshots::never_ran),
        story!("volumes_of_an_earlier_cluster", lost::beside_volumes),
        story!("clients_are_served_during_snapshots", traffic::tell),
        story!("deletion_leaves_nothing", deletion::tell),
        story!("snapshots_wait_and_explain", snapshots::tell),
        story!("bad_input_is_refused", input::tell),
        story!("mistakes_are_corrected", mistakes::tell),
    ]);
    all
}

/// Stories about certificates and users.
fn with_certificates() -> Vec<Story> {
    vec![
        story!("tls_auto", tls::auto),
        story!("auth_by_hand_locks_nobody_out", auth::by_a_person),
        story!("auth_on_off", auth::on_and_off),
        story!("ca_rotates_under_load", rotation::under_load),
        story!("plaintext_to_tls_and_back", transport::on_and_off),
        story!("tls_on_and_off_on_every_minor", transport::every_minor),
        story!("an_etcd_user_reads_only_its_prefix", auth::users),
        story!("password_changes_under_load", passwords::under_load),
        story!(on host "kube_apiserver_on_our_etcd", apiserver::tell),
        story!(on host "kube_apiserver_keeps_going_through_a_rotation", apiserver::through_a_rotation),
        story!(on host "tls_own", tls_own::tell),
        story!(on host "tls_cert_manager", tls_managed::tell),
        story!(on host "a_cluster_issuer_signs_allowed_names", tls_managed::cluster_issuer),
        story!("nothing_answers_in_plaintext", tls::refusals),
    ]
}
