package main

// Contents: what the written values are made of. The same seed makes the same ones.

import (
	"flag"
	"fmt"
	"math/rand/v2"
)

// sizes is a flag for "64..1024" or "8192".
type sizes struct{ least, most int }

func (s *sizes) String() string { return fmt.Sprintf("%d..%d", s.least, s.most) }

func (s *sizes) Set(text string) error {
	if n, _ := fmt.Sscanf(text, "%d..%d", &s.least, &s.most); n == 1 {
		s.most = s.least
	} else if n != 2 {
		return fmt.Errorf("not SIZE or LEAST..MOST: %q", text)
	}
	if s.least < 0 || s.most < s.least || s.most > 1<<20 {
		return fmt.Errorf("sizes go from 0 to 1048576: %q", text)
	}
	return nil
}

func (s *sizes) flag(f *flag.FlagSet, least, most int) {
	s.least, s.most = least, most
	f.Var(s, "value-bytes", "size of the values, one or LEAST..MOST")
}

func (s *sizes) pick(r *rand.Rand) int { return s.least + r.IntN(s.most-s.least+1) }

// object reads like what Kubernetes keeps in etcd: about half of it repeats.
const object = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"settings","namespace":"default","labels":{"app.kubernetes.io/name":"example","app.kubernetes.io/managed-by":"tests"},"managedFields":[{"manager":"tests","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1"}]},"data":{"blob":"`

// value is text that compresses, then bytes that do not, half and half.
func value(r *rand.Rand, size int) []byte { return mixed(r, size, 50) }

// mixed is text that compresses, then bytes that do not: so many percent of it.
func mixed(r *rand.Rand, size, random int) []byte {
	b := make([]byte, 0, size+8)
	for text := size - size*random/100; len(b) < text; {
		b = append(b, object[:min(len(object), text-len(b))]...)
	}
	for len(b) < size {
		n := r.Uint64()
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(n>>32), byte(n>>40), byte(n>>48), byte(n>>56))
	}
	return b[:size]
}
