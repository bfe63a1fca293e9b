package main

// The host processes and their flags. Configuration files they read are made in
// kubelet.go, containerd.go and pki.go; starting them is supervise.go's.

import (
	"path/filepath"
	"strconv"
)

// The audit log is rotated by the API server itself, which must come before the
// supervisor empties it as it does other logs (logLimit).
const (
	auditMebibytes = 50
	auditOldFiles  = 3
)

func hostProcesses(l layout, s *partSet) []process {
	kube := s.binary(l, "kube", "kube")
	pki := func(name string) string { return l.inState("pki", name) }
	kubeconfig := func(name string) string { return "--kubeconfig=" + l.inState("kubeconfig", name) }
	needsAPI := []string{needAPI}

	return []process{
		{Name: "etcd", Args: []string{
			s.binary(l, s.usualEtcd, "etcd"),
			"--name=control-plane",
			"--data-dir=" + l.inState("etcd"),
			"--listen-client-urls=http://" + etcdClient,
			"--advertise-client-urls=http://" + etcdClient,
			"--listen-peer-urls=http://" + etcdPeer,
			"--initial-advertise-peer-urls=http://" + etcdPeer,
			"--initial-cluster=control-plane=http://" + etcdPeer,
			"--log-level=warn",
			// Tests would otherwise compete for the disk with the API server. A killed
			// process loses nothing by it; a machine that loses its power may.
			"--unsafe-no-fsync",
		}},
		{Name: "containerd", Args: []string{"/usr/bin/containerd", "--config=" + l.containerdConfig()}},
		{Name: "kube-apiserver", Needs: []string{"tcp:" + etcdClient}, Args: []string{kube, "kube-apiserver",
			"--etcd-servers=http://" + etcdClient,
			"--bind-address=" + nodeIP,
			"--advertise-address=" + nodeIP,
			"--secure-port=6443",
			"--service-cluster-ip-range=" + serviceSubnet,
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + pki("service-accounts.key"),
			"--service-account-signing-key-file=" + pki("service-accounts.key"),
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--anonymous-auth=false",
			"--allow-privileged=true",
			"--profiling=false",
			"--client-ca-file=" + pki("ca.crt"),
			"--tls-cert-file=" + pki("apiserver.crt"),
			"--tls-private-key-file=" + pki("apiserver.key"),
			"--kubelet-certificate-authority=" + pki("ca.crt"),
			"--kubelet-client-certificate=" + pki("admin.crt"),
			"--kubelet-client-key=" + pki("admin.key"),
			"--kubelet-preferred-address-types=InternalIP",
			"--audit-policy-file=" + l.auditPolicy(),
			"--audit-log-path=" + l.logFile("audit"),
			"--audit-log-maxsize=" + strconv.Itoa(auditMebibytes),
			"--audit-log-maxbackup=" + strconv.Itoa(auditOldFiles),
			// A line is in the file before its answer is out, also if the next thing is SIGKILL.
			"--audit-log-mode=blocking",
		}},
		{Name: "kube-controller-manager", Needs: needsAPI, Args: []string{kube, "kube-controller-manager",
			kubeconfig("kube-controller-manager"),
			"--authentication-kubeconfig=" + l.inState("kubeconfig", "kube-controller-manager"),
			"--authorization-kubeconfig=" + l.inState("kubeconfig", "kube-controller-manager"),
			"--bind-address=127.0.0.1",
			"--leader-elect=false",
			"--profiling=false",
			"--allocate-node-cidrs=false",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + pki("service-accounts.key"),
			"--root-ca-file=" + pki("ca.crt"),
			"--cluster-signing-cert-file=" + pki("ca.crt"),
			"--cluster-signing-key-file=" + pki("ca.key"),
		}},
		{Name: "kube-scheduler", Needs: needsAPI, Args: []string{kube, "kube-scheduler",
			kubeconfig("kube-scheduler"),
			"--authentication-kubeconfig=" + l.inState("kubeconfig", "kube-scheduler"),
			"--authorization-kubeconfig=" + l.inState("kubeconfig", "kube-scheduler"),
			"--bind-address=127.0.0.1",
			"--leader-elect=false",
			"--profiling=false",
		}},
		{Name: "kubelet", Needs: []string{needAPI, "unix:" + l.containerdSocket()}, Args: []string{kube, "kubelet",
			kubeconfig("kubelet"),
			"--config=" + l.kubeletConfig(),
			"--root-dir=" + l.kubeletRoot(),
			"--cert-dir=" + l.inState("pki", "kubelet"),
			"--hostname-override=" + nodeName,
			"--node-ip=" + nodeIP,
		}},
		{Name: "kube-proxy", Needs: needsAPI, Args: []string{kube, "kube-proxy", "--config=" + l.kubeProxyConfig()}},
		{Name: "csi-driver", Args: []string{s.binary(l, "kube", "csi-driver"),
			"-node=" + nodeName,
			"-dir=" + l.volumeFolder(),
			"-endpoint=" + l.csiSocket(),
			"-registry=" + filepath.Join(l.kubeletRoot(), "plugins_registry"),
		}},
		// The two end whenever the driver does, by design: the supervisor starts all three again.
		{Name: "csi-provisioner", Needs: []string{needAPI, "unix:" + l.csiSocket()},
			Env: []string{"NODE_NAME=" + nodeName},
			Args: []string{s.binary(l, "kube", "csi-provisioner"),
				kubeconfig("csi-provisioner"),
				"--csi-address=" + l.csiSocket(),
				"--default-fstype=ext4",
				"--strict-topology",
				"--retry-interval-start=200ms",
				"--retry-interval-max=5s",
				"--kube-api-qps=50",
				"--kube-api-burst=100",
			}},
		{Name: "csi-resizer", Needs: []string{needAPI, "unix:" + l.csiSocket()},
			Args: []string{s.binary(l, "kube", "csi-resizer"),
				kubeconfig("csi-resizer"),
				"--csi-address=" + l.csiSocket(),
				"--handle-volume-inuse-error=false", // else it reads every Pod
				"--retry-interval-start=200ms",
				"--retry-interval-max=5s",
				"--kube-api-qps=50",
				"--kube-api-burst=100",
			}},
	}
}

func (l layout) volumeFolder() string { return l.inState("volumes") }
func (l layout) auditPolicy() string  { return l.inState("audit-policy.yaml") }
func (l layout) kubeletRoot() string  { return l.inState("kubelet") }
