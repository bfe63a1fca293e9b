package main

// fill and bulk: writing data. fill makes a history such as a real cluster has,
// bulk only mass.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type fillResult struct {
	Revision int64   `json:"revision"`
	Keys     int64   `json:"keys"`
	Leases   int     `json:"leases"`
	Compact  int64   `json:"compactRevision"`
	Seconds  float64 `json:"seconds"`
}

const (
	fillWriters = 16 // each has keys of its own, so the final keys and values depend on the seed alone
	fillLeases  = 8
)

func fillVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	var size sizes
	size.flag(f, 64, 1024)
	keys := f.Int("keys", 20000, "how many keys to make; about one in ten is deleted again")
	seed := f.Uint64("seed", 1, "the same seed gives the same keys and values")
	prefix := f.String("prefix", "fill/", "what the keys begin with")
	f.Bool("json", true, "JSON is what is printed anyway")
	return func(ctx context.Context) (any, error) {
		c, err := t.client()
		if err != nil {
			return nil, err
		}
		defer c.Close()
		begin := time.Now()
		job := &fillJob{client: c, keys: *keys, seed: *seed, prefix: *prefix, size: size}
		for i := range fillLeases {
			// None runs out during a test; the times differ so that a mix-up shows.
			err := repeat(ctx, func() error {
				l, err := c.Grant(ctx, int64(3600*(i+2)))
				if err == nil {
					job.leases = append(job.leases, l.ID)
				}
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("granting a lease: %w", err)
			}
		}
		compacted, err := job.run(ctx)
		if err != nil {
			return nil, err
		}
		r, err := c.Get(ctx, *prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return nil, err
		}
		return fillResult{r.Header.Revision, r.Count, fillLeases, compacted, time.Since(begin).Seconds()}, nil
	}
}

type fillJob struct {
	client *clientv3.Client
	keys   int
	seed   uint64
	prefix string
	size   sizes
	leases []clientv3.LeaseID
	done   atomic.Int64
}

// run lets all writers do their first half, compacts, and lets them do the rest.
func (j *fillJob) run(ctx context.Context) (compacted int64, err error) {
	told := newProgress("fill", "keys", float64(j.keys))
	writers := make([]*rand.Rand, fillWriters)
	for i := range writers {
		writers[i] = rand.New(rand.NewPCG(j.seed, uint64(i)))
	}
	for half := range 2 {
		from, to := half*j.keys/2, (half+1)*j.keys/2
		err := inParallel(ctx, fillWriters, told, &j.done, func(ctx context.Context, w int) error {
			return j.write(ctx, writers[w], w, from, to)
		})
		if err != nil {
			return 0, err
		}
		if half == 0 {
			r, err := j.client.Get(ctx, j.prefix, clientv3.WithCountOnly())
			if err != nil {
				return 0, err
			}
			// Not up to the end: a history with some of it left is the harder case.
			compacted = max(1, r.Header.Revision-int64(j.keys/10))
			err = repeat(ctx, func() error {
				_, err := j.client.Compact(ctx, compacted)
				return err
			})
			// The answer to the attempt before was lost.
			if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
				return 0, fmt.Errorf("compacting: %w", err)
			}
		}
	}
	return compacted, nil
}

