package main

// What the tests do to files on a volume, from a Pod that has neither a shell
// nor coreutils: look, move, copy, remove, flip a bit.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Before byte   `json:"before"`
	After  byte   `json:"after"`
}

// flip inverts the lowest bit of one byte, in place.
func flipVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	file := f.String("file", "", "the file")
	offset := f.Int64("offset", 0, "the byte's place")
	return func(context.Context) (any, error) {
		h, err := os.OpenFile(*file, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		defer h.Close()
		one := make([]byte, 1)
		if _, err := h.ReadAt(one, *offset); err != nil {
			return nil, err
		}
		flipped := []byte{one[0] ^ 1}
		if _, err := h.WriteAt(flipped, *offset); err != nil {
			return nil, err
		}
		return flipResult{*file, *offset, one[0], flipped[0]}, h.Sync()
	}
}
