package main

// `up`: brings the testbed from whatever state it is in to a working one. Each
// step looks at what is there and does only what is missing; that is what makes
// it a no-op on a running testbed and a repair on a broken one.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func up(l layout, s *partSet, v versions) error {
	start := time.Now()
	if err := mayUse(l, s); err != nil { // before minutes are spent on a build
		return err
	}
	if err := installPackages(); err != nil {
		return err
	}
	if err := build(l, s); err != nil {
		return err
	}
	lock, err := lockWhole(l)
	if err != nil {
		return err
	}
	defer lock.release()
	if err := mayUse(l, s); err != nil { // again, for now nobody else changes it
		return err
	}
	if _, taken, err := readOwner(l); err != nil {
		return err
	} else if !taken {
		if err := endStrays(l); err != nil {
			return err
		}
	}
	if err := claim(l, s); err != nil {
		return err
	}
	if err := forgetEarlierBoot(l); err != nil {
		return err
	}
	if err := prepareHost(l); err != nil {
		return err
	}
	processes := hostProcesses(l, s)
	if err := wakeStopped(l, processes); err != nil {
		return err
	}
	if err := startSupervisor(l, processes); err != nil {
		return err
	}
	if err := bringUpCluster(l, s, v); err != nil {
		return err
	}
	say("up after %s; kubeconfig: %s", time.Since(start).Round(time.Second/10), l.kubeconfig())
	return nil
}

// lockWhole gives the lock on a testbed that no `down` has begun to remove.
func lockWhole(l layout) (*lock, error) {
	for {
		lock, err := acquireLock(l.lockFile(), "another up or down")
		if err != nil || !cutShort(l) {
			return lock, err
		}
		say("a `down` was cut short: finishing it")
		err = end(l)
		lock.release()
		if err != nil {
			return nil, err
		}
	}
}

// prepareHost does what has to be there before the first process.
func prepareHost(l layout) error {
	for _, dir := range []string{l.inState("log"), l.inState("pids"), l.volumeFolder(), l.inState("pod-logs"),
		filepath.Join(l.kubeletRoot(), "plugins_registry")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := setUpNetwork(l); err != nil {
		return err
	}
	if err := setUpFirewall(l); err != nil {
		return err
	}
	if err := makeCgroups(); err != nil {
		return err
	}
	if err := makePKI(l); err != nil {
		return err
	}
	if err := writeContainerdConfig(l); err != nil {
		return err
	}
	// A copy: the API server may be started again when the checkout is another, or gone.
	policy, err := os.ReadFile(filepath.Join(l.source, "audit-policy.yaml"))
	if err != nil {
		return err
	}
	if err := writeFile(l.auditPolicy(), policy, 0o644); err != nil {
		return err
	}
	return writeNodeConfig(l)
}

func bringUpCluster(l layout, s *partSet, v versions) error {
	err := waitFor("containerd", l.logFile("containerd"), time.Minute, func() error {
		c, err := net.Dial("unix", l.containerdSocket())
		if err == nil {
			c.Close()
		}
		return err
	})
	if err != nil {
		return err
	}
	// What the cluster itself needs is first in the list; the rest can be loaded
	// while the node gets ready.
	images, own := testbedImages(l, s, v), 2
	if err := loadImages(l, images[:own]); err != nil {
		return err
	}
	rest := make(chan error, 1)
	go func() { rest <- loadImages(l, images[own:]) }()

	api, err := newAPIClient(l)
	if err != nil {
		return err
	}
	if err := waitFor("the API server", l.logFile("kube-apiserver"), 90*time.Second, api.ready); err != nil {
		return err
	}
	if err := applyManifests(l, s, v, api); err != nil {
		return err
	}
	if err := waitFor("the node", l.logFile("kubelet"), 2*time.Minute, func() error { return api.nodeReady(l.startTime("kubelet")) }); err != nil {
		return err
	}
	if err := waitFor("volumes", l.logFile("csi-driver"), time.Minute, api.volumesReady); err != nil {
		return err
	}
	if err := waitFor("the kubelet's Pods", l.logFile("kubelet"), time.Minute, api.kubeletHasPods); err != nil {
		return err
	}
	if err := waitFor("cluster DNS", l.logFile("kubelet"), 2*time.Minute, dnsWorks); err != nil {
		return err
	}
	return <-rest
}

// startTime is when the supervisor wrote a process's pid file.
func (l layout) startTime(process string) time.Time {
	info, err := os.Stat(l.pidFile(process))
	if err != nil {
		return time.Now() // not started yet: nothing the API server knows can be from it
	}
	return info.ModTime()
}

// waitFor asks until the answer is good; the error names the file to read.
func waitFor(what, log string, patience time.Duration, ask func() error) error {
	told := time.Now().Add(5 * time.Second)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := ask()
		switch now := time.Now(); {
		case err == nil:
			return nil
		case now.After(end):
			return fmt.Errorf("%s did not get ready in %s: %w; read %s", what, patience, err, log)
		case now.After(told):
			say("waiting for %s: %v", what, err)
			told = now.Add(10 * time.Second)
		}
	}
}

// applyManifests puts into the cluster what the testbed runs there. The hash of
// what was applied saves the work next time, unless somebody deleted an object.
func applyManifests(l layout, s *partSet, v versions, api *apiClient) error {
	files, err := filepath.Glob(filepath.Join(l.source, "manifests", "cluster", "*.yaml"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	var manifests []byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		manifests = append(append(manifests, "---\n"...), b...)
	}
	manifests = expand(manifests, v)
	hash := digest(manifests)
	if b, err := os.ReadFile(l.inState("applied")); err == nil && string(b) == hash && allThere(api) {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The namespaces' service accounts and the like are made by controllers that
	// may have started a moment ago; kubectl's own errors are worth a second try.
	err = waitFor("the cluster's own objects", l.logFile("kube-controller-manager"), 30*time.Second, func() error {
		cmd := kubectl(l, s, "apply", "--server-side", "--force-conflicts", "-f", "-")
		cmd.Stdin = bytes.NewReader(manifests)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl apply: %w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return writeFile(l.inState("applied"), []byte(hash), 0o644)
}

func allThere(api *apiClient) bool {
	return api.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns", nil) == nil &&
		api.get("/api/v1/namespaces/kube-system/services/kube-dns", nil) == nil &&
		api.get("/apis/storage.k8s.io/v1/storageclasses/standard", nil) == nil
}

// expand puts versions where manifests say ${NAME}.
func expand(manifest []byte, v versions) []byte {
	for name, value := range v {
		manifest = bytes.ReplaceAll(manifest, []byte("${"+name+"}"), []byte(value))
	}
	return manifest
}

func kubectl(l layout, s *partSet, args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary(l, "kube", "kube"), append([]string{"kubectl"}, args...)...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "KUBECONFIG=") }),
		"KUBECONFIG="+l.kubeconfig())
	return cmd
}
