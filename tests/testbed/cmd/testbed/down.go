package main

// `down`: ends the testbed and removes every trace of it from the machine, and
// nothing else. It works from whatever state things are in, also when it was cut
// short before. The cache of built parts stays.

import (
	"errors"
	"io/fs"
	"os"
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
	// First the supervisor, which would start the others again. Nobody needs to
	// end in an orderly way: all they have is removed with them.
	if id, ok := l.readPid(supervisorName); ok {
		if err := id.kill(10 * time.Second); err != nil {
			return err
		}
	}
	if err := killCgroups(); err != nil {
		return err
	}
	for _, socket := range shimSockets(l) {
		if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := unmountBelow(l.state, l.run); err != nil {
		return err
	}
	if err := detachLoops(l.state); err != nil {
		return err
	}
	if err := removeNetwork(); err != nil {
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
	if err := os.RemoveAll(l.state); err != nil {
		return err
	}
	if err := os.RemoveAll(l.run); err != nil {
		return err
	}
	say("down after %s", time.Since(start).Round(time.Second/10))
	return nil
}
