package main

// dial: whether clients that come new find a server, and how long it takes. It
// speaks gRPC itself, because etcd's client hides refused connections by trying again.

import (
	"context"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

type dialResult struct {
	Attempts int            `json:"attempts"`
	Failed   int            `json:"failed"`
	Errors   map[string]int `json:"errors"`
	P50      float64        `json:"p50Ms"` // of those that succeeded
	P99      float64        `json:"p99Ms"`
	Max      float64        `json:"maxMs"`
}

const (
	dialMostRate = 1000
	dialMostTime = 10 * time.Minute
	dialInFlight = 512
)

func dialVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	rate := f.Int("rate", 100, "new connections a second")
	duration := f.Duration("duration", 30*time.Second, "for how long")
	timeout := f.Duration("timeout", 5*time.Second, "when an attempt has failed")
	key := f.String("key", "dial", "the key that each connection reads; it need not exist")
	return func(ctx context.Context) (any, error) {
		if *rate < 1 || *rate > dialMostRate || *duration <= 0 || *duration > dialMostTime {
			return nil, fmt.Errorf("--rate goes from 1 to %d, --duration up to %s", dialMostRate, dialMostTime)
		}
		config, err := t.tls()
		if err != nil {
			return nil, err
		}
		transport := insecure.NewCredentials()
		if config != nil {
			transport = credentials.NewTLS(config)
		}
		_, address, _ := strings.Cut(t.endpoint, "://")
		once := func() error {
			ctx, cancel := context.WithTimeout(ctx, *timeout)
			defer cancel()
			// "passthrough": the dialler resolves the name, anew for each connection.
			c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(transport))
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = pb.NewKVClient(c).Range(ctx, &pb.RangeRequest{Key: []byte(*key)})
			return err
		}
		return dialAll(ctx, *rate, *duration, once), nil
	}
}

func dialAll(ctx context.Context, rate int, duration time.Duration, once func() error) dialResult {
	result := dialResult{Errors: map[string]int{}}
	var guard sync.Mutex
	var times []float64
	count := func(took time.Duration, err error) {
		guard.Lock()
		defer guard.Unlock()
		result.Attempts++
		if err == nil {
			times = append(times, float64(took.Microseconds())/1000)
			return
		}
		result.Failed++
		s := status.Convert(err)
		result.Errors[fmt.Sprintf("%s: %s", s.Code(), s.Message())]++
	}
	total := int(float64(rate) * duration.Seconds())
	told := newProgress("dial", "connections", float64(total))
	slots := make(chan struct{}, dialInFlight)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	var all sync.WaitGroup
	for n := range total {
		select {
		case <-tick.C:
		case <-ctx.Done():
			all.Wait()
			return summarize(result, times)
		}
		slots <- struct{}{}
		all.Go(func() {
			start := time.Now()
			err := once()
			<-slots
			count(time.Since(start), err)
		})
		told.at(float64(n))
	}
	all.Wait()
	return summarize(result, times)
}

func summarize(r dialResult, times []float64) dialResult {
	if len(times) == 0 {
		return r
	}
	slices.Sort(times)
	at := func(q float64) float64 { return times[int(math.Ceil(q*float64(len(times))))-1] }
	r.P50, r.P99, r.Max = at(0.5), at(0.99), times[len(times)-1]
	return r
}
