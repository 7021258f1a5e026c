package export

import (
	"net"
	"net/http"
	"os"
	"strings"
)

// sameHost defends against DNS rebinding. A hostile web page can make its own name resolve to 127.0.0.1, and then have
// the browser read our counters over the loopback interface. Such a request names the page's host, so sameHost refuses
// requests over loopback for another host. Names without a dot, addresses, the name of this host and the name in listen
// pass.
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
