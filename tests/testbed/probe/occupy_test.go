package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// fakeSpace takes one block of its own for every hundred, and gives what is left of
// a request that is too large.
type fakeSpace struct{ total, size, others, stuck int64 }

const fakeBlock = 4096

func (f *fakeSpace) used(size int64) int64 {
	return (size + fakeBlock - 1) / fakeBlock * 101 / 100 * fakeBlock
}

func (f *fakeSpace) measure() (size, free, block int64, err error) {
	return f.size, f.total - f.others - f.used(f.size), fakeBlock, nil
}

func (f *fakeSpace) grow(size, by int64) error {
	for end := size + by; f.size < end; f.size += fakeBlock {
		if f.others+f.used(f.size+fakeBlock) > f.total-f.stuck {
			return syscall.ENOSPC
		}
	}
	return nil
}

func (f *fakeSpace) shrink(to int64) error { f.size = to; return nil }

func TestOccupyLeavesWhatIsAskedFor(t *testing.T) {
	s := &fakeSpace{total: 256 << 20, others: 10 << 20}
	for _, leave := range []int64{5 << 20, 0, 64 << 20, 1 << 20, 12345} { // more, less, not a whole block
		size, free, err := occupy(s, leave)
		if err != nil || free < leave || free >= leave+occupyNear*fakeBlock || size != s.size {
			t.Errorf("leave %d: %d free beside a file of %d, %v", leave, free, size, err)
		}
	}
	if _, free, err := occupy(&fakeSpace{total: 1 << 20, others: 1 << 19}, 1<<20); err == nil {
		t.Errorf("left more than there is: %d", free)
	}
	if _, free, err := occupy(&fakeSpace{total: 1 << 20, stuck: 1 << 18}, 0); err == nil {
		t.Errorf("%d bytes that cannot be had were not told of", free)
	}
}

// On a real file system of a few MiB, in memory; making one needs root.
func TestOccupyMakesWritesFail(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("holdfast-test", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	file, err := os.Create(filepath.Join(dir, occupyFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write := func(bytes int) error { return os.WriteFile(filepath.Join(dir, "other"), make([]byte, bytes), 0o644) }
	for _, c := range []struct {
		leave int64
		fits  int
	}{{1 << 20, 1 << 20}, {0, 0}, {3 << 20, 3 << 20}} {
		os.Remove(filepath.Join(dir, "other"))
		if size, free, err := occupy(&realSpace{file}, c.leave); err != nil || free != c.leave || size+free > 8<<20 {
			t.Fatalf("leave %d: %d free beside a file of %d, %v", c.leave, free, size, err)
		}
		if err := write(c.fits); err != nil {
			t.Errorf("leave %d: %v", c.leave, err)
		}
		if err := write(c.fits + 64<<10); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("leave %d: more than that was written, %v", c.leave, err)
		}
	}
}
