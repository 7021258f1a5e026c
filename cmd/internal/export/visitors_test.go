package export

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"
)

// The clients of one address take every connection and then go silent: at once, within a request, after a response, or
// within the TLS handshake. A connection of another address must stay open, and a third address must get its scrape.
func TestConnectionsOfOneAddressStarveNoOther(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8")
	}
	const most = 16
	a := newAuthority(t, "server")
	a.issue(&x509.Certificate{DNSNames: []string{"localhost"}}, "server")
	config := a.path("web.yaml")
	if err := os.WriteFile(config, []byte("tls_server_config: {cert_file: server.pem, key_file: server.key}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const request = "GET /v1/counters HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, c := range []struct {
		name, config, begins string
	}{
		{"silent", "", ""}, {"half a request", "", request[:20]}, {"keeps its connection", "", request},
		{"silent before TLS", config, ""}, {"half a greeting of TLS", config, "\x16\x03\x01\x02\x00\x01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMirror(t, webEntry("web"))
			m.publish(map[string][2]uint64{"web": {10, 640}})
			e := newExporter(t, Options{Path: m.path})
			e.mostConnections = most
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- e.Serve(ctx, l, ServeOptions{WebConfig: c.config}) }()
			var hog []net.Conn
			defer func() {
				for _, conn := range hog {
					conn.Close()
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			dial := func(from string) net.Conn {
				t.Helper()
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				conn, err := d.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				return conn
			}
			client := func(from string) net.Conn {
				if conn := dial(from); c.config == "" {
					return conn
				} else {
					return tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
				}
			}
			scrape := func(conn net.Conn) error {
				if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
					return err
				}
				if _, err := io.WriteString(conn, request); err != nil {
					return err
				}
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, response.Body)
				return errors.Join(err, response.Body.Close())
			}

			first := client("127.0.0.2")
			if err := scrape(first); err != nil {
				t.Fatal(err)
			}
			for range 3 * most {
				conn := dial("127.0.0.3")
				if _, err := io.WriteString(conn, c.begins); err != nil {
					t.Fatal(err)
				}
				hog = append(hog, conn)
			}
			if err := scrape(client("127.0.0.4")); err != nil {
				t.Errorf("another address: %v", err)
			}
			if err := scrape(first); err != nil {
				t.Errorf("a connection that rested: %v", err)
			}
			for _, conn := range hog[:2*most] { // the oldest have ended
				if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal("a connection beyond the bound goes on")
				}
			}
		})
	}
}
