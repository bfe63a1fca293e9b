package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestPlainSendsEveryByteOnceAndInOrder(t *testing.T) {
	random := rand.NewChaCha8([32]byte{})
	for _, size := range []int{1, plainPart, plainPart + 1, 7*plainPart + 3} {
		data := make([]byte, size)
		random.Read(data)
		var lock sync.Mutex
		parts, whole := map[int][]byte{}, []byte(nil)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ") {
				t.Error("not signed")
			}
			body, _ := io.ReadAll(r.Body)
			lock.Lock()
			defer lock.Unlock()
			query := r.URL.Query()
			switch {
			case query.Has("uploads"):
				fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>")
			case query.Get("uploadId") != "u1":
				t.Errorf("%s without its upload", r.URL)
			case query.Has("partNumber"):
				number, _ := strconv.Atoi(query.Get("partNumber"))
				parts[number] = body
				w.Header().Set("ETag", fmt.Sprintf("%q", "e"+query.Get("partNumber")))
			default:
				var told plainUpload
				if err := xml.Unmarshal(body, &told); err != nil {
					t.Error(err)
				}
				for i, p := range told.Parts {
					if p.PartNumber != i+1 || p.ETag != fmt.Sprintf("%q", fmt.Sprintf("e%d", i+1)) {
						t.Errorf("part %d is told as %v", i+1, p)
					}
					whole = append(whole, parts[p.PartNumber]...)
				}
			}
		}))
		if err := plainObject(context.Background(), bytes.NewReader(data), server.URL+"/bucket/key"); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(whole, data) {
			t.Errorf("%d bytes: others came", size)
		}
		server.Close()
	}
}

func TestPlainSaysWhatTheServerSays(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	err := plainObject(context.Background(), strings.NewReader("x"), server.URL+"/bucket/key")
	if err == nil || !strings.Contains(err.Error(), "404") {
		t.Fatal(err)
	}
}

func TestPlainNamesAFileWhenItIsWhole(t *testing.T) {
	folder := t.TempDir()
	if err := plainFile(strings.NewReader("all of it"), filepath.Join(folder, "a.db")); err != nil {
		t.Fatal(err)
	}
	broken := io.MultiReader(strings.NewReader("half"), iotestError{})
	if err := plainFile(broken, filepath.Join(folder, "b.db")); err == nil {
		t.Fatal("a stream that broke is a file")
	}
	left, _ := os.ReadDir(folder)
	if len(left) != 1 || left[0].Name() != "a.db" {
		t.Fatal(left)
	}
}

type iotestError struct{}

func (iotestError) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
