package main

// What the tests do to files on a volume, from a Pod that has neither a shell
// nor coreutils: look, move, copy, remove, flip a bit.

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ls: every file and folder below, one path a line, with its size.
func lsVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	return func(context.Context) (any, error) {
		for _, root := range f.Args() {
			err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if err != nil {
					if entry != nil && entry.Name() == "lost+found" {
						return fs.SkipDir
					}
					// Gone since its folder was read.
					if path != root && errors.Is(err, fs.ErrNotExist) {
						return nil
					}
					return err
				}
				size := int64(0)
				if info, err := entry.Info(); err == nil && !entry.IsDir() {
					size = info.Size()
				}
				fmt.Printf("%s %d\n", path, size)
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

// df: the size of each file system, one path a line, in bytes.
func dfVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	return func(context.Context) (any, error) {
		for _, path := range f.Args() {
			var s syscall.Statfs_t
			if err := syscall.Statfs(path, &s); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			fmt.Printf("%s %d\n", path, int64(s.Blocks)*s.Bsize)
		}
		return nil, nil
	}
}

func two(f *flag.FlagSet) (from, to string, err error) {
	if f.NArg() != 2 {
		return "", "", errors.New("wants two paths")
	}
	return f.Arg(0), f.Arg(1), nil
}

func mvVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	return func(context.Context) (any, error) {
		from, to, err := two(f)
		if err != nil {
			return nil, err
		}
		return nil, os.Rename(from, to)
	}
}

func cpVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	return func(context.Context) (any, error) {
		from, to, err := two(f)
		if err != nil {
			return nil, err
		}
		return nil, os.CopyFS(to, os.DirFS(from))
	}
}

func rmVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	return func(context.Context) (any, error) {
		for _, path := range f.Args() {
			if err := os.RemoveAll(path); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

type flipResult struct {
	File    string  `json:"file"`
	Offsets []int64 `json:"offsets"`
}

// flip inverts the lowest bit of one byte, in place; or of the first byte of
// a text, wherever the file has it.
func flipVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	file := f.String("file", "", "the file")
	offset := f.Int64("offset", 0, "the byte's place")
	text := f.String("text", "", "a text, in place of --offset")
	return func(context.Context) (any, error) {
		h, err := os.OpenFile(*file, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		defer h.Close()
		offsets := []int64{*offset}
		if *text != "" {
			if offsets, err = places(h, *text); err != nil {
				return nil, err
			}
		}
		one := make([]byte, 1)
		for _, at := range offsets {
			if _, err := h.ReadAt(one, at); err != nil {
				return nil, err
			}
			if _, err := h.WriteAt([]byte{one[0] ^ 1}, at); err != nil {
				return nil, err
			}
		}
		return flipResult{*file, offsets}, h.Sync()
	}
}

// places says where a file has a text; nowhere is an error.
func places(file io.Reader, text string) ([]int64, error) {
	all, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	var found []int64
	for from := 0; ; {
		at := bytes.Index(all[from:], []byte(text))
		if at < 0 {
			break
		}
		found = append(found, int64(from+at))
		from += at + len(text)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the file has no %q", text)
	}
	return found, nil
}
