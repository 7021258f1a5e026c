package export

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs the certificates of a test.
type authority struct {
	t    *testing.T
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), name: name}
	a.cert, a.key = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, "ca")
	return a
}

// issue signs a certificate, and writes NAME.pem and NAME.key.
func (a *authority) issue(template *x509.Certificate, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		a.path(name + ".pem"): {Type: "CERTIFICATE", Bytes: der},
		a.path(name + ".key"): {Type: "PRIVATE KEY", Bytes: pkcs8},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert, key
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// client trusts the authority, and shows a certificate of by if by is not nil.
func (a *authority) client(by *authority) *http.Client {
	a.t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(a.cert)
	if by != nil {
		pair, err := tls.LoadX509KeyPair(by.path("scraper.pem"), by.path("scraper.key"))
		if err != nil {
			a.t.Fatal(err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
}

// The web configuration asks clients for a certificate and a password. These clients get no metrics: one without a
// certificate, one with that of another authority, one that does not trust the server, one without TLS, and one with a
// wrong password.
func TestOnlyTrustedClientsScrapeOverTLS(t *testing.T) {
	ours, other := newAuthority(t, "ours"), newAuthority(t, "other")
	for _, a := range []*authority{ours, other} {
		a.issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: "scraper"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, "scraper")
	}
	ours.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "exporter"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, "server")
	config := filepath.Join(t.TempDir(), "web.yaml")
	err := os.WriteFile(config, fmt.Appendf(nil, `
tls_server_config:
  cert_file: %s
  key_file: %s
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: %s
basic_auth_users:
  reader: $2b$04$11F0oQEeSsacfuYGrIs8w.1tAkf6i/4tJpUWuQfqDScu46rMF/BuG
`, ours.path("server.pem"), ours.path("server.key"), ours.path("ca.pem")), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := validateWebConfig(config); err != nil {
		t.Fatal(err)
	}
	m := newMirror(t, webEntry("web"))
	m.publish(map[string][2]uint64{"web": {10, 640}})
	e := newExporter(t, Options{Path: m.path})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx, l, ServeOptions{WebConfig: config, Listen: "127.0.0.1:0"}) }()

	get := func(client *http.Client, scheme, password string) (status int, body []byte, err error) {
		request, err := http.NewRequest(http.MethodGet, scheme+"://"+l.Addr().String()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("reader", password)
		response, err := client.Do(request)
		if err != nil {
			return 0, nil, err
		}
		defer response.Body.Close()
		body, err = io.ReadAll(response.Body)
		return response.StatusCode, body, err
	}
	status, body, err := get(ours.client(ours), "https", "secret")
	if err != nil || status != http.StatusOK {
		t.Fatalf("a client of the authority: status %d, %v", status, err)
	}
	parse(t, body).want(t, "flowtally_packets_total,counter=web,direction=ingress", 10)
	for name, c := range map[string]struct {
		client           *http.Client
		scheme, password string
		status           int // 0: no reply
	}{
		"no certificate":              {ours.client(nil), "https", "secret", 0},
		"certificate of another":      {ours.client(other), "https", "secret", 0},
		"no trust in the server":      {other.client(ours), "https", "secret", 0},
		"no TLS":                      {http.DefaultClient, "http", "secret", http.StatusBadRequest},
		"wrong password of the user":  {ours.client(ours), "https", "wrong", http.StatusUnauthorized},
		"certificate but no password": {ours.client(ours), "https", "", http.StatusUnauthorized},
	} {
		status, body, err := get(c.client, c.scheme, c.password)
		if status != c.status || (err != nil) != (c.status == 0) {
			t.Errorf("%s: status %d, %v; want %d", name, status, err, c.status)
		}
		if c.status != http.StatusOK && len(body) > 200 {
			t.Errorf("%s: a body of %d bytes", name, len(body))
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
