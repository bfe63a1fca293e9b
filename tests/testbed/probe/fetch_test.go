package main

import (
	"bytes"
	"context"
	"flag"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func fetched(object, to string) error {
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	do := fetchVerb(flags)
	if err := flags.Parse([]string{"--object", object, "--to", to}); err != nil {
		return err
	}
	_, err := do(context.Background())
	return err
}

func TestFetchPutsRangesWhereTheyBelong(t *testing.T) {
	random := rand.NewChaCha8([32]byte{})
	for _, size := range []int{1, fetchRange, fetchRange + 1, 7*fetchRange + 3} {
		data := make([]byte, size)
		random.Read(data)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ") {
				t.Error("not signed")
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		}))
		to := filepath.Join(t.TempDir(), "object")
		if err := fetched(server.URL+"/bucket/key", to); err != nil {
			t.Fatal(err)
		}
		if found, _ := os.ReadFile(to); !bytes.Equal(found, data) {
			t.Errorf("%d bytes: others came", size)
		}
		server.Close()
	}
}

func TestFetchSaysWhatTheServerSays(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	err := fetched(server.URL+"/bucket/key", filepath.Join(t.TempDir(), "object"))
	if err == nil || !strings.Contains(err.Error(), "404") {
		t.Fatal(err)
	}
}
