package main

// Configuration of the two programs that run on a node: kubelet and kube-proxy.
// It decides what differs from upstream's defaults, and says why.

import "fmt"

func (l layout) kubeletConfig() string   { return l.inState("kubelet.yaml") }
func (l layout) kubeProxyConfig() string { return l.inState("kube-proxy.yaml") }

func writeNodeConfig(l layout) error {
	// Pods get only the cluster's search domains: the machine's own would make
	// names resolve, or wait, differently from one machine to the next.
	if err := writeFile(l.inState("resolv.conf"), []byte("nameserver "+dnsServiceIP+"\n"), 0o644); err != nil {
		return err
	}
	err := writeFile(l.kubeletConfig(), fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
healthzBindAddress: 127.0.0.1
readOnlyPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[2]s/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: %[2]s/pki/kubelet.crt
tlsPrivateKeyFile: %[2]s/pki/kubelet.key
containerRuntimeEndpoint: unix://%[3]s
# All Pods are below the testbed's own control group, where "down" finds them.
cgroupRoot: /%[4]s
cgroupDriver: cgroupfs
cgroupsPerQOS: true
enforceNodeAllocatable: []
# Small machines still have cgroup v1, and some have swap.
failCgroupV1: false
failSwapOn: false
# They also lack CAP_SYS_RESOURCE, without which the score cannot be lowered.
oomScoreAdj: 0
clusterDNS: [%[5]s]
clusterDomain: cluster.local
resolvConf: %[2]s/resolv.conf
maxPods: 200
podLogsDir: %[2]s/pod-logs
volumePluginDir: %[2]s/kubelet/volume-plugins
# The images come from here and from nowhere else: none may be collected.
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 200Mi, nodefs.available: 2%%, imagefs.available: 2%%}
# Needs file system figures that overlay mounts on some machines do not give.
localStorageCapacityIsolation: false
`, nodeIP, l.state, l.containerdSocket(), cgroupRoot, dnsServiceIP), 0o644)
	if err != nil {
		return err
	}
	return writeFile(l.kubeProxyConfig(), fmt.Appendf(nil, `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: %[1]s
clientConnection: {kubeconfig: %[2]s/kubeconfig/kube-proxy}
clusterCIDR: %[3]s
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
# NodePorts on the bridge's address only, not on the machine's.
nodePortAddresses: [%[3]s]
# Tests resolve and dial what was made a moment ago.
iptables: {minSyncPeriod: 100ms}
# The machine's connection tracking limits are not ours to change.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, nodeName, l.state, podSubnet), 0o644)
}
