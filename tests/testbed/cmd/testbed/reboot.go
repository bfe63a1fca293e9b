package main

// Notices that the machine was started anew. Then everything that was true only
// of the running kernel (pids, sockets, address leases, sandboxes) is forgotten;
// what is on disk (the cluster's state, images, volumes) stays.

import (
	"os"
	"strings"
)

func forgetEarlierBoot(l layout) error {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	now := strings.TrimSpace(string(b))
	before, err := os.ReadFile(l.inState("boot"))
	if err == nil && strings.TrimSpace(string(before)) == now {
		return nil
	}
	if err == nil {
		say("the machine was restarted since: starting from what is on disk")
	}
	// Address leases outlive their Pods here, and would fill the subnet over time.
	for _, dir := range []string{l.inState("pids"), l.ipamFolder()} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	// /run is not emptied by a restart on every machine.
	entries, err := os.ReadDir(l.run)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path := l.inRun(e.Name()); path != l.lockFile() && path != l.stateInRun() {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	if err := removeCNIResults(); err != nil {
		return err
	}
	return writeFile(l.inState("boot"), []byte(now+"\n"), 0o644)
}
