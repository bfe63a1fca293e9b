package main

// Notices that the machine was started anew. Then everything that was true only
// of the running kernel (pids, sockets, address leases, sandboxes) is forgotten;
// what is on disk (the cluster's state, images, volumes) stays.

import (
	"os"
	"path/filepath"
	"strings"
)

func forgetEarlierBoot(l layout) error {
	now, err := bootID()
	if err != nil {
		return err
	}
	before, err := os.ReadFile(l.bootFile())
	if err == nil && strings.TrimSpace(string(before)) == now {
		return nil
	}
	if err == nil {
		say("the machine was restarted since: starting from what is on disk")
	}
	if err := forgetKernel(l); err != nil {
		return err
	}
	return writeFile(l.bootFile(), []byte(now+"\n"), 0o644)
}

func (l layout) bootFile() string { return l.inState("boot") }

// sameBoot says whether pids that were noted in the state folder are this kernel's.
func sameBoot(l layout) bool {
	now, err1 := bootID()
	before, err2 := os.ReadFile(l.bootFile())
	return err1 == nil && err2 == nil && strings.TrimSpace(string(before)) == now
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// forgetKernel removes what is only true of a kernel that is gone.
func forgetKernel(l layout) error {
	// Nothing is mounted after a restart. Should we be wrong about that, removing
	// must not reach into it.
	if err := unmountBelow(l.run); err != nil {
		return err
	}
	// /run is not emptied by a restart on every machine. The sockets of shims come
	// first, for their names are in what is removed with the rest.
	if err := removeShimSockets(l); err != nil {
		return err
	}
	entries, err := os.ReadDir(l.run)
	if err != nil {
		return err
	}
	gone := []string{
		l.inState("pids"),
		// Address leases outlive their Pods here, and would fill the subnet over time.
		l.ipamFolder(),
		// Which CPUs and memory Pods had. The kubelet refuses to start with a broken
		// one, and a loss of power may break it.
		filepath.Join(l.kubeletRoot(), "cpu_manager_state"),
		filepath.Join(l.kubeletRoot(), "memory_manager_state"),
		// The control plane's etcd, which does not sync, may have lost what was applied.
		l.inState("applied"),
	}
	for _, e := range entries {
		if path := l.inRun(e.Name()); path != l.lockFile() && path != l.stateInRun() {
			gone = append(gone, path)
		}
	}
	for _, path := range gone {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return removeCNIResults(l)
}
