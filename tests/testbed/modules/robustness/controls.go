package main

// Negative controls: from what was recorded one acknowledged write is taken, where it matters to one validator after the
// other. Each has to refuse what is left, or its approval of the whole says nothing.

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/anishathalye/porcupine"
	"go.uber.org/zap"

	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
)

type control struct {
	Dropped string `json:"dropped"`
	From    string `json:"from"`
	// The validator that has to refuse, and its answer.
	Validator string `json:"validator"`
	Answer    string `json:"answer"`
	Refused   bool   `json:"refused"`
}

// An acknowledged write of one key, where it is, and which persisted request it is.
type write struct {
	client, operation, persisted int
	key                          string
	revision                     int64
}

// Far enough from the start that watchers are there.
const early = 100

func runControls(r recorded) ([]control, error) {
	w, err := findWrite(r)
	if err != nil {
		return nil, err
	}
	forgotten := r
	forgotten.clients = slices.Clone(r.clients)
	of := &forgotten.clients[w.client]
	of.KeyValue = slices.Delete(slices.Clone(of.KeyValue), w.operation, w.operation+1)

	watches := onlyWatches(r)
	if v := judgeQuietly(watches); !v.Passed {
		return nil, fmt.Errorf("the watches of a record that is approved are refused: %+v", v)
	}
	lost := watches
	lost.persisted = slices.Delete(slices.Clone(r.persisted), w.persisted, w.persisted+1)

	unheard := watches
	if unheard.clients, err = withoutEvent(watches.clients, w); err != nil {
		return nil, err
	}

	linearization := func(v verdict) string { return v.Linearization }
	watch := func(v verdict) string { return v.Watch }
	var all []control
	for _, c := range []struct {
		from, validator string
		left            recorded
		answer          func(verdict) string
	}{
		{"what its client recorded", "linearization", forgotten, linearization},
		{"the members' WALs", "watch", lost, watch},
		{"what a watcher heard", "watch", unheard, watch},
	} {
		answer := c.answer(judgeQuietly(c.left))
		all = append(all, control{
			Dropped:   fmt.Sprintf("the write of %s at revision %d", w.key, w.revision),
			From:      c.from,
			Validator: c.validator,
			Answer:    answer,
			Refused:   refuses(answer),
		})
	}
	return all, nil
}

// onlyWatches forgets all operations but the reads that show the database empty at the start: porcupine takes minutes for a
// whole record.
func onlyWatches(r recorded) recorded {
	r.clients = slices.Clone(r.clients)
	for c := range r.clients {
		r.clients[c].KeyValue = slices.DeleteFunc(slices.Clone(r.clients[c].KeyValue), func(op porcupine.Operation) bool {
			request := op.Input.(model.EtcdRequest)
			return !request.IsRead() || op.Output.(model.MaybeEtcdResponse).Revision != 1
		})
	}
	return r
}

// judgeQuietly keeps back what the validators say of what they refuse: it would read like a word on the run itself.
func judgeQuietly(r recorded) verdict {
	out := os.Stdout
	os.Stdout = nil
	defer func() { os.Stdout = out }()
	return judge(zap.NewNop(), r)
}

// findWrite takes an early one: to refuse a record, porcupine tries every order of what precedes the gap, and each operation
// that failed under faults doubles them.
func findWrite(r recorded) (write, error) {
	persisted := map[model.PutOptions][]int{}
	for i, request := range r.persisted {
		if request.Type != model.Txn {
			continue
		}
		for _, op := range request.Txn.AllOperations() {
			if op.Type == model.PutOperation {
				put := model.PutOptions{Key: op.Put.Key, Value: op.Put.Value}
				persisted[put] = append(persisted[put], i)
			}
		}
	}
	var all []write
	for c, client := range r.clients {
		for i, op := range client.KeyValue {
			request, response := op.Input.(model.EtcdRequest), op.Output.(model.MaybeEtcdResponse)
			if request.Type != model.Txn || len(request.Txn.OperationsOnSuccess) != 1 || response.Error != "" || response.Txn.Failure {
				continue
			}
			put := request.Txn.OperationsOnSuccess[0].Put
			at := persisted[model.PutOptions{Key: put.Key, Value: put.Value}]
			if len(at) == 1 { // its value says which one it is
				all = append(all, write{c, i, at[0], put.Key, response.Revision})
			}
		}
	}
	if len(all) == 0 {
		return write{}, errors.New("no write was acknowledged")
	}
	slices.SortFunc(all, func(a, b write) int { return int(a.revision - b.revision) })
	return all[min(early, len(all)/2)], nil
}

// withoutEvent takes the write's event from a watch that heard of it and of later ones.
func withoutEvent(clients []report.ClientReport, w write) ([]report.ClientReport, error) {
	clients = slices.Clone(clients)
	for c := range clients {
		for o, watch := range clients[c].Watch {
			for i, response := range watch.Responses {
				at := slices.IndexFunc(response.Events, func(e model.WatchEvent) bool {
					return e.Revision == w.revision && e.Key == w.key
				})
				if at < 0 || !hearsLater(watch, w.revision) {
					continue
				}
				watch.Responses = slices.Clone(watch.Responses)
				watch.Responses[i].Events = slices.Delete(slices.Clone(response.Events), at, at+1)
				clients[c].Watch = slices.Clone(clients[c].Watch)
				clients[c].Watch[o] = watch
				return clients, nil
			}
		}
	}
	return nil, fmt.Errorf("no watcher heard of the write of %s at revision %d", w.key, w.revision)
}

func hearsLater(watch model.WatchOperation, revision int64) bool {
	return slices.ContainsFunc(watch.Responses, func(r model.WatchResponse) bool {
		return slices.ContainsFunc(r.Events, func(e model.WatchEvent) bool { return e.Revision > revision })
	})
}
