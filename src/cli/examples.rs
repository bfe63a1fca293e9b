//! Examples below the help of the agent's verbs. Each line of a command fits a terminal of 80 columns: a shell would run a
//! broken line as another command.

/// Saves by hand, from any etcd.
pub(super) const SAVE_EXAMPLES: &str = "\
Examples:
  An etcd without TLS, to a folder:
    holdfast agent save --endpoints http://127.0.0.1:2379 \\
      --store file:///var/backups --namespace site-a --cluster orders

  The etcd of a kubeadm control plane, to a bucket of AWS (keys or role from the environment):
    holdfast agent save --endpoints https://127.0.0.1:2379 \\
      --cacert /etc/kubernetes/pki/etcd/ca.crt \\
      --cert /etc/kubernetes/pki/etcd/healthcheck-client.crt \\
      --key /etc/kubernetes/pki/etcd/healthcheck-client.key \\
      --store s3://BUCKET/etcd --s3-region eu-central-1 \\
      --namespace kube-system --cluster etcd

  What a save would take, without a store:
    holdfast agent save --endpoints http://127.0.0.1:2379 --namespace site-a \\
      --cluster orders --dry-run

  Three members with authentication, to your own S3 server:
    holdfast agent save --endpoints a:2379,b:2379,c:2379 \\
      --cacert ca.crt --user root --password-file root.password \\
      --store s3://BUCKET --s3-endpoint https://s3.example.com \\
      --s3-force-path-style --credentials-dir keys --namespace site-a \\
      --cluster orders";

/// Verifies at rising cost.
pub(super) const VERIFY_EXAMPLES: &str = "\
Examples:
  A local file:
    holdfast agent verify snapshot.db

  A stored snapshot, read once: hashes, structure, HashKV:
    holdfast agent verify --store s3://BUCKET \\
      --key NAMESPACE/CLUSTER/LINEAGE/FOLDER

  An encrypted snapshot with a drill, which restores the snapshot, starts an etcd and queries that etcd:
    holdfast agent verify --store s3://BUCKET \\
      --key NAMESPACE/CLUSTER/LINEAGE/FOLDER --identity key.txt --level drill \\
      --bin-dir /usr/local/bin";

/// Compares the members of a control plane.
pub(super) const COMPARE_EXAMPLES: &str = "\
Examples:
  The three members of a kubeadm control plane, before an upgrade to etcd 3.6:
    holdfast agent compare-members \\
      --endpoints 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379 \\
      --cacert /etc/kubernetes/pki/etcd/ca.crt \\
      --cert /etc/kubernetes/pki/etcd/healthcheck-client.crt \\
      --key /etc/kubernetes/pki/etcd/healthcheck-client.key

  For a script: code 0 where the lists agree, code 82 where they differ:
    holdfast agent compare-members --endpoints a:2379,b:2379,c:2379 --json";

/// Defragments the members of a control plane.
pub(super) const DEFRAG_EXAMPLES: &str = "\
Examples:
  The plan for the three members of a kubeadm control plane:
    holdfast agent defrag --dry-run \\
      --endpoints 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379 \\
      --cacert /etc/kubernetes/pki/etcd/ca.crt \\
      --cert /etc/kubernetes/pki/etcd/healthcheck-client.crt \\
      --key /etc/kubernetes/pki/etcd/healthcheck-client.key

  Every member with a fifth of its file free, the leader after its leadership has moved:
    holdfast agent defrag --endpoints a:2379,b:2379,c:2379 \\
      --free-percent 20 --free-mib 0 --move-leader";

/// Shows contents, from all keys to a single value.
pub(super) const CONTENTS_EXAMPLES: &str = "\
Examples:
  The prefixes that take the most space in a local file:
    holdfast agent contents snapshot.db

  The resources of a Kubernetes cluster, in an encrypted stored snapshot:
    holdfast agent contents --store s3://BUCKET \\
      --key NAMESPACE/CLUSTER/LINEAGE/FOLDER --identity key.txt \\
      --prefix /registry/ --top 50

  One value, unchanged:
    holdfast agent contents snapshot.db --value /registry/namespaces/default";

/// Copies one snapshot, or all snapshots.
pub(super) const COPY_EXAMPLES: &str = "\
Examples:
  One snapshot, from a folder to a bucket:
    holdfast agent copy --store file:///var/backups --to-store s3://BUCKET \\
      --key NAMESPACE/CLUSTER/LINEAGE/FOLDER

  All snapshots of a cluster, between two buckets with separate credentials:
    holdfast agent copy --all --namespace NAMESPACE --cluster CLUSTER \\
      --store s3://BUCKET --credentials-dir keys --to-store s3://OTHER \\
      --to-s3-endpoint https://s3.example.com --to-credentials-dir other-keys";

/// Shows the effect of a policy, without a change.
pub(super) const PRUNE_EXAMPLES: &str = "\
Example:
  Show what a policy keeps and why, and change nothing:
    holdfast agent prune --store s3://BUCKET --credentials-dir keys \\
      --namespace NAMESPACE --cluster CLUSTER --cluster-uid UID \\
      --schedule-uid UID --keep-last 6 --keep-within 48h --keep-daily 7 \\
      --keep-weekly 5 --time-zone Europe/Berlin --dry-run";

