package main

// Time for the tests of retention: a store in which a schedule has saved for
// days, and announcements that are hours old. What is written is what an agent
// would have written then; a manifest loses its own sha256, as manifests of
// earlier agents have none.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const keyTime = "20060102T150405Z"

// history: copies of the newest snapshot of a lineage, so many steps older; the
// oldest of them may record a lock, as of a store that tells nobody of it.
func historyVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	root := f.String("root", "", "the folder that keys begin in")
	lineage := f.String("lineage", "", "the lineage's key")
	count := f.Int("count", 0, "number of copies")
	step := f.Duration("step", time.Hour, "time between two of them")
	locked := f.Int("locked", 0, "number of the oldest copies that are locked")
	until := f.String("until", "", "end of their locks (RFC 3339)")
	return func(context.Context) (any, error) {
		folder := filepath.Join(*root, *lineage)
		newest, err := newestSnapshot(folder)
		if err != nil {
			return nil, err
		}
		var keys []string
		for n := 1; n <= *count; n++ {
			lock := *until
			if n <= *count-*locked {
				lock = ""
			}
			name, err := copyBack(*lineage, filepath.Join(folder, newest), n, time.Duration(n)*(*step), lock)
			if err != nil {
				return nil, err
			}
			keys = append(keys, *lineage+"/"+name)
		}
		return keys, nil
	}
}

func newestSnapshot(folder string) (string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	for _, entry := range slices.Backward(entries) {
		if _, err := os.Stat(filepath.Join(folder, entry.Name(), "manifest.json")); err == nil {
			return entry.Name(), nil
		}
	}
	return "", errors.New("no snapshot in " + folder)
}

// copyBack makes the n-th older copy of a snapshot, of a run of its own, with
// a lock where its end is given.
func copyBack(lineage, from string, n int, by time.Duration, lock string) (string, error) {
	name, err := earlier(filepath.Base(from), by)
	if err != nil {
		return "", err
	}
	parts := strings.Split(name, "-")
	uid := fmt.Sprintf("%08x-0000-4000-8000-000000000000", n)
	parts[1] = uid[:8]
	name = strings.Join(parts, "-")
	to := filepath.Join(filepath.Dir(from), name)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return "", err
	}
	return name, edit(filepath.Join(to, "manifest.json"), func(manifest map[string]any) error {
		delete(manifest, "manifestSha256")
		manifest["key"] = lineage + "/" + name
		if lock != "" {
			manifest["lock"] = map[string]any{"mode": "GOVERNANCE", "until": lock, "confirmed": true}
		}
		origin, ok := manifest["origin"].(map[string]any)
		if !ok {
			return errors.New("a manifest without an origin")
		}
		origin["uid"] = uid
		origin["name"] = fmt.Sprintf("%v-%d", origin["name"], n)
		return errors.Join(back(manifest, "startedAt", by), back(manifest, "endedAt", by))
	})
}

// ripen: announcements were made so much earlier, by their names, by what they
// say and by the store's clock.
func ripenVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	folder := f.String("folder", "", "the folder of the announcements")
	by := f.Duration("by", time.Hour, "how much earlier")
	return func(context.Context) (any, error) {
		entries, err := os.ReadDir(*folder)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			name, err := earlier(entry.Name(), *by)
			if err != nil {
				continue // A removal that has begun has another kind of name.
			}
			from, to := filepath.Join(*folder, entry.Name()), filepath.Join(*folder, name)
			info, err := entry.Info()
			if err != nil {
				return nil, err
			}
			err = edit(from, func(record map[string]any) error { return back(record, "announcedAt", *by) })
			if err != nil {
				return nil, err
			}
			then := info.ModTime().Add(-*by)
			if err := errors.Join(os.Chtimes(from, then, then), os.Rename(from, to)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

// earlier is a name that begins with an earlier time.
func earlier(name string, by time.Duration) (string, error) {
	text, rest, _ := strings.Cut(name, "-")
	at, err := time.Parse(keyTime, text)
	if err != nil {
		return "", err
	}
	return at.Add(-by).Format(keyTime) + "-" + rest, nil
}

func back(object map[string]any, field string, by time.Duration) error {
	text, _ := object[field].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	object[field] = at.Add(-by).Format(time.RFC3339Nano)
	return nil
}

// edit changes a JSON file in place: what a server notes beside it stays.
func edit(path string, change func(map[string]any) error) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var object map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := change(object); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	text, err = json.Marshal(object)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
