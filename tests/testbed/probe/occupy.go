package main

// occupy: takes a volume's space until so much is left, for tests of what happens
// when it runs out. It decides how large its file has to be; what is written after
// that is for others to fail at.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

type occupyResult struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"` // its size now
	Free  int64  `json:"free"`  // what others may still write
}

const (
	occupyFile   = "occupied"
	occupyNear   = 16 // blocks
	occupyRounds = 50
)

// occupyVerb makes its file larger or smaller, so that it can be asked again for
// another amount; without the file (rm) the space is free again.
func occupyVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	dir := f.String("dir", "", "a folder of the volume; the file "+occupyFile+" in it takes the space")
	leave := byteSize(0)
	f.Var(&leave, "leave", "how much to leave free, such as 5MiB (default: nothing)")
	return func(ctx context.Context) (any, error) {
		if *dir == "" {
			return nil, errors.New("--dir is missing")
		}
		file, err := os.OpenFile(filepath.Join(*dir, occupyFile), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		size, free, err := occupy(&realSpace{file}, int64(leave))
		return occupyResult{file.Name(), size, free}, errors.Join(err, file.Sync())
	}
}

// A space is a file and the volume that it is on.
type space interface {
	measure() (size, free, block int64, err error)
	grow(size, by int64) error // may grow by less, with ENOSPC
	shrink(to int64) error
}

// occupy comes nearer round by round: a large file takes some blocks more than its
// size, for the list of its parts, and others may write meanwhile. For the same
// reason the last few blocks can be out of reach; that much more may stay free.
func occupy(s space, leave int64) (size, free int64, err error) {
	shrunk := false
	for range occupyRounds {
		var block int64
		if size, free, block, err = s.measure(); err != nil {
			return size, free, err
		}
		surplus, near := free-leave, occupyNear*block
		switch {
		case surplus < 0 && size == 0:
			return size, free, fmt.Errorf("only %d bytes are free, not %d", free, leave)
		case surplus < 0:
			if err := s.shrink(max(0, (size+surplus)/block*block)); err != nil {
				return size, free, err
			}
			shrunk = true
		case surplus < block, shrunk && surplus < near:
			return size, free, nil
		default:
			before := size
			if err := s.grow(size, surplus/block*block); err != nil && !errors.Is(err, syscall.ENOSPC) {
				return size, free, err
			}
			if size, free, _, err = s.measure(); err != nil {
				return size, free, err
			}
			switch surplus := free - leave; {
			case size > before: // something was to be had: perhaps more is
			case surplus < near:
				return size, free, nil
			default:
				return size, free, fmt.Errorf("%d bytes stay free, not %d: the volume gives no more", free, leave)
			}
		}
	}
	return size, free, fmt.Errorf("%d bytes are free, not %d: somebody else writes to the volume", free, leave)
}

type realSpace struct{ file *os.File }

func (r *realSpace) measure() (size, free, block int64, err error) {
	info, err := r.file.Stat()
	if err != nil {
		return 0, 0, 0, err
	}
	var s syscall.Statfs_t
	if err := syscall.Fstatfs(int(r.file.Fd()), &s); err != nil {
		return 0, 0, 0, fmt.Errorf("asking for the free space: %w", err)
	}
	return info.Size(), int64(s.Bavail) * int64(s.Bsize), int64(s.Bsize), nil
}

// grow takes the blocks without writing them, where the file system can do that.
func (r *realSpace) grow(size, by int64) error {
	err := syscall.Fallocate(int(r.file.Fd()), 0, size, by)
	if !errors.Is(err, syscall.EOPNOTSUPP) {
		return err
	}
	zeros := make([]byte, 1<<20)
	for end := size + by; size < end; {
		n, err := r.file.WriteAt(zeros[:min(int64(len(zeros)), end-size)], size)
		if err != nil {
			return err
		}
		size += int64(n)
	}
	return r.file.Sync() // space that is promised only is not taken
}

func (r *realSpace) shrink(to int64) error { return r.file.Truncate(to) }
