package main

// writer and written: whether a write that was acknowledged is still there later,
// whatever happened to the cluster in between.

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

type writerResult struct {
	LastAcked int64   `json:"lastAcked"` // every number from 1 to this one was acknowledged
	Revision  int64   `json:"revision"`  // that the last one was acknowledged at
	Failed    int     `json:"failed"`    // attempts without an answer; each was repeated
	Logins    int     `json:"logins"`    // times that the password was read again and etcd took it
	LongestMs float64 `json:"longestGapMs"`
	P50Ms     float64 `json:"p50Ms"` // of the acknowledged attempts
	P99Ms     float64 `json:"p99Ms"`
	LastError string  `json:"lastError,omitempty"`
}

func writerKey(prefix string, n int64) string { return fmt.Sprintf("%s%010d", prefix, n) }

func writerVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	prefix := f.String("prefix", "writer/", "what the keys begin with")
	duration := f.Duration("duration", 30*time.Second, "for how long")
	rate := f.Int("rate", 100, "at most so many a second")
	timeout := f.Duration("timeout", 2*time.Second, "when an attempt is given up and repeated")
	return func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, *duration)
		defer cancel()
		told := newProgress("writer", "s", duration.Seconds())
		begin := time.Now()
		r, took, err := writeNumbers(ctx, t, *prefix, *rate, *timeout, func() { told.at(time.Since(begin).Seconds()) })
		if err != nil {
			return nil, err
		}
		if slices.Sort(took); len(took) > 0 {
			r.P50Ms, r.P99Ms = took[len(took)/2], took[len(took)*99/100]
		}
		return r, nil
	}
}

// writeNumbers puts 1, 2, 3 and so on until its time is over. An attempt without an answer may or may not have been
// written: the same number is tried again. It gives how long each acknowledged attempt took, in milliseconds.
func writeNumbers(ctx context.Context, t target, prefix string, rate int, timeout time.Duration, tell func()) (writerResult, []float64, error) {
	c, err := t.client()
	if err != nil {
		return writerResult{}, nil, err
	}
	defer func() { c.Close() }()
	tick := time.NewTicker(time.Second / time.Duration(max(1, rate)))
	defer tick.Stop()
	var r writerResult
	var took []float64
	for last := time.Now(); ctx.Err() == nil; {
		n := r.LastAcked + 1
		asked := time.Now()
		attempt, done := context.WithTimeout(ctx, timeout)
		answer, err := c.Put(attempt, writerKey(prefix, n), strconv.FormatInt(n, 10))
		done()
		if err == nil {
			now := time.Now()
			took = append(took, float64(now.Sub(asked).Microseconds())/1000)
			r.LastAcked, r.Revision = n, answer.Header.Revision
			r.LongestMs = max(r.LongestMs, float64(now.Sub(last).Microseconds())/1000)
			last = now
		} else if ctx.Err() == nil {
			r.Failed++
			r.LastError = err.Error()
			if other := t.again(err); other != nil {
				c.Close()
				c = other
				r.Logins++
			}
		}
		tell()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return r, took, nil
}

type writtenResult struct {
	Found        int64  `json:"found"`
	Missing      int64  `json:"missing"`
	FirstMissing string `json:"firstMissing,omitempty"`
	Revision     int64  `json:"revision"`
}

func writtenVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	prefix := f.String("prefix", "writer/", "what the keys begin with")
	last := f.Int64("last", 0, "the last number that was acknowledged")
	return func(ctx context.Context) (any, error) {
		c, err := t.client()
		if err != nil {
			return nil, err
		}
		defer c.Close()
		r, err := findWritten(ctx, c, *prefix, *last)
		if err == nil && r.Missing > 0 {
			err = fmt.Errorf("%d acknowledged writes are not there, the first is %s", r.Missing, r.FirstMissing)
		}
		return r, err
	}
}

// findWritten looks for the keys of the numbers from 1 to the last one, at one revision.
func findWritten(ctx context.Context, c *clientv3.Client, prefix string, last int64) (writtenResult, error) {
	var r writtenResult
	end := writerKey(prefix, last+1)
	expected := int64(1)
	for from := writerKey(prefix, 1); ; {
		page, err := c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageKeys), clientv3.WithRev(r.Revision), clientv3.WithKeysOnly())
		if err != nil {
			return r, err
		}
		if r.Revision == 0 {
			r.Revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			for ; expected <= last && writerKey(prefix, expected) != string(kv.Key); expected++ {
				r.miss(writerKey(prefix, expected))
			}
			expected++
			r.Found++
		}
		if !page.More {
			break
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
	for ; expected <= last; expected++ {
		r.miss(writerKey(prefix, expected))
	}
	return r, nil
}

func (r *writtenResult) miss(key string) {
	if r.Missing == 0 {
		r.FirstMissing = key
	}
	r.Missing++
}
