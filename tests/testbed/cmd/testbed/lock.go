package main

// Locks between testbed programs, by flock(2): the kernel drops them when their
// holder dies, so none is ever stale.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

type lock struct{ file *os.File }

// acquireLock waits for the lock; a person who has to wait is told for whom.
func acquireLock(path, holder string) (*lock, error) {
	for {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		// O_CLOEXEC is Go's default: a daemon started under the lock must not keep it.
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			say("waiting for %s to finish (it holds %s)", holder, path)
			err = flockPatiently(f)
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		// `down` removes the lock with its folder: a lock on a file that is gone protects nothing.
		mine, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, there) {
			return &lock{f}, nil
		}
		f.Close()
	}
}

// tryLock gives nil when somebody else has the lock.
func tryLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &lock{f}, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}

func flockPatiently(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func (l *lock) release() { l.file.Close() }
