package main

// A report as Markdown, for docs/robustness.md.

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

func writeTable(out io.Writer, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var reports []testReport
	if err := json.Unmarshal(b, &reports); err != nil {
		return err
	}
	p := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	p("# etcd's robustness suite on a Holdfast cluster")
	p("")
	p("Written by `make robustness` from its last run. Clients, recorders and validators are etcd's own (`go.etcd.io/etcd/tests/v3`,")
	p("package `robustness`); the cluster runs on the testbed, and the faults are the story's (`tests/e2e/stories/robustness.rs`).")
	for n, r := range reports {
		if len(r.Controls) == 0 {
			return fmt.Errorf("run %d was refused: it belongs into no documentation", n+1)
		}
		p("")
		p("## Run %d: etcd %s, %s traffic, %.0f s", n+1, r.EtcdVersion, r.Traffic, r.Seconds)
		p("")
		p("| verdict | |")
		p("|---|---|")
		p("| passed | %t |", r.Verdict.Passed)
		p("| assumptions | %s |", r.Verdict.Assumptions)
		p("| linearization (porcupine) | %s |", r.Verdict.Linearization)
		p("| watch guarantees | %s |", r.Verdict.Watch)
		p("| serializable reads | %s |", r.Verdict.Serializable)
		p("| validated in | %.1f s |", r.Verdict.Seconds)
		p("")
		p("| fault | times |")
		p("|---|---|")
		for _, fault := range slices.Sorted(maps.Keys(r.Faults)) {
			p("| %s | %d |", fault, r.Faults[fault])
		}
		p("")
		p("| operation | acknowledged | failed |")
		p("|---|---|---|")
		var all count
		for _, kind := range slices.Sorted(maps.Keys(r.Operations)) {
			c := r.Operations[kind]
			all.Acknowledged += c.Acknowledged
			all.Failed += c.Failed
			p("| %s | %d | %d |", kind, c.Acknowledged, c.Failed)
		}
		p("| all | %d | %d |", all.Acknowledged, all.Failed)
		p("")
		p("%d watches heard %d events. %d requests were found in %d copies of members' WALs.", r.Watch.Requests, r.Watch.Events, r.Persisted, r.Logs)
		p("")
		p("| negative control: %s is dropped from | validator | its answer |", r.Controls[0].Dropped)
		p("|---|---|---|")
		for _, c := range r.Controls {
			p("| %s | %s | %s |", c.From, c.Validator, c.Answer)
		}
	}
	return nil
}
