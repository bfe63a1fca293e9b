//! Samples for people to edit: the Jobs the operator starts, for use without it, and `CronJob`s.
//!
//! Decides the names in a sample and the words above it. A Job itself comes from the same builder that the operator
//! uses, so what is read here is what runs there, but for what only the operator knows: owner, UIDs, cluster ID. The
//! `CronJob`s stand in `cronjob.rs` and `recurring.rs`.

use super::sample::{To, request};
use crate::plan::build::job::{self, AgentJob, Work};

/// The samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sample {
    /// A Job that saves to an S3 bucket.
    SaveToS3,
    /// A Job that saves to a container of Azure Blob Storage.
    SaveToAzure,
    /// A Job that saves to a bucket of Google Cloud Storage.
    SaveToGcs,
    /// A Job that saves to a volume of the namespace.
    SaveToPvc,
    /// A `CronJob` that has the operator save, with the rights it needs.
    CronjobSnapshot,
    /// A `CronJob` that saves any etcd without the operator.
    CronjobSave,
    /// The `CronJob` of an `EtcdSnapshotSchedule`, as the operator applies it.
    CronjobOfSchedule,
}

impl Sample {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::SaveToS3,
        Self::SaveToAzure,
        Self::SaveToGcs,
        Self::SaveToPvc,
        Self::CronjobSnapshot,
        Self::CronjobSave,
        Self::CronjobOfSchedule,
    ];

    /// The file of `jobs/` that holds it.
    pub const fn file(self) -> &'static str {
        match self {
            Self::SaveToS3 => "save-to-s3.yaml",
            Self::SaveToAzure => "save-to-azure.yaml",
            Self::SaveToGcs => "save-to-gcs.yaml",
            Self::SaveToPvc => "save-to-pvc.yaml",
            Self::CronjobSnapshot => "cronjob-snapshot.yaml",
            Self::CronjobSave => "cronjob-save.yaml",
            Self::CronjobOfSchedule => "cronjob-of-schedule.yaml",
        }
    }

    /// The sample as a file, with what to change on top.
    pub fn text(self, image: &str) -> Result<String, serde_saphyr::ser::Error> {
        match self {
            Self::SaveToS3 => saving(To::S3, self.file(), image),
            Self::SaveToAzure => saving(To::Azure, self.file(), image),
            Self::SaveToGcs => saving(To::Gcs, self.file(), image),
            Self::SaveToPvc => saving(To::Pvc, self.file(), image),
            Self::CronjobSnapshot => super::cronjob::text(self.file(), image),
            Self::CronjobSave => super::recurring::without_operator(self.file(), image),
            Self::CronjobOfSchedule => super::recurring::of_schedule(image),
        }
    }
}

/// One sample, or all.
pub fn samples(only: Option<Sample>, image: &str) -> Result<String, serde_saphyr::ser::Error> {
    let wanted = only.map_or_else(|| Sample::ALL.to_vec(), |sample| vec![sample]);
    let all: Result<Vec<_>, _> = wanted.into_iter().map(|sample| sample.text(image)).collect();
    Ok(all?.join("---\n"))
}

fn saving(to: To, file: &str, image: &str) -> Result<String, serde_saphyr::ser::Error> {
    let work = Work::Save(request());
    let job = job::job(&AgentJob::of("my-etcd-save-1".to_owned(), work, to.destination(), image.to_owned()));
    Ok(format!("{}{}", heading(to, file), super::yaml(&[serde_json::json!(job)])?))
}

fn heading(to: To, file: &str) -> String {
    format!(
        "\
# Saves one snapshot of any etcd, without the operator: kubectl create -n NAMESPACE -f jobs/{file}
#
# Change, besides names and the image:
#   --endpoints     one line for each member; the agent picks a healthy follower
#                   (https://: mount a Secret with ca.crt, and tls.crt and tls.key if etcd asks for them, and add --tls-dir=FOLDER;
#                   users: one with username and password, and --auth-dir=FOLDER)
#   --namespace, --cluster   under which the snapshot is filed; free to choose, always the same for one etcd
{to_change}
#
# The report is the container's termination message (kubectl get pod -o yaml), the truth is manifest.json in the store.
# A Job that ended is not run again: give the next one another name. Nothing stored is ever overwritten.
",
        to_change = to.to_change(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_free_of_what_only_the_operator_knows() {
        let alone = [Sample::SaveToS3, Sample::SaveToAzure, Sample::SaveToGcs, Sample::SaveToPvc, Sample::CronjobSave];
        for sample in alone {
            let text = sample.text("r/h:1").unwrap();
            for word in ["ownerReferences", "--owner-uid", "--cluster-uid", "--expect-cluster-id", "resourceVersion"] {
                assert!(!text.contains(word), "{}: {word}", sample.file());
            }
            assert!(text.contains("image: r/h:1\n"), "{text}");
            assert!(text.contains(sample.file()));
            let job: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(job["metadata"].get("namespace"), None, "it goes where it is created");
        }
    }
}