/// Records, and shows the record.
pub(super) const LOG_EXAMPLES: &str = "\
Examples:
  The etcd of a kubeadm control plane, to a bucket, beside its snapshots:
    holdfast agent log --endpoints https://127.0.0.1:2379 \\
      --cacert /etc/kubernetes/pki/etcd/ca.crt \\
      --cert /etc/kubernetes/pki/etcd/healthcheck-client.crt \\
      --key /etc/kubernetes/pki/etcd/healthcheck-client.key \\
      --store s3://BUCKET/etcd --namespace kube-system --cluster etcd \\
      --spool-dir /var/spool/holdfast

  What the log covers:
    holdfast agent log status --store s3://BUCKET/etcd \\
      --namespace kube-system --cluster etcd";

pub(super) const COMPACT_EXAMPLES: &str = "\
Examples:
  The cluster of a log by hand, in a folder with room for its database:
    holdfast agent compact --store s3://BUCKET/etcd \\
      --namespace kube-system --cluster etcd --scratch /var/tmp";

/// Probes with one Secret, or with two.
pub(super) const PROBE_EXAMPLES: &str = "\
Examples:
  A bucket, with credentials that have all rights below the prefix:
    holdfast agent probe --store s3://BUCKET/etcd --credentials-dir keys

  A bucket, with separate credentials to write and to read:
    holdfast agent probe --store s3://BUCKET/etcd \\
      --credentials-dir write-keys --read-credentials-dir read-keys";

/// Renders a restore after the loss of everything but the store.
pub(super) const RENDER_EXAMPLES: &str = "\
Example:
  holdfast agent render-restore --store s3://BUCKET \\
    --key NAMESPACE/CLUSTER/LINEAGE/FOLDER -n prod > cluster.yaml
  kubectl apply -f cluster.yaml";

/// Restores without an operator.
pub(super) const RESTORE_EXAMPLES: &str = "\
Examples:
  A cluster of one member, from a bucket into an empty folder. etcdutl has to be of the etcd version that will run. The
  cluster token is free text, another one for each restored cluster:
    holdfast agent restore --store s3://BUCKET --credentials-dir keys \\
      --key NAMESPACE/CLUSTER/LINEAGE/FOLDER --volume /var/lib/etcd \\
      --etcdutl /usr/local/bin/etcdutl --member-name m1 \\
      --initial-cluster m1=http://127.0.0.1:2380 --cluster-token restored-1

  Then start etcd on the restored data:
    etcd --name m1 --data-dir /var/lib/etcd/data

  The state of a second, from the newest snapshot before it and the log of its lineage:
    holdfast agent restore --store s3://BUCKET --credentials-dir keys \\
      --key NAMESPACE/CLUSTER/LINEAGE --at-time 2026-11-28T10:42:07Z \\
      --volume /var/lib/etcd --member-name m1 \\
      --initial-cluster m1=http://127.0.0.1:2380 --cluster-token restored-1

  An encrypted snapshot also needs --age-identity-dir, a folder of identity files.

  From the volume of a stopped member, after a majority of its cluster is lost for good:
    holdfast agent restore --from-volume /mnt/survivor --volume /var/lib/etcd \\
      --member-name m1 --initial-cluster m1=http://127.0.0.1:2380 \\
      --cluster-token returned-1";

/// Surveys every volume that is left.
pub(super) const SURVEY_EXAMPLES: &str = "\
Examples:
  The volumes that are left of a cluster. Of one cluster ID, the member with the highest term and index of the last entry has the most:
    holdfast agent survey --volume /mnt/m1
    holdfast agent survey --volume /mnt/m2

  The same for programs:
    holdfast agent survey --volume /mnt/m1 --json";

/// Undeletes: first the difference, then the keys.
pub(super) const UNDELETE_EXAMPLES: &str = "\
Examples:
  What a prefix lacks since a second, from the log of a lineage; nothing is written:
    holdfast agent undelete --endpoints http://127.0.0.1:2379 \\
      --store s3://BUCKET/etcd --from NAMESPACE/CLUSTER/LINEAGE \\
      --at-time 2026-11-28T10:42:07Z --prefix /orders/

  Put the missing keys back, at most 500 in a second:
    holdfast agent undelete --endpoints http://127.0.0.1:2379 \\
      --store s3://BUCKET/etcd --from NAMESPACE/CLUSTER/LINEAGE \\
      --at-time 2026-11-28T10:42:07Z --prefix /orders/ --apply --rate 500

  The ConfigMaps of a namespace of a kubeadm control plane, from one snapshot:
    holdfast agent undelete --endpoints https://127.0.0.1:2379 \\
      --cacert /etc/kubernetes/pki/etcd/ca.crt \\
      --cert /etc/kubernetes/pki/etcd/healthcheck-client.crt \\
      --key /etc/kubernetes/pki/etcd/healthcheck-client.key \\
      --store s3://BUCKET/etcd --from NAMESPACE/CLUSTER/LINEAGE/FOLDER \\
      --kind configmaps --namespace prod --apply";
