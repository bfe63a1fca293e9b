package main

// Compactions of the `etcd` traffic. Upstream's loop panics when a member that lags behind tells it a revision below the last
// compacted one, which a Service makes usual.

import (
	"context"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
)

// Upstream asks for revisions that are compacted, or in the future, on purpose.
const future = 5

type patientTraffic struct{ traffic.Traffic }

func (patientTraffic) RunCompactLoop(ctx context.Context, c *client.RecordingClient, p traffic.RunCompactLoopParam) {
	last := int64(2)
	tick := time.NewTicker(p.Period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Finish:
			return
		case <-tick.C:
		}
		once, cancel := context.WithTimeout(ctx, traffic.RequestTimeout)
		status, err := c.Status(once, c.Endpoints()[0])
		cancel()
		if err != nil || status.Header.Revision+future <= last {
			continue
		}
		at := last + rand.Int64N(status.Header.Revision+future-last)
		if _, err := c.Compact(ctx, at); err == nil {
			last = at
		}
	}
}
