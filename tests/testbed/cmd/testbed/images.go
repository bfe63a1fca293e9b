package main

// The images: which ones the testbed brings, what is in them, and loading those
// that containerd does not have.

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const pauseImage = "localhost/pause:1"

// base is what every image but pause starts with: the names of the usual users
// and a place for temporary files. There is no shell: etcd's own images have none
// either, so nothing here may come to need one.
var base = []imageFile{
	{Path: "/etc/passwd", Mode: 0o644, Text: "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"},
	{Path: "/etc/group", Mode: 0o644, Text: "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n"},
	{Path: "/tmp/", Mode: 0o1777},
}

var basePath = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

func testbedImages(l layout, s *partSet, v versions) []image {
	file := func(path, part, program string) imageFile {
		return imageFile{Path: path, Source: s.binary(l, part, program), Mode: 0o755}
	}
	one := func(name, path, part, program string) image {
		return image{Name: name, Files: append([]imageFile{file(path, part, program)}, base...),
			Config: imageConfig{Env: basePath, Entrypoint: []string{path}}}
	}
	images := []image{
		{Name: pauseImage, Files: []imageFile{file("/pause", "pause", "pause")}, Config: imageConfig{Entrypoint: []string{"/pause"}, User: "65535:65535"}},
		one("localhost/coredns:"+v["COREDNS"], "/usr/local/bin/coredns", "coredns", "coredns"),
		one("localhost/holdfast-probe:1", "/usr/local/bin/holdfast-probe", "probe", "holdfast-probe"),
	}
	// The S3 server cannot make its own bucket folder, and there is no shell to do it.
	s3 := one("localhost/versitygw:"+v["VERSITYGW"], "/usr/local/bin/versitygw", "versitygw", "versitygw")
	s3.Files = append(s3.Files, file("/usr/local/bin/holdfast-probe", "probe", "holdfast-probe"))
	images = append(images, s3)

	for _, minor := range s.minors {
		etcd := image{
			Name:  "gcr.io/etcd-development/etcd:v" + v[etcdVariable(minor)],
			Files: append([]imageFile{{Path: "/var/etcd/", Mode: 0o755}, {Path: "/var/lib/etcd/", Mode: 0o755}}, base...),
			// As upstream's: no entry point, no user.
			Config: imageConfig{Env: basePath, Cmd: []string{"/usr/local/bin/etcd"}, WorkingDir: "/var/lib/etcd/"},
		}
		for _, program := range s.byName["etcd-"+minor].programs {
			etcd.Files = append(etcd.Files, file("/usr/local/bin/"+program.name, "etcd-"+minor, program.name))
		}
		images = append(images, etcd)
	}
	return images
}

// loadedImage says what was imported under a name. The key covers the image's
// description, in which the sources' paths hold the parts' hashes; the digest
// tells whether somebody has put another image in its place since.
type loadedImage struct{ Key, Digest string }

func (l layout) imageRecord() string { return l.inState("images.json") }

// loadImages imports what containerd lacks, in its present content.
func loadImages(l layout, images []image) error {
	loaded := map[string]loadedImage{}
	if b, err := os.ReadFile(l.imageRecord()); err == nil {
		if err := json.Unmarshal(b, &loaded); err != nil {
			return fmt.Errorf("%s: %w", l.imageRecord(), err)
		}
	}
	present, err := imageDigests(l)
	if err != nil {
		return err
	}
	for _, m := range images {
		key := digest(mustJSON(m))
		if have := loaded[m.Name]; have.Key == key && have.Digest != "" && present[m.Name] == have.Digest {
			continue
		}
		start := time.Now()
		d, err := loadImage(l, m)
		if err != nil {
			return err
		}
		say("loaded image %s (%s)", m.Name, time.Since(start).Round(time.Second/10))
		loaded[m.Name] = loadedImage{key, d}
		if err := writeFile(l.imageRecord(), mustJSON(loaded), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// loadImage makes an image straight into containerd.
func loadImage(l layout, m image) (string, error) {
	r, w := io.Pipe()
	type result struct {
		digest string
		err    error
	}
	written := make(chan result, 1)
	go func() {
		d, err := m.writeArchive(w)
		w.CloseWithError(err)
		written <- result{d, err}
	}()
	_, err := importImage(l, r)
	r.CloseWithError(err) // in case the importer ended before the writer
	res := <-written
	if err != nil {
		return "", err
	}
	return res.digest, res.err
}

// imageMain makes an image of a person's own files: NAME SOURCE:PATH... [-- ENTRYPOINT...].
func imageMain(l layout, args []string) error {
	const usage = "usage: testbed image NAME SOURCE:PATH... [-- ENTRYPOINT...]"
	if len(args) < 2 {
		return fmt.Errorf(usage)
	}
	m := image{Name: args[0], Files: base, Config: imageConfig{Env: basePath}}
	for i, a := range args[1:] {
		if a == "--" {
			m.Config.Entrypoint = args[i+2:]
			break
		}
		source, path, ok := strings.Cut(a, ":")
		if !ok || !filepath.IsAbs(path) {
			return fmt.Errorf("%q is not SOURCE:PATH with an absolute PATH\n%s", a, usage)
		}
		m.Files = append(m.Files, imageFile{Path: path, Source: source, Mode: 0o755})
	}
	d, err := loadImage(l, m)
	if err == nil {
		fmt.Println(m.Name, d)
	}
	return err
}

// loadImageMain imports an archive that something else made.
func loadImageMain(l layout, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: testbed load-image FILE.tar")
	}
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	out, err := importImage(l, f)
	fmt.Print(out)
	return err
}
