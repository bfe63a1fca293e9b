package main

// Where everything is: the checkout, the cache of built parts, the state folder
// of the running testbed, the folder for its sockets, and its fixed names and
// addresses. It decides paths only; who may use them is owner.go's.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	nodeName    = "testbed-1"
	clusterName = "holdfast-testbed"
	bridgeName  = "hftb0"
	bridgeMAC   = "02:68:66:74:62:01"
	// The node's address is the bridge's, not the machine's: it is the same after
	// a reboot, and nothing outside the machine can reach what is bound to it.
	nodeIP        = "10.88.77.1"
	podSubnet     = "10.88.77.0/24"
	serviceSubnet = "10.96.0.0/16"
	apiServiceIP  = "10.96.0.1"
	dnsServiceIP  = "10.96.0.10"
	apiServer     = nodeIP + ":6443"
	etcdClient    = "127.0.0.1:21379"
	etcdPeer      = "127.0.0.1:21380"

	// Sockets have paths of at most 107 bytes, which a state folder's path can
	// exceed: they are in this short one. Only one testbed fits on a machine
	// anyway, because of the bridge's name and address.
	runFolder = "/run/holdfast-testbed"
)

// layout is the set of folders one invocation works with.
type layout struct {
	source string // tests/testbed of the checkout this was started from
	cache  string // built parts, shared by all checkouts on the machine
	state  string // everything the running testbed keeps
	run    string // its sockets

	cniResults string // what CNI plugins answered: the CNI library keeps that here for all its users
	shims      string // sockets of containers' shims, of all containerds on the machine
}

func newLayout() (layout, error) {
	source := os.Getenv("HOLDFAST_TESTBED_DIR")
	if source == "" {
		return layout{}, fmt.Errorf("start this through tests/testbed/testbed, which says where the checkout is")
	}
	cache := os.Getenv("HOLDFAST_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return layout{}, fmt.Errorf("no cache folder: %w (set HOLDFAST_CACHE)", err)
		}
		cache = filepath.Join(home, ".cache", "holdfast")
	}
	state := os.Getenv("HOLDFAST_STATE")
	if state == "" {
		state = "/var/lib/holdfast-testbed"
	}
	l := layout{source: source, cache: filepath.Join(cache, "testbed"), state: filepath.Clean(state), run: runFolder,
		cniResults: "/var/lib/cni/results", shims: "/run/containerd/s"}
	if !filepath.IsAbs(l.state) || !filepath.IsAbs(l.cache) {
		return l, fmt.Errorf("HOLDFAST_STATE and HOLDFAST_CACHE must be absolute paths")
	}
	real, err := realPath(l.state)
	if err != nil {
		return l, err
	}
	l.state = real
	if len(l.state) > 50 {
		return l, fmt.Errorf("HOLDFAST_STATE is longer than 50 bytes, too long for the sockets the kubelet makes below it")
	}
	return l, nil
}

// realPath follows the symbolic links of a path whose end need not be there yet.
// The kernel names mounts and loop devices' files by their real paths, and we
// have to know ours among them.
func realPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s is a symbolic link to nothing", path)
	}
	parent, err := realPath(filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}

func (l layout) inState(elem ...string) string {
	return filepath.Join(append([]string{l.state}, elem...)...)
}

func (l layout) inRun(elem ...string) string {
	return filepath.Join(append([]string{l.run}, elem...)...)
}

func (l layout) logFile(process string) string { return l.inState("log", process+".log") }
func (l layout) kubeconfig() string            { return l.inState("admin.kubeconfig") }
func (l layout) containerdSocket() string      { return l.inRun("containerd.sock") }
func (l layout) csiSocket() string             { return l.inRun("csi.sock") }
