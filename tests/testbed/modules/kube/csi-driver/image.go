package main

// The volumes' files: their names, sizes and making. Who asks, and whether he
// may, is decided elsewhere.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const (
	leastSize = 16 << 20  // below about 8 MiB ext4 gets no journal
	leastXFS  = 300 << 20 // mkfs.xfs makes no smaller one
	mostSize  = 64 << 30  // so that a growth can be refused for good
	blockSize = 4096
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// validID is false for names from which no path may be made.
func validID(id string) bool { return idPattern.MatchString(id) }

func roundSize(bytes int64, kind string) int64 {
	bytes = max(bytes, leastSize)
	if kind == "xfs" {
		bytes = max(bytes, leastXFS)
	}
	return (bytes + blockSize - 1) / blockSize * blockSize
}

type store struct{ dir string }

// openStore resolves symbolic links, because the kernel knows a loop device's
// file by its real path.
func openStore(dir string) (store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return store{}, err
	}
	dir, err := filepath.EvalSymlinks(dir)
	return store{dir}, err
}

func (s store) file(id string) string { return filepath.Join(s.dir, id+".img") }

// size is fs.ErrNotExist where there is no such volume, or can be none.
func (s store) size(id string) (int64, error) {
	if !validID(id) {
		return 0, fs.ErrNotExist
	}
	info, err := os.Stat(s.file(id))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// create gives the file its name only when the file system in it is whole.
func (s store) create(ctx context.Context, id string, size int64, kind string) error {
	tmp := s.file(id) + ".new"
	if err := os.WriteFile(tmp, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(tmp, size); err != nil {
		return err
	}
	format := []string{"mkfs.ext4", "-q", "-F", "-b", strconv.Itoa(blockSize), "-T", "default",
		"-m", "0", // nothing kept back for root: what is asked for is what a Pod can write
		"-e", "remount-ro",
		"-E", "assume_storage_prezeroed=1,nodiscard"} // the file is sparse
	if kind == "xfs" {
		format = []string{"mkfs.xfs", "-q", "-f", "-K"}
	}
	if err := run(ctx, format[0], append(format[1:], tmp)...); err != nil {
		return err
	}
	return os.Rename(tmp, s.file(id))
}

func (s store) grow(id string, size int64) error { return os.Truncate(s.file(id), size) }

// lags says whether a file holds an ext4 file system that is smaller than the file.
func lags(file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	var super [1024]byte
	if _, err := f.ReadAt(super[:], 1024); err != nil {
		return false, err
	}
	le := binary.LittleEndian
	if le.Uint16(super[0x38:]) != 0xef53 {
		return false, nil
	}
	blocks := int64(le.Uint32(super[0x4:])) | int64(le.Uint32(super[0x150:]))<<32
	return blocks<<(10+le.Uint32(super[0x18:])) < info.Size(), nil
}

// growUnmounted makes an ext4 file system that is not mounted as large as its file.
func growUnmounted(ctx context.Context, file string) error {
	if behind, err := lags(file); err != nil || !behind {
		return err
	}
	// resize2fs wants a check first, which replays the journal too; status 1 is "corrected".
	var failed *exec.ExitError
	err := run(ctx, "e2fsck", "-f", "-p", file)
	if err != nil && !(errors.As(err, &failed) && failed.ExitCode() == 1) {
		return err
	}
	return run(ctx, "resize2fs", file)
}

func (s store) delete(id string) error {
	if !validID(id) {
		return nil
	}
	for _, f := range []string{s.file(id), s.file(id) + ".new"} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
