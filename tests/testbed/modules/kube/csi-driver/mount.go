package main

// Mounting through loop devices, and reading from the kernel what is mounted: the
// driver itself remembers nothing.

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// mountFile mounts the file system in a file. mount(8) sets the loop device up so
// that it goes away with its last mount, whatever has become of us by then.
// A file system that lags behind its file grows before.
func mountFile(ctx context.Context, file, kind, target string, flags []string) error {
	options := append([]string{"noatime"}, flags...)
	what := loopDevice(file) // there already, for another Pod
	if what == "" {
		if err := growUnmounted(ctx, file); err != nil {
			return err
		}
		options, what = append(options, "loop"), file
	}
	return run(ctx, "mount", "-t", kind, "-o", strings.Join(options, ","), what, target)
}

// loopDevice gives the loop device that a file is attached to, or "".
func loopDevice(file string) string {
	names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && strings.TrimSuffix(string(b), "\n") == file {
			return "/dev/" + strings.Split(n, "/")[3]
		}
	}
	return ""
}

// mountedAt gives what is mounted on top at exactly this path, or "".
func mountedAt(path string) (string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	return topMount(string(table), path), err
}

// The kernel writes blanks and backslashes in paths as octal numbers.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// topMount reads mountinfo: "ID PARENT DEV ROOT POINT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS".
// Of several mounts at one path the last is on top.
func topMount(table, path string) (source string) {
	for line := range strings.Lines(table) {
		head, tail, _ := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if len(h) > 4 && len(t) > 1 && unescape.Replace(h[4]) == filepath.Clean(path) {
			source = unescape.Replace(t[1])
		}
	}
	return source
}