// inParallel runs the writers, tells meanwhile how much is done, and ends all of
// them at the first error.
func inParallel(ctx context.Context, writers int, told *progress, done *atomic.Int64, write func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				told.at(float64(done.Load()))
			case <-finished:
				return
			}
		}
	}()
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			if err := write(ctx, w); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// write makes one writer's keys among from..to, and now and then changes or
// deletes one that it has made before.
func (j *fillJob) write(ctx context.Context, r *rand.Rand, w, from, to int) error {
	key := func(n int) string { return fmt.Sprintf("%s%08d", j.prefix, n) }
	first := from + (w-from%fillWriters+fillWriters)%fillWriters
	for n := first; n < to; n += fillWriters {
		var options []clientv3.OpOption
		if r.IntN(100) == 0 {
			options = append(options, clientv3.WithLease(j.leases[r.IntN(len(j.leases))]))
		}
		if err := j.put(ctx, key(n), string(value(r, j.size.pick(r))), options...); err != nil {
			return err
		}
		earlier := first + fillWriters*r.IntN((n-first)/fillWriters+1)
		switch dice := r.IntN(10); {
		case dice < 3:
			if err := j.put(ctx, key(earlier), string(value(r, j.size.pick(r)))); err != nil {
				return err
			}
		case dice == 3:
			err := repeat(ctx, func() error {
				_, err := j.client.Delete(ctx, key(earlier))
				return err
			})
			if err != nil {
				return fmt.Errorf("deleting %s: %w", key(earlier), err)
			}
		}
		j.done.Add(1)
	}
	return nil
}

func (j *fillJob) put(ctx context.Context, key, value string, options ...clientv3.OpOption) error {
	err := repeat(ctx, func() error {
		_, err := j.client.Put(ctx, key, value, options...)
		return err
	})
	if err != nil {
		return fmt.Errorf("putting %s: %w", key, err)
	}
	return nil
}

type bulkResult struct {
	Revision int64   `json:"revision"`
	Keys     int64   `json:"keys"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
}

const (
	bulkWriters  = 8
	bulkRequest  = 1 << 20 // etcd takes 1.5 MiB in one request
	bulkMostKeys = 128     // and so many operations in one transaction
)

func bulkVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	var size sizes
	size.flag(f, 8192, 8192)
	total := byteSize(1 << 30)
	f.Var(&total, "bytes", "how much to write, such as 1GiB")
	seed := f.Uint64("seed", 1, "the same seed gives the same keys and values")
	prefix := f.String("prefix", "bulk/", "what the keys begin with")
	random := f.Int("random", 50, "how many percent of each value do not compress")
	return func(ctx context.Context) (any, error) {
		if *random < 0 || *random > 100 {
			return nil, fmt.Errorf("--random goes from 0 to 100: %d", *random)
		}
		c, err := t.client()
		if err != nil {
			return nil, err
		}
		defer c.Close()
		begin := time.Now()
		var left, written, keys, revision, mebibytes atomic.Int64
		left.Store(int64(total))
		told := newProgress("bulk", "MiB", float64(total)/(1<<20))
		err = inParallel(ctx, bulkWriters, told, &mebibytes, func(ctx context.Context, w int) error {
			r := rand.New(rand.NewPCG(*seed, uint64(w)))
			for n := w; ; {
				// What one request takes is reserved first, or all would write the end.
				share := min(bulkRequest, left.Add(-bulkRequest)+bulkRequest)
				if share <= 0 {
					return nil
				}
				var puts []clientv3.Op
				bytes := int64(0)
				for ; len(puts) < bulkMostKeys && bytes < share; n += bulkWriters {
					v := mixed(r, size.pick(r), *random)
					puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s%010d", *prefix, n), string(v)))
					bytes += int64(len(v))
				}
				left.Add(bulkRequest - bytes) // and what it did not take is given back
				var answer *clientv3.TxnResponse
				err := repeat(ctx, func() (err error) {
					answer, err = c.Txn(ctx).Then(puts...).Commit()
					return err
				})
				if err != nil {
					return fmt.Errorf("writing %d keys: %w", len(puts), err)
				}
				written.Add(bytes)
				keys.Add(int64(len(puts)))
				mebibytes.Store(written.Load() >> 20)
				for old := revision.Load(); old < answer.Header.Revision && !revision.CompareAndSwap(old, answer.Header.Revision); old = revision.Load() {
				}
			}
		})
		return bulkResult{revision.Load(), keys.Load(), written.Load(), time.Since(begin).Seconds()}, err
	}
}
