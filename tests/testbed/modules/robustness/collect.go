package main

// Copies of members' WALs: the validators read what was persisted from them, and repair a torn end in place, which no
// member's own files may suffer.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/server/v3/storage/datadir"
)

// collectLogs copies for each NAME=DATA-DIR. A name is taken once: a member that is to lose its volume is collected before,
// under another name than afterwards.
func collectLogs(folder string, members []string) error {
	if len(members) == 0 {
		return fmt.Errorf("collect wants NAME=DATA-DIR at least once")
	}
	for _, member := range members {
		name, dir, ok := strings.Cut(member, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=DATA-DIR", member)
		}
		// The prefix is the one that upstream looks for.
		to := datadir.ToWALDir(filepath.Join(serversOf(folder), "server-"+name))
		if _, err := os.Stat(to); err == nil {
			return fmt.Errorf("%s is collected already", name)
		}
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(datadir.ToWALDir(dir), "*.wal"))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("%s has no WAL in %s", name, dir)
		}
		for _, file := range files {
			if err := copyFile(filepath.Join(to, filepath.Base(file)), file); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyFile leaves out what is all zeros: etcd lays out 64 MiB for each WAL before it writes the first byte.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	chunk, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := in.ReadAt(chunk, at)
		if !bytes.Equal(chunk[:n], zeros[:n]) {
			if _, err := out.WriteAt(chunk[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if err == io.EOF {
			return errors.Join(out.Truncate(at), out.Close())
		}
		if err != nil {
			return err
		}
	}
}
