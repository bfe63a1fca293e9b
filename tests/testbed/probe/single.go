package main

// The small verbs: one key, one wait, and what a Pod without a shell cannot do itself.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

type keyResult struct {
	Key            string `json:"key"`
	Found          bool   `json:"found"`
	Value          string `json:"value,omitempty"`
	CreateRevision int64  `json:"createRevision,omitempty"`
	ModRevision    int64  `json:"modRevision,omitempty"`
	Version        int64  `json:"version,omitempty"`
	Lease          int64  `json:"lease,omitempty"`
	Revision       int64  `json:"revision"`
}

func putVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	key := f.String("key", "", "the key")
	value := f.String("value", "", "the value")
	timeout := f.Duration("timeout", 2*time.Minute, "when to give up")
	return func(ctx context.Context) (any, error) {
		return t.with(ctx, *timeout, func(ctx context.Context, c *clientv3.Client) (any, error) {
			var r *clientv3.PutResponse
			err := repeat(ctx, func() (err error) {
				r, err = c.Put(ctx, *key, *value)
				return err
			})
			if err != nil {
				return nil, err
			}
			return keyResult{Key: *key, Found: true, Value: *value, ModRevision: r.Header.Revision, Revision: r.Header.Revision}, nil
		})
	}
}

func getVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	key := f.String("key", "", "the key")
	timeout := f.Duration("timeout", 10*time.Second, "when to give up")
	serializable := f.Bool("serializable", false, "ask one member only, not the quorum")
	return func(ctx context.Context) (any, error) {
		return t.with(ctx, *timeout, func(ctx context.Context, c *clientv3.Client) (any, error) {
			var options []clientv3.OpOption
			if *serializable {
				options = append(options, clientv3.WithSerializable())
			}
			r, err := c.Get(ctx, *key, options...)
			if err != nil {
				return nil, err
			}
			result := keyResult{Key: *key, Revision: r.Header.Revision}
			for _, kv := range r.Kvs {
				result = keyResult{*key, true, string(kv.Value), kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease, r.Header.Revision}
			}
			return result, nil
		})
	}
}

func (t *target) with(ctx context.Context, timeout time.Duration, do func(context.Context, *clientv3.Client) (any, error)) (any, error) {
	c, err := t.client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return do(ctx, c)
}

type waitResult struct {
	Seconds  float64 `json:"seconds"`
	Revision int64   `json:"revision"`
}

func waitVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	timeout := f.Duration("timeout", time.Minute, "when to give up")
	return func(ctx context.Context) (any, error) {
		begin := time.Now()
		return t.with(ctx, *timeout, func(ctx context.Context, c *clientv3.Client) (any, error) {
			last := errors.New("no attempt was made")
			for ctx.Err() == nil {
				attempt, cancel := context.WithTimeout(ctx, time.Second)
				r, err := c.Get(attempt, "wait")
				cancel()
				if err == nil {
					return waitResult{time.Since(begin).Seconds(), r.Header.Revision}, nil
				}
				last = err
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
			return nil, fmt.Errorf("no answer within %s: %w", *timeout, last)
		})
	}
}

func mkdirVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	return func(context.Context) (any, error) {
		for _, dir := range f.Args() {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

func sleepVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	duration := f.Duration("duration", time.Hour, "for how long")
	return func(ctx context.Context) (any, error) {
		select {
		case <-ctx.Done():
		case <-time.After(*duration):
		}
		return nil, nil
	}
}
