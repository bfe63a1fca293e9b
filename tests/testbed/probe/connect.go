package main

// Connections: the flags that say where a cluster is and how to prove who we are.

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

type target struct {
	endpoint, cacert, cert, key string
	user, passwordFile          string
	giveUp                      time.Duration
}

func (t *target) flags(f *flag.FlagSet) {
	f.StringVar(&t.endpoint, "endpoint", "http://127.0.0.1:2379", "client URL, or several with commas between them")
	f.StringVar(&t.cacert, "cacert", "", "certificate authority of the servers")
	f.StringVar(&t.cert, "cert", "", "client certificate")
	f.StringVar(&t.key, "key-file", "", "the client certificate's key")
	f.StringVar(&t.user, "user", "", "name and password, with a colon between them")
	f.StringVar(&t.passwordFile, "password-file", "", "the password of --user, which is then a name alone; writers read it again when etcd refuses it")
	f.DurationVar(&t.giveUp, "give-up", 0, "end with an error after this time; 0 waits for ever")
}

func (t *target) endpoints() []string { return strings.Split(t.endpoint, ",") }

// tls is nil where the endpoint is plain.
func (t *target) tls() (*tls.Config, error) {
	if !strings.HasPrefix(t.endpoint, "https://") {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.cacert != "" {
		pem, err := os.ReadFile(t.cacert)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", t.cacert)
		}
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (t *target) client() (*clientv3.Client, error) {
	config, err := t.tls()
	if err != nil {
		return nil, err
	}
	if t.giveUp > 0 {
		time.AfterFunc(t.giveUp, func() {
			fmt.Fprintln(os.Stderr, "no answer within", t.giveUp)
			os.Exit(1)
		})
	}
	user, password, _ := strings.Cut(t.user, ":")
	if t.passwordFile != "" {
		text, err := os.ReadFile(t.passwordFile)
		if err != nil {
			return nil, err
		}
		password = string(text)
	}
	return clientv3.New(clientv3.Config{
		Endpoints: t.endpoints(), TLS: config, DialTimeout: 5 * time.Second, Username: user, Password: password,
		// A connection whose server is gone without a word must not hold a check up.
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		Logger: zap.NewNop(),
	})
}

// again logs in anew, as an application does whose password etcd refused: it reads the file again. It gives nil for
// other errors, and while the file has a password that etcd refuses.
func (t *target) again(why error) *clientv3.Client {
	if t.passwordFile == "" || !errors.Is(why, rpctypes.ErrAuthFailed) {
		return nil
	}
	c, err := t.client()
	if err != nil {
		return nil
	}
	return c
}
