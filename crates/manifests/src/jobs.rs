//! Samples for people to edit: Jobs that save without the operator, and `CronJob`s. `holdfast jobs` prints the files of `jobs/`
//! with another image.
//!
//! Decides nothing: people write the files by hand, and `tests/suite/samples.rs` checks that the binary accepts each file.

use super::IMAGE;

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
    /// A `CronJob` that gives free space of any etcd's databases back without the operator.
    CronjobDefrag,
    /// A `CronJob` that restores the newest snapshot of any etcd in a drill without the operator.
    CronjobDrill,
    /// A `CronJob` that merges the newest snapshot and the log of any etcd without the operator.
    CronjobCompact,
    /// A Deployment that records the log of any etcd without the operator.
    DeploymentLog,
}

impl Sample {
    /// Returns the file, with the default image.
    const fn text(self) -> &'static str {
        match self {
            Self::SaveToS3 => include_str!("../../../jobs/save-to-s3.yaml"),
            Self::SaveToAzure => include_str!("../../../jobs/save-to-azure.yaml"),
            Self::SaveToGcs => include_str!("../../../jobs/save-to-gcs.yaml"),
            Self::SaveToPvc => include_str!("../../../jobs/save-to-pvc.yaml"),
            Self::CronjobSnapshot => include_str!("../../../jobs/cronjob-snapshot.yaml"),
            Self::CronjobSave => include_str!("../../../jobs/cronjob-save.yaml"),
            Self::CronjobDefrag => include_str!("../../../jobs/cronjob-defrag.yaml"),
            Self::CronjobDrill => include_str!("../../../jobs/cronjob-drill.yaml"),
            Self::CronjobCompact => include_str!("../../../jobs/cronjob-compact.yaml"),
            Self::DeploymentLog => include_str!("../../../jobs/deployment-log.yaml"),
        }
    }
}

/// Returns one sample, or all samples.
pub fn samples(only: Option<Sample>, image: &str) -> String {
    let wanted = only.map_or_else(|| <Sample as clap::ValueEnum>::value_variants().to_vec(), |sample| vec![sample]);
    let text = wanted.into_iter().map(Sample::text).collect::<Vec<_>>().join("---\n");
    text.replace(&format!("image: {IMAGE}\n"), &format!("image: {image}\n"))
}
