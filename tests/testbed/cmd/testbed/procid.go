package main

// Process identity: a pid together with its start time, so that a pid which the
// kernel has given to another process since is never taken for ours, nor killed.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// procID names one process for as long as the machine is up. Pid files of an
// earlier boot are removed before anything reads them (see reboot.go).
type procID struct {
	pid   int
	start uint64 // field 22 of /proc/PID/stat: clock ticks after boot
}

// statFields parses /proc/PID/stat. The command's name may hold spaces and
// parentheses, so fields are counted from its last ")".
func statFields(stat string) (state byte, start uint64, err error) {
	tail := stat[strings.LastIndexByte(stat, ')')+1:]
	f := strings.Fields(tail) // from field 3, the state
	if len(f) < 20 {
		return 0, 0, fmt.Errorf("no process status: %q", stat)
	}
	start, err = strconv.ParseUint(f[19], 10, 64)
	return f[0][0], start, err
}

// identify gives the identity that a pid has now.
func identify(pid int) (procID, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procID{}, err
	}
	_, start, err := statFields(string(b))
	return procID{pid, start}, err
}

// alive is false for zombies too: they have ended and only wait for their parent.
func (p procID) alive() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return false
	}
	state, start, err := statFields(string(b))
	return err == nil && start == p.start && state != 'Z' && state != 'X'
}

// wake lets a stopped process go on: a test that stops one may have been cut short.
func (p procID) wake() (was bool, err error) {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return false, nil
	}
	defer handle.Release()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return false, nil
	}
	if state, start, err := statFields(string(b)); err != nil || start != p.start || state != 'T' {
		return false, err
	}
	return true, handle.Signal(syscall.SIGCONT)
}

// kill ends the process and waits until it is gone. FindProcess holds on to
// whichever process has the pid at that moment (by pidfd); if that one is ours,
// the signal cannot reach another.
func (p procID) kill(patience time.Duration) error {
	handle, err := os.FindProcess(p.pid)
	if err != nil || !p.alive() {
		return nil
	}
	defer handle.Release()
	if err := handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending process %d: %w", p.pid, err)
	}
	for end := time.Now().Add(patience); p.alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("process %d is still there %s after SIGKILL", p.pid, patience)
		}
	}
	return nil
}

func (p procID) String() string { return fmt.Sprintf("%d %d", p.pid, p.start) }

func parseProcID(s string) (procID, error) {
	var p procID
	if _, err := fmt.Sscanf(s, "%d %d", &p.pid, &p.start); err != nil || p.pid <= 1 {
		return procID{}, fmt.Errorf("not a process identity: %q", s)
	}
	return p, nil
}

func (l layout) pidFile(process string) string { return l.inState("pids", process) }

// writePid records a process by rename, so a reader never sees half a line.
func (l layout) writePid(process string, p procID) error {
	return writeFile(l.pidFile(process), []byte(p.String()+"\n"), 0o644)
}

// readPid gives the recorded process, or false when there is none alive.
func (l layout) readPid(process string) (procID, bool) {
	b, err := os.ReadFile(l.pidFile(process))
	if err != nil {
		return procID{}, false
	}
	p, err := parseProcID(string(b))
	return p, err == nil && p.alive()
}

// writeFile replaces a file as a whole, and leaves one that is right untouched. It
// is on disk before it has its name: a machine that loses its power in between
// must not find it there and empty.
func writeFile(path string, content []byte, mode os.FileMode) error {
	if have, err := os.ReadFile(path); err == nil && string(have) == string(content) {
		return os.Chmod(path, mode)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
