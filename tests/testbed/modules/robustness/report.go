package main

// The report of a run: the validators' answers on what was recorded, and their answers on the same with one thing missing.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
)

// For porcupine, which decides a record of a minute in seconds or, with many operations without an answer, never.
const patience = 2 * time.Minute

type testReport struct {
	runFacts
	Operations map[string]count `json:"operations"`
	Watch      watched          `json:"watch"`
	Persisted  int              `json:"persisted"`
	Logs       int              `json:"logs"`
	Verdict    verdict          `json:"verdict"`
	Controls   []control        `json:"controls"`
	// What the story did meanwhile; it adds them.
	Faults map[string]int `json:"faults,omitempty"`
}

type count struct {
	Acknowledged int `json:"acknowledged"`
	Failed       int `json:"failed"`
}

type watched struct {
	Requests int `json:"requests"`
	Events   int `json:"events"`
}

// Upstream's Error() takes a validation that did not run for a success. Here it passes only when all four said so.
type verdict struct {
	Passed        bool    `json:"passed"`
	Assumptions   string  `json:"assumptions"`
	Linearization string  `json:"linearization"`
	Watch         string  `json:"watch"`
	Serializable  string  `json:"serializable"`
	Seconds       float64 `json:"seconds"`
}

type recorded struct {
	config    validate.Config
	clients   []report.ClientReport
	persisted []model.EtcdRequest
}

func writeReport(lg *zap.Logger, folder string) error {
	var r testReport
	b, err := os.ReadFile(runOf(folder))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &r.runFacts); err != nil {
		return err
	}
	history, logs, err := load(lg, folder)
	if err != nil {
		return err
	}
	r.Persisted, r.Logs = len(history.persisted), logs
	r.Operations, r.Watch = countOperations(history.clients)
	r.Verdict = judge(lg, history)
	// On a history that is refused already they would prove nothing.
	if r.Verdict.Passed {
		if r.Controls, err = runControls(history); err != nil {
			return err
		}
	}
	if b, err = json.MarshalIndent(r, "", "  "); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "report.json"), b, 0o644)
}

func load(lg *zap.Logger, folder string) (recorded, int, error) {
	var r recorded
	detail, err := report.LoadTrafficDetail(clientsOf(folder))
	if err != nil {
		return r, 0, err
	}
	r.config.ExpectRevisionUnique = detail.ExpectUniqueRevision
	if r.clients, err = report.LoadClientReports(clientsOf(folder)); err != nil {
		return r, 0, err
	}
	dirs, err := filepath.Glob(filepath.Join(serversOf(folder), "server-*"))
	if err != nil {
		return r, 0, err
	}
	// Upstream goes on without a WAL that it cannot read, and says so in its log alone.
	for _, dir := range dirs {
		if _, _, err := report.ReadWAL(lg, dir); err != nil {
			return r, 0, fmt.Errorf("%s: %w", dir, err)
		}
	}
	r.persisted, err = report.PersistedRequests(lg, dirs)
	return r, len(dirs), err
}

func judge(lg *zap.Logger, r recorded) (v verdict) {
	begun := time.Now()
	defer func() {
		v.Seconds = time.Since(begun).Seconds()
		// The watch validators panic at an event of a revision that no WAL leads to.
		if why := recover(); why != nil {
			v.Passed, v.Watch = false, fmt.Sprintf("%s: panic: %v", validate.Failure, why)
		}
	}()
	result := validate.ValidateAndReturnVisualize(lg, r.config, r.clients, r.persisted, patience)
	v.Assumptions = said(result.Assumptions)
	v.Linearization = said(result.Linearization.Result)
	v.Watch = said(result.Watch)
	v.Serializable = said(result.Serializable)
	v.Passed = true
	for _, answer := range []string{v.Assumptions, v.Linearization, v.Watch, v.Serializable} {
		v.Passed = v.Passed && answer == string(validate.Success)
	}
	return v
}

func refuses(answer string) bool { return strings.HasPrefix(answer, string(validate.Failure)) }

func said(r validate.Result) string {
	if r.Status == validate.Unknown {
		return "did not run"
	}
	return r.String()
}

func countOperations(clients []report.ClientReport) (map[string]count, watched) {
	kinds, watch := map[string]count{}, watched{}
	for _, c := range clients {
		for _, op := range c.KeyValue {
			kind := kindOf(op.Input.(model.EtcdRequest))
			n := kinds[kind]
			if op.Output.(model.MaybeEtcdResponse).Error == "" {
				n.Acknowledged++
			} else {
				n.Failed++
			}
			kinds[kind] = n
		}
		watch.Requests += len(c.Watch)
		watch.Events += c.WatchEventCount()
	}
	return kinds, watch
}

func kindOf(r model.EtcdRequest) string {
	switch r.Type {
	case model.Range:
		kind := "get"
		if r.Range.End != "" {
			kind = "list"
		}
		if r.Range.Revision != 0 {
			kind += " at a revision"
		}
		return kind
	case model.Txn:
		ops := r.Txn.AllOperations()
		switch {
		case len(r.Txn.Conditions) > 0:
			return "conditional " + strings.TrimSuffix(string(ops[0].Type), "-operation")
		case len(ops) > 1:
			return "transaction"
		case ops[0].Type == model.PutOperation && ops[0].Put.LeaseID != 0:
			return "put with a lease"
		case ops[0].Type == model.PutOperation:
			return "put"
		case ops[0].Type == model.DeleteOperation:
			return "delete"
		}
		return "transaction"
	default:
		return string(r.Type)
	}
}
