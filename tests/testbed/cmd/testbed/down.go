package main

// `down`: ends the testbed and removes every trace of it from the machine, and
// nothing else. It works from whatever state things are in, also when it was cut
// short before. The cache of built parts stays.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func down(l layout, key string, force bool) error {
	start := time.Now()
	lock, err := acquireLock(l.lockFile(), "another up or down")
	if err != nil {
		return err
	}
	defer lock.release()
	if err := mayEnd(l, key, force); err != nil {
		return err
	}
	if err := end(l); err != nil {
		return err
	}
	say("down after %s", time.Since(start).Round(time.Second/10))
	return nil
}

// end does what `down` does. The lock must be held; it goes with its folder.
func end(l layout) error {
	// First the supervisor, which would start the others again. Nobody needs to
	// end in an orderly way: all they have is removed with them. A pid that was
	// noted before the machine was restarted may be anybody's.
	if id, ok := l.readPid(supervisorName); ok && sameBoot(l) {
		if err := id.kill(10 * time.Second); err != nil {
			return err
		}
	}
	if err := endAllOfIt(l); err != nil {
		return err
	}
	if err := removeFirewall(l); err != nil {
		return err
	}
	if err := restoreKernelSettings(l); err != nil {
		return err
	}
	if err := removeLeftovers(l); err != nil {
		return err
	}
	// The run folder, with the lock, is last: until then nobody else can begin.
	if err := removeState(l); err != nil {
		return err
	}
	return os.RemoveAll(l.run)
}

// endAllOfIt ends what runs, and undoes what it has mounted and connected.
func endAllOfIt(l layout) error {
	if err := killCgroups(); err != nil {
		return err
	}
	if err := removeShimSockets(l); err != nil {
		return err
	}
	folders := []string{l.state, l.run}
	if b, err := os.ReadFile(l.stateInRun()); err == nil { // of a testbed whose state is gone
		if other := strings.TrimSpace(string(b)); filepath.IsAbs(other) && other != l.state {
			folders = append(folders, other)
		}
	}
	if err := unmountBelow(folders...); err != nil {
		return err
	}
	for _, folder := range folders {
		if err := detachLoops(folder); err != nil {
			return err
		}
	}
	return removeNetwork(l)
}

// endStrays ends the testbed that was in this state folder before somebody
// removed that folder by hand. Its processes would hold the ports and the
// addresses, and the new ones would take its etcd for theirs.
func endStrays(l layout) error {
	if pids := cgroupPids(false); len(pids) > 0 {
		say("ending %d processes of a testbed whose state is gone", len(pids))
	}
	return endAllOfIt(l)
}

// cutShort says whether a `down` was cut short while it removed the state. What
// is left of that is no testbed: `up` ends it first.
func cutShort(l layout) bool {
	_, err := os.Stat(l.endingFile())
	return err == nil
}

func (l layout) endingFile() string { return l.inState("ending") }

// removeState removes the state folder such that it looks like a testbed until
// removing has begun, and from then on like one that is being removed.
func removeState(l layout) error {
	if _, err := os.Stat(l.state); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := writeFile(l.endingFile(), nil, 0o644); err != nil {
		return err
	}
	entries, err := os.ReadDir(l.state)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path := l.inState(e.Name()); path != l.endingFile() {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(l.endingFile()); err != nil {
		return err
	}
	// A folder that is a disk of its own cannot be removed, and need not be.
	if err := os.Remove(l.state); err != nil && !errors.Is(err, syscall.EBUSY) {
		return err
	}
	return nil
}
