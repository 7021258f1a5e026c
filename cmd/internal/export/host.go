package export

import (
	"net"
	"net/http"
	"os"
	"strings"
)

// sameHost refuses requests that come over the loopback interface and name another host. A browser sends such a request
// for a page of the web whose name was made to resolve to 127.0.0.1 (DNS rebinding): the page would read the counters.
// Names without a dot, addresses, the name of this host and the name in listen pass.
func sameHost(listen string, next http.Handler) http.Handler {
	hostname, _ := os.Hostname()
	named, _, _ := net.SplitHostPort(listen)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if local != nil && local.IP.IsLoopback() && !isHere(r.Host, hostname, named) {
			http.Error(w, "this address serves the names of its own host: ask for localhost, or for a name that --listen has", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isHere reports whether a Host header names this host.
func isHere(header string, names ...string) bool {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost") || net.ParseIP(strings.Trim(host, "[]")) != nil {
		return true
	}
	for _, name := range names {
		if strings.EqualFold(strings.TrimSuffix(name, "."), host) {
			return true
		}
	}
	return false
}
