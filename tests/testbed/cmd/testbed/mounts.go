package main

// Mounts and loop devices: reads the kernel's tables and undoes what is mounted
// below a folder. Which folders those are is the caller's to say.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type mount struct{ point, fsType, source string }

func readMounts() ([]mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(b)), nil
}

// The kernel writes blanks and backslashes in paths as octal numbers.
var mountUnescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// parseMounts reads mountinfo: "ID PARENT DEV ROOT POINT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS".
func parseMounts(table string) []mount {
	var mounts []mount
	for line := range strings.Lines(table) {
		head, tail, ok := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if ok && len(h) >= 5 && len(t) >= 2 {
			mounts = append(mounts, mount{mountUnescape.Replace(h[4]), t[0], mountUnescape.Replace(t[1])})
		}
	}
	return mounts
}

func below(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// inside is below without the folder itself.
func inside(path, folder string) bool { return path != folder && below(path, folder) }

// unmountBelow undoes every mount below the folders, latest first, for a later
// mount may lie on or in an earlier one. A folder that is itself a mount, a disk
// of its own say, was one before us.
func unmountBelow(folders ...string) error {
	end := time.Now().Add(20 * time.Second)
	for {
		mounts, err := readMounts()
		if err != nil {
			return err
		}
		slices.Reverse(mounts)
		left, busy := 0, error(nil)
		for _, m := range mounts {
			if !slices.ContainsFunc(folders, func(f string) bool { return inside(m.point, f) }) {
				continue
			}
			if err := syscall.Unmount(m.point, 0); err != nil && !errors.Is(err, syscall.EINVAL) {
				left++
				busy = fmt.Errorf("unmounting %s (%s of %s): %w", m.point, m.fsType, m.source, err)
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return busy
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// loopDevices gives the loop devices whose files are below a folder. The kernel
// adds " (deleted)" to the name of a file that is gone.
func loopDevices(folder string) []string {
	var devices []string
	names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err == nil && below(strings.TrimSuffix(strings.TrimSpace(string(b)), " (deleted)"), folder) {
			devices = append(devices, "/dev/"+strings.Split(n, "/")[3])
		}
	}
	return devices
}

// detachLoops detaches what unmounting has not: devices made by mount(8) go with
// their mount, a moment later.
func detachLoops(folder string) error {
	for end := time.Now().Add(5 * time.Second); len(loopDevices(folder)) > 0; time.Sleep(20 * time.Millisecond) {
		for _, d := range loopDevices(folder) {
			if err := run("losetup", "--detach", d); err != nil && time.Now().After(end) {
				return err
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("loop devices are still attached: %v", loopDevices(folder))
		}
	}
	return nil
}
