package main

// The certificate authority, the certificates and the kubeconfigs. Each component
// has an identity of its own, so that Kubernetes' own roles apply as in any cluster.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"
)

// A testbed that is kept must not expire under its tests.
const certificateLife = 10 * 365 * 24 * time.Hour

type identity struct {
	name   string // of the files
	user   string
	groups []string
	hosts  []string // IP addresses and DNS names, for servers
}

var identities = []identity{
	{name: "apiserver", user: "kube-apiserver", hosts: []string{nodeIP, apiServiceIP, "127.0.0.1", "localhost", "kubernetes",
		"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}},
	{name: "admin", user: "admin", groups: []string{"system:masters"}},
	{name: "kube-controller-manager", user: "system:kube-controller-manager"},
	{name: "kube-scheduler", user: "system:kube-scheduler"},
	{name: "kube-proxy", user: "system:kube-proxy"},
	{name: "kubelet", user: "system:node:" + nodeName, groups: []string{"system:nodes"}, hosts: []string{nodeIP, nodeName}},
	{name: "csi-provisioner", user: "holdfast-testbed:csi-provisioner"},
	{name: "csi-resizer", user: "holdfast-testbed:csi-resizer"},
}

// makePKI makes what is missing; what is there stays, so running Pods keep the
// trust and the tokens they have.
func makePKI(l layout) error {
	if err := os.MkdirAll(l.inState("pki"), 0o700); err != nil {
		return err
	}
	ca, caKey, err := l.certificateAuthority()
	if err != nil {
		return err
	}
	for _, id := range identities {
		if err := l.certify(id, ca, caKey); err != nil {
			return fmt.Errorf("certificate %s: %w", id.name, err)
		}
		path := l.inState("kubeconfig", id.name)
		if id.name == "admin" {
			path = l.kubeconfig()
		}
		kubeconfig, err := l.kubeconfigFor(id)
		if err != nil {
			return err
		}
		if err := writeFile(path, kubeconfig, 0o600); err != nil {
			return err
		}
	}
	if _, err := os.Stat(l.inState("pki", "service-accounts.key")); errors.Is(err, fs.ErrNotExist) {
		_, err = l.newKey("service-accounts")
		return err
	}
	return nil
}

func (l layout) certificateAuthority() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	if cert, key, err := l.readPair("ca"); err == nil {
		return cert, key, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	key, err := l.newKey("ca")
	if err != nil {
		return nil, nil, err
	}
	template := certificateFor("holdfast-testbed-ca", nil)
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	if err := l.sign("ca", template, template, key, key); err != nil {
		return nil, nil, err
	}
	return l.readPair("ca")
}

func (l layout) certify(id identity, ca *x509.Certificate, caKey *ecdsa.PrivateKey) error {
	if cert, _, err := l.readPair(id.name); err == nil && cert.CheckSignatureFrom(ca) == nil {
		return nil
	}
	key, err := l.newKey(id.name)
	if err != nil {
		return err
	}
	template := certificateFor(id.user, id.groups)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, h := range id.hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	if len(id.hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	return l.sign(id.name, template, ca, key, caKey)
}

func certificateFor(user string, groups []string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand cannot fail
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: user, Organization: groups},
		NotBefore:             time.Now().Add(-time.Hour), // clocks of small machines jump
		NotAfter:              time.Now().Add(certificateLife),
		BasicConstraintsValid: true,
	}
}

// sign writes the certificate after its key, so a pair is whole when it has both.
func (l layout) sign(name string, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	return writeFile(l.inState("pki", name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

func (l layout) newKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writeFile(l.inState("pki", name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func (l layout) readPair(name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	var der [2][]byte
	for i, suffix := range []string{".crt", ".key"} {
		b, err := os.ReadFile(l.inState("pki", name+suffix))
		if err != nil {
			return nil, nil, err
		}
		block, _ := pem.Decode(b)
		if block == nil {
			return nil, nil, fmt.Errorf("no PEM in %s", l.inState("pki", name+suffix))
		}
		der[i] = block.Bytes
	}
	cert, err := x509.ParseCertificate(der[0])
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParseECPrivateKey(der[1])
	return cert, key, err
}

// kubeconfigFor holds the certificates themselves, so the file works wherever it is copied to.
func (l layout) kubeconfigFor(id identity) ([]byte, error) {
	var data [3]string
	for i, file := range []string{"ca.crt", id.name + ".crt", id.name + ".key"} {
		b, err := os.ReadFile(l.inState("pki", file))
		if err != nil {
			return nil, err
		}
		data[i] = base64.StdEncoding.EncodeToString(b)
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster:
    server: https://%[2]s
    certificate-authority-data: %[3]s
users:
- name: %[4]s
  user:
    client-certificate-data: %[5]s
    client-key-data: %[6]s
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: %[4]s}
current-context: %[1]s
`, clusterName, apiServer, data[0], id.name, data[1], data[2]), nil
}
