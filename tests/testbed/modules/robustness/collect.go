package main

// Copies of members' WALs: the validators read what was persisted from them, and repair a torn end in place, which no
// member's own files may suffer.

import (
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
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
