package main

// The pinned versions: reads versions.env and holds it against the go.mod files.
// It decides no version itself.

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

type versions map[string]string

func readVersions(source string) (versions, error) {
	b, err := os.ReadFile(filepath.Join(source, "versions.env"))
	if err != nil {
		return nil, err
	}
	v, err := parseVersions(b)
	if err != nil {
		return nil, fmt.Errorf("versions.env: %w", err)
	}
	return v, nil
}

func parseVersions(b []byte) (versions, error) {
	v := versions{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("line %d is not NAME=VERSION: %q", n, line)
		}
		v[name] = value
	}
	return v, lines.Err()
}

// etcdVariable names the line of an etcd minor or patch, "3.6" → "ETCD_3_6", "3.6.11" → "ETCD_3_6_11".
func etcdVariable(minor string) string { return "ETCD_" + strings.ReplaceAll(minor, ".", "_") }

// required gives the version of a module that a go.mod requires, empty if none.
func required(source, folder, module string) (string, error) {
	b, err := os.ReadFile(filepath.Join(source, folder, "go.mod"))
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(module) + ` v(\S+)`).FindSubmatch(b)
	if found == nil {
		return "", nil
	}
	return string(found[1]), nil
}

// checkModule holds one line of versions.env against what a go.mod requires.
func (v versions) checkModule(source, folder, module, variable string) error {
	file := filepath.Join(source, folder, "go.mod")
	got, err := required(source, folder, module)
	switch {
	case err != nil:
		return err
	case v[variable] == "":
		return fmt.Errorf("versions.env has no line %s, which %s needs", variable, file)
	case got == "":
		return fmt.Errorf("%s does not require %s", file, module)
	case got != v[variable]:
		return fmt.Errorf("%s requires %s v%s but versions.env says %s=%s: make them the same", file, module, got, variable, v[variable])
	}
	return nil
}
