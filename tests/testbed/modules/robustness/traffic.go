package main

// Clients of etcd's suite at work on a cluster, and what they recorded. The order of the calls is upstream's
// (robustness/main_test.go and antithesis/test-template), whose functions for it want a cluster of their own.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
)

// What is known of a run beside its operations.
type runFacts struct {
	EtcdVersion string  `json:"etcdVersion"`
	Traffic     string  `json:"traffic"`
	Rate        int     `json:"rate"`
	Seconds     float64 `json:"seconds"`
}

var traffics = map[string]traffic.Traffic{
	"etcd":       patientTraffic{traffic.EtcdPutDeleteLease},
	"kubernetes": traffic.Kubernetes,
}

const (
	// Of the keys that the traffic writes to, as upstream.
	keys = 10
	// The cluster has to answer within this after the traffic, and watchers to hear all of it.
	settling = 2 * time.Minute
)

func recordTraffic(ctx context.Context, lg *zap.Logger, folder, endpoints, kind string, most int) error {
	hosts := strings.Split(endpoints, ",")
	tf, known := traffics[kind]
	if !known || endpoints == "" {
		return fmt.Errorf("--traffic is etcd or kubernetes, and --endpoints names at least one")
	}
	facts := runFacts{Traffic: kind, Rate: most}
	var err error
	if facts.EtcdVersion, err = serverVersion(ctx, hosts); err != nil {
		return err
	}
	base := time.Now()
	ids := identity.NewIDProvider()
	writers, watchers := client.NewSet(ids, base), client.NewSet(ids, base)
	defer writers.Close()
	defer watchers.Close()
	if err := traffic.CheckEmptyDatabaseAtStart(ctx, lg, hosts, writers); err != nil {
		return err
	}
	var all errgroup.Group
	last := make(chan int64, 1)
	begun := time.Now()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	all.Go(func() error {
		defer close(last)
		if err := simulate(ctx, lg, tf, hosts, writers, most); err != nil {
			return err
		}
		facts.Seconds = time.Since(begun).Seconds()
		if err := writeTombstone(ctx, lg, hosts, writers); err != nil {
			return err
		}
		last <- report.OperationsMaxRevision(writers.Reports())
		time.AfterFunc(settling, cancel)
		return nil
	})
	all.Go(func() error {
		return client.CollectClusterWatchEvents(watching, client.CollectClusterWatchEventsParam{
			Lg: lg, Endpoints: hosts, MaxRevisionChan: last, ClientSet: watchers,
		})
	})
	if err := all.Wait(); err != nil {
		return err
	}
	saved, err := report.NewTestReport(lg, clientsOf(folder), nil, &report.TrafficDetail{ExpectUniqueRevision: tf.ExpectUniqueRevision()})
	if err != nil {
		return err
	}
	saved.SetClientReports(slices.Concat(writers.Reports(), watchers.Reports()))
	if err := saved.SaveEtcdData(); err != nil {
		return err
	}
	b, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	return os.WriteFile(runOf(folder), b, 0o644)
}

// simulate lets clients work until standard input ends.
func simulate(ctx context.Context, lg *zap.Logger, tf traffic.Traffic, hosts []string, set *client.ClientSet, most int) error {
	var wg sync.WaitGroup
	profile := traffic.KeyValueMedium
	profile.MaximalQPS = float64(most)
	watch, compaction := traffic.WatchDefault, traffic.CompactionDefault
	limiter := rate.NewLimiter(rate.Limit(most), most)
	store, storage := traffic.NewKeyStore(keys, "key"), traffic.NewKubernetesStorage()
	finish := make(chan struct{})
	stop := sync.OnceFunc(func() { close(finish) })
	defer wg.Wait()
	defer stop()
	if err := traffic.SimulateKeyValueTraffic(ctx, &wg, &profile, hosts, set, tf, traffic.RunTrafficLoopParam{
		QPSLimiter:                         limiter,
		IDs:                                set.IdentityProvider(),
		LeaseIDStorage:                     identity.NewLeaseIDStorage(),
		NonUniqueRequestConcurrencyLimiter: traffic.NewConcurrencyLimiter(profile.MaxNonUniqueRequestConcurrency),
		KeyStore:                           store,
		Storage:                            storage,
		Finish:                             finish,
	}); err != nil {
		return err
	}
	if err := traffic.SimulateWatchTraffic(ctx, &wg, &watch, hosts, set, tf, traffic.RunWatchLoopParam{
		Config: watch, QPSLimiter: limiter, KeyStore: store, Storage: storage, Finish: finish, Logger: lg,
	}); err != nil {
		return err
	}
	if err := traffic.SimulateCompactionTraffic(ctx, &wg, &compaction, hosts, set, tf, traffic.RunCompactLoopParam{
		Period: compaction.Period, Finish: finish,
	}); err != nil {
		return err
	}
	fmt.Println("traffic runs")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		io.Copy(io.Discard, os.Stdin)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeTombstone ends the history with a write that succeeds, as the validators ask for. Each attempt has a value of its own,
// because they tell unique writes apart by it.
func writeTombstone(ctx context.Context, lg *zap.Logger, hosts []string, set *client.ClientSet) error {
	c, err := set.NewClient(hosts)
	if err != nil {
		return err
	}
	defer c.Close()
	until := time.Now().Add(settling)
	for attempt := 1; ; attempt++ {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := c.Put(once, "tombstone", fmt.Sprintf("true-%d", attempt))
		cancel()
		if err == nil || ctx.Err() != nil || time.Now().After(until) {
			return err
		}
		lg.Warn("The last write failed and is tried again", zap.Error(err))
	}
}

func serverVersion(ctx context.Context, hosts []string) (string, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: hosts, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return "", err
	}
	defer c.Close()
	once, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	status, err := c.Status(once, hosts[0])
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", hosts[0], err)
	}
	return status.Version, nil
}
