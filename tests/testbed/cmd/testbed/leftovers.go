package main

// Things that the testbed's components put outside its own folders, because
// upstream gives no choice: notes which folders were there before, and removes
// what is ours, and only that, at the end.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// sharedFolders are made by the kubelet, by the CNI library and by containerd,
// wherever their own state is.
var sharedFolders = []string{
	"/run/containerd",
	"/var/lib/cni",
	"/var/lib/kubelet",
	"/var/log/containers",
	"/var/log/pods",
	"/usr/libexec/kubernetes",
}

// recordFolders notes which of them are not there yet: those are ours to remove.
func recordFolders(l layout) error {
	var absent []string
	for _, f := range sharedFolders {
		if _, err := os.Lstat(f); errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, f)
		}
	}
	return writeFile(l.inState("folders-made"), []byte(strings.Join(absent, "\n")), 0o644)
}

func removeLeftovers(l layout) error {
	// Links to the logs of Pods.
	links, _ := filepath.Glob("/var/log/containers/*")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && below(target, l.inState("pod-logs")) {
			if err := os.Remove(link); err != nil {
				return err
			}
		}
	}
	b, err := os.ReadFile(l.inState("folders-made"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, folder := range strings.Fields(string(b)) {
		if folder == "/var/lib/kubelet" { // the device manager's, made anew at each start
			for _, f := range []string{"kubelet.sock", "kubelet_internal_checkpoint"} {
				if err := os.Remove(filepath.Join(folder, "device-plugins", f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
		if err := removeEmpty(folder); err != nil {
			return err
		}
	}
	return nil
}

// removeEmpty removes a folder with its empty subfolders, and leaves those in
// which somebody else has put something.
func removeEmpty(folder string) error {
	var dirs []string
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(dirs) {
		if err := os.Remove(d); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
