package main

// containerd: its configuration and the few calls to it. Which images it holds
// is images.go's; when it runs is supervise.go's.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func (l layout) containerdConfig() string { return l.inState("containerd.toml") }

func writeContainerdConfig(l layout) error {
	return writeFile(l.containerdConfig(), fmt.Appendf(nil, `version = 2
root = %[1]q
state = %[2]q

[grpc]
  address = %[3]q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[4]q
  # Without CAP_SYS_RESOURCE, which small machines lack, runc may not lower a
  # process's oom_score_adj, and every sandbox would fail.
  restrict_oom_score_adj = true
  # Keeps the network namespaces' mounts out of /run/netns, which others use.
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %[5]q

  # runc and not crun, which refuses hybrid control groups.
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = %[6]q
`, l.inState("containerd"), l.inRun("containerd"), l.containerdSocket(), pauseImage, l.cniFolder(), l.inRun("runc")), 0o644)
}

func (l layout) ctr(args ...string) *exec.Cmd {
	return exec.Command("ctr", append([]string{"--address", l.containerdSocket(), "--namespace", "k8s.io"}, args...)...)
}

// imageDigests gives the digest of every image that containerd holds by name.
func imageDigests(l layout) (map[string]string, error) {
	out, err := l.ctr("images", "list").Output()
	if err != nil {
		return nil, fmt.Errorf("listing containerd's images: %w; read %s", err, l.logFile("containerd"))
	}
	digests := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 2 && strings.HasPrefix(f[2], "sha256:") {
			digests[f[0]] = f[2]
		}
	}
	return digests, nil
}

// importImage reads an image archive, of Docker's or the OCI's form.
func importImage(l layout, archive io.Reader) (string, error) {
	cmd := l.ctr("images", "import", "-")
	cmd.Stdin = archive
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("importing an image: %w: %s; read %s", err, out, l.logFile("containerd"))
	}
	return string(out), nil
}

// removeShimSockets removes the sockets of containers' shims that are gone. They
// are in a folder that all of a machine's containerds share, and stay there when a
// shim is killed; containerd forgets their names when it clears up after it. So
// those go that nobody listens on, whosever they were: nobody can use them.
func removeShimSockets(l layout) error {
	var dead []string
	entries, _ := os.ReadDir(l.shims)
	for _, e := range entries {
		if path := filepath.Join(l.shims, e.Name()); e.Type() == fs.ModeSocket && nobodyListens(path) {
			dead = append(dead, path)
		}
	}
	if len(dead) > 0 { // asked twice, for the maker of a new one may be about to listen
		time.Sleep(50 * time.Millisecond)
		dead = slices.DeleteFunc(dead, func(s string) bool { return !nobodyListens(s) })
	}
	for _, s := range append(shimSockets(l), dead...) {
		if err := os.Remove(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func nobodyListens(socket string) bool {
	c, err := net.Dial("unix", socket)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// shimSockets lists the sockets of the containers that containerd has. Only when
// their shims are gone may they be removed.
func shimSockets(l layout) []string {
	var sockets []string
	bundles := l.inRun("containerd", "io.containerd.runtime.v2.task", "k8s.io")
	entries, _ := os.ReadDir(bundles)
	for _, e := range entries {
		b, err := os.ReadFile(bundles + "/" + e.Name() + "/address")
		if path, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "unix://"); err == nil && ok {
			sockets = append(sockets, path)
		}
	}
	return sockets
}
