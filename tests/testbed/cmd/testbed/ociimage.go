package main

// Writes images: an OCI archive with one layer, from files on the host, on top of
// nothing. It decides the form (always the same bytes for the same files); which
// images there are is images.go's.

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// An image is what goes into the archive. Owners are root and times are zero:
// the same files give the same digest.
type image struct {
	Name   string
	Files  []imageFile
	Config imageConfig
}

type imageFile struct {
	Path   string // in the image; ends in "/" for a folder
	Source string // on the host; empty: Text is the content
	Text   string
	Mode   int64
}

// imageConfig is the part of the OCI image configuration that we use.
type imageConfig struct {
	User       string   `json:",omitempty"`
	Env        []string `json:",omitempty"`
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
	WorkingDir string   `json:",omitempty"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// writeArchive writes the image and gives the digest that containerd will know it by.
func (m image) writeArchive(w io.Writer) (string, error) {
	// The layer's name in the archive is its hash, so it is made twice: once to
	// be hashed, once to be written. That is cheaper than a copy on disk.
	layer := &countingHash{Hash: sha256.New()}
	if err := m.writeLayer(layer); err != nil {
		return "", err
	}
	layerDigest := "sha256:" + hex.EncodeToString(layer.Sum(nil))

	config := mustJSON(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       m.Config,
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{layerDigest}},
	})
	manifest := mustJSON(map[string]any{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.manifest.v1+json",
		"config":        descriptor{MediaType: "application/vnd.oci.image.config.v1+json", Digest: digest(config), Size: int64(len(config))},
		"layers":        []descriptor{{MediaType: "application/vnd.oci.image.layer.v1.tar", Digest: layerDigest, Size: layer.n}},
	})
	index := mustJSON(map[string]any{
		"schemaVersion": 2,
		"manifests": []descriptor{{
			MediaType: "application/vnd.oci.image.manifest.v1+json", Digest: digest(manifest), Size: int64(len(manifest)),
			Annotations: map[string]string{"io.containerd.image.name": m.Name},
		}},
	})

	t := tar.NewWriter(w)
	for _, f := range []struct {
		name    string
		content []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
		{blobPath(digest(manifest)), manifest},
		{blobPath(digest(config)), config},
	} {
		if err := t.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.content))}); err != nil {
			return "", err
		}
		if _, err := t.Write(f.content); err != nil {
			return "", err
		}
	}
	if err := t.WriteHeader(&tar.Header{Name: blobPath(layerDigest), Mode: 0o644, Size: layer.n}); err != nil {
		return "", err
	}
	if err := m.writeLayer(t); err != nil {
		return "", err
	}
	return digest(manifest), t.Close()
}

func (m image) writeLayer(w io.Writer) error {
	t := tar.NewWriter(w)
	for _, f := range withParents(m.Files) {
		if err := writeEntry(t, f); err != nil {
			return fmt.Errorf("image %s: %w", m.Name, err)
		}
	}
	return t.Close()
}

func writeEntry(t *tar.Writer, f imageFile) error {
	h := &tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode, Typeflag: tar.TypeReg, Size: int64(len(f.Text))}
	if strings.HasSuffix(f.Path, "/") {
		h.Typeflag = tar.TypeDir
		return t.WriteHeader(h)
	}
	content := io.Reader(strings.NewReader(f.Text))
	if f.Source != "" {
		file, err := os.Open(f.Source)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		h.Size, content = info.Size(), file
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(t, content)
	return err
}

// withParents adds the folders that the files are in, sorted so that each comes
// before what is in it.
func withParents(files []imageFile) []imageFile {
	have := map[string]bool{}
	for _, f := range files {
		have[f.Path] = true
	}
	all := slices.Clone(files)
	for _, f := range files {
		for dir := path.Dir(strings.TrimSuffix(f.Path, "/")); dir != "/" && dir != "."; dir = path.Dir(dir) {
			if p := dir + "/"; !have[p] {
				have[p] = true
				all = append(all, imageFile{Path: p, Mode: 0o755})
			}
		}
	}
	slices.SortFunc(all, func(a, b imageFile) int { return strings.Compare(a.Path, b.Path) })
	return all
}

type countingHash struct {
	hash.Hash
	n int64
}

func (c *countingHash) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return c.Hash.Write(b)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func blobPath(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

// mustJSON is for values that are made here of strings, numbers and slices.
func mustJSON(v any) []byte {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}
