package main

// digest and members: what a cluster holds and who is in it, as seen through the
// quorum. Two clusters with the same digest have the same keys, with the same
// revisions, versions and leases.

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type digestResult struct {
	Keys     int64  `json:"keys"`
	Leases   int    `json:"leases"`
	Revision int64  `json:"revision"`
	Digest   string `json:"digest"`
}

const pageKeys = 1000

func digestVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	prefix := f.String("prefix", "", "only keys that begin with this")
	revision := f.Int64("revision", 0, "the revision to look at; the present one if 0")
	return func(ctx context.Context) (any, error) {
		c, err := t.client()
		if err != nil {
			return nil, err
		}
		defer c.Close()
		h := sha256.New()
		result := digestResult{Revision: *revision}
		if err := hashKeys(ctx, c, h, *prefix, &result); err != nil {
			return nil, err
		}
		if err := hashLeases(ctx, c, h, &result); err != nil {
			return nil, err
		}
		result.Digest = hex.EncodeToString(h.Sum(nil))
		return result, nil
	}
}

// hashKeys reads page after page at the revision that the first, linearizable,
// answer was given at. Keys come sorted.
func hashKeys(ctx context.Context, c *clientv3.Client, h hash.Hash, prefix string, result *digestResult) error {
	key, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	if prefix == "" {
		key, end = "\x00", "\x00"
	}
	for {
		r, err := c.Get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(pageKeys), clientv3.WithRev(result.Revision))
		if err != nil {
			return fmt.Errorf("reading keys at revision %d: %w", result.Revision, err)
		}
		if result.Revision == 0 {
			result.Revision = r.Header.Revision
		}
		for _, kv := range r.Kvs {
			hashBytes(h, kv.Key)
			hashBytes(h, kv.Value)
			hashNumbers(h, kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
			result.Keys++
		}
		if !r.More {
			return nil
		}
		key = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// hashLeases takes all leases of the cluster with the time they were granted for,
// not the time they have left. Leases have no revisions: they are as of now.
func hashLeases(ctx context.Context, c *clientv3.Client, h hash.Hash, result *digestResult) error {
	all, err := c.Leases(ctx)
	if err != nil {
		return fmt.Errorf("listing leases: %w", err)
	}
	slices.SortFunc(all.Leases, func(a, b clientv3.LeaseStatus) int { return cmp.Compare(a.ID, b.ID) })
	for _, l := range all.Leases {
		ttl, err := c.TimeToLive(ctx, l.ID)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && ttl.TTL < 0 {
			continue // it has just run out
		} else if err != nil {
			return fmt.Errorf("reading lease %x: %w", int64(l.ID), err)
		}
		hashNumbers(h, int64(l.ID), ttl.GrantedTTL)
		result.Leases++
	}
	return nil
}

// hashBytes puts the length first, so that no two lists of strings look the same.
func hashBytes(h hash.Hash, b []byte) {
	hashNumbers(h, int64(len(b)))
	h.Write(b)
}

func hashNumbers(h hash.Hash, numbers ...int64) {
	var b []byte
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	h.Write(b)
}

type membersResult struct {
	ClusterID string   `json:"clusterID"`
	Members   []member `json:"members"`
}

type member struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	IsLearner  bool     `json:"isLearner"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
}

func membersVerb(f *flag.FlagSet) func(context.Context) (any, error) {
	var t target
	t.flags(f)
	return func(ctx context.Context) (any, error) {
		c, err := t.client()
		if err != nil {
			return nil, err
		}
		defer c.Close()
		r, err := c.MemberList(ctx) // linearizable unless asked otherwise
		if err != nil {
			return nil, err
		}
		result := membersResult{ClusterID: fmt.Sprintf("%x", r.Header.ClusterId), Members: []member{}}
		for _, m := range r.Members {
			result.Members = append(result.Members, member{fmt.Sprintf("%x", m.ID), m.Name, m.IsLearner, m.PeerURLs, m.ClientURLs})
		}
		slices.SortFunc(result.Members, func(a, b member) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		})
		return result, nil
	}
}
