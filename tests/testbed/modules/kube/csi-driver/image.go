package main

// The volumes' files: their names, sizes and making. Who asks, and whether he
// may, is decided elsewhere.

import (
	"context"
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
	leastSize = 16 << 20 // below about 8 MiB ext4 gets no journal
	blockSize = 4096
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// validID is false for names from which no path may be made.
func validID(id string) bool { return idPattern.MatchString(id) }

func roundSize(bytes int64) int64 {
	bytes = max(bytes, leastSize)
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
func (s store) create(ctx context.Context, id string, size int64) error {
	tmp := s.file(id) + ".new"
	if err := os.WriteFile(tmp, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(tmp, size); err != nil {
		return err
	}
	err := run(ctx, "mkfs.ext4", "-q", "-F", "-b", strconv.Itoa(blockSize), "-T", "default",
		"-m", "0", // nothing kept back for root: what is asked for is what a Pod can write
		"-e", "remount-ro",
		"-E", "assume_storage_prezeroed=1,nodiscard", // the file is sparse
		tmp)
	if err != nil {
		return err
	}
	return os.Rename(tmp, s.file(id))
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
