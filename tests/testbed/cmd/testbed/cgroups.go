package main

// The testbed's control groups. Everything the testbed starts, host processes
// and containers alike, is in one tree of its own: so `down` finds all of it, and
// nothing else, whatever has been killed or lost before. Limits inside the tree
// are the kubelet's.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	cgroupRoot = "holdfast-testbed"
	cgroupHost = "host" // for the processes outside of Pods; the kubelet adds "kubepods" beside it
)

// cgroupTrees gives our folder in each hierarchy that is mounted: one with
// cgroup v2, one for each controller with v1. Ours is made directly below the
// mount, for the kubelet's cgroupRoot is meant from there.
func cgroupTrees() ([]string, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	var trees []string
	for _, m := range mounts {
		if (m.fsType == "cgroup" || m.fsType == "cgroup2") && strings.HasPrefix(m.point, "/sys/fs/cgroup") {
			trees = append(trees, filepath.Join(m.point, cgroupRoot))
		}
	}
	if len(trees) == 0 {
		return nil, fmt.Errorf("no control groups are mounted below /sys/fs/cgroup")
	}
	return trees, nil
}

func makeCgroups() error {
	trees, err := cgroupTrees()
	if err != nil {
		return err
	}
	for _, tree := range trees {
		for _, dir := range []string{tree, filepath.Join(tree, cgroupHost)} {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if err := adoptSettings(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// adoptSettings makes a new group usable: a v1 cpuset starts empty and takes no
// process until it has the parent's CPUs, and v2 hands controllers down only on request.
func adoptSettings(dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		file, parent := filepath.Join(dir, name), filepath.Join(filepath.Dir(dir), name)
		have, err := os.ReadFile(file)
		inherited, err2 := os.ReadFile(parent)
		if err != nil || err2 != nil || strings.TrimSpace(string(have)) != "" {
			continue
		}
		if err := os.WriteFile(file, inherited, 0o644); err != nil {
			return err
		}
	}
	controllers, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "cgroup.controllers"))
	if err != nil {
		return nil // v1
	}
	for _, c := range strings.Fields(string(controllers)) {
		// Best effort: some controllers cannot be handed down, and the kubelet says which it misses.
		os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"), []byte("+"+c), 0o644)
	}
	return nil
}

// enterCgroups moves the calling process, and with it all it will start, into our tree.
func enterCgroups() error {
	trees, err := cgroupTrees()
	if err != nil {
		return err
	}
	for _, tree := range trees {
		if err := os.WriteFile(filepath.Join(tree, cgroupHost, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// cgroupFolders lists a tree's folders, parents before children.
func cgroupFolders(tree string) []string {
	var dirs []string
	filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // groups come and go while we look
	})
	return dirs
}

// cgroupPids gives every process in our tree, host processes or Pods' only.
func cgroupPids(hostOnly bool) []int {
	trees, _ := cgroupTrees()
	var pids []int
	for _, tree := range trees {
		if hostOnly {
			tree = filepath.Join(tree, cgroupHost)
		}
		for _, dir := range cgroupFolders(tree) {
			b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, f := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 1 && pid != os.Getpid() {
					pids = append(pids, pid)
				}
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// findByArgs finds, among these, the process that was started with these arguments.
func findByArgs(pids []int, args []string) (procID, bool) {
	want := strings.Join(args, "\x00") + "\x00"
	for _, pid := range pids {
		id, err := identify(pid) // before its arguments: if the pid changes hands in between, id is not alive
		if err != nil {
			continue
		}
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && string(b) == want && id.alive() {
			return id, true
		}
	}
	return procID{}, false
}

// thaw lets a frozen group's processes run, for until then they do not even end.
// A group that is not frozen, or has no freezer, stays as it is.
func thaw(dir string) {
	frozen := func(file string) bool {
		b, err := os.ReadFile(filepath.Join(dir, file))
		return err == nil && strings.TrimSpace(string(b)) == "1"
	}
	if frozen("freezer.self_freezing") { // v1
		os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0o644)
	}
	if frozen("cgroup.freeze") { // v2
		os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0o644)
	}
}

// killCgroups ends everything in the tree and removes the tree.
func killCgroups() error {
	trees, err := cgroupTrees()
	if err != nil {
		return err
	}
	for _, tree := range trees {
		for _, dir := range cgroupFolders(tree) {
			thaw(dir)
		}
	}
	end := time.Now().Add(30 * time.Second)
	for pids := cgroupPids(false); len(pids) > 0; pids = cgroupPids(false) {
		if time.Now().After(end) {
			return fmt.Errorf("processes %v are still there 30 s after SIGKILL", pids)
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, tree := range trees {
		dirs := cgroupFolders(tree)
		slices.Reverse(dirs)
		for _, dir := range dirs {
			// A group stays busy for a moment after its last process.
			for err = os.Remove(dir); errors.Is(err, syscall.EBUSY) && time.Now().Before(end); err = os.Remove(dir) {
				time.Sleep(10 * time.Millisecond)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
