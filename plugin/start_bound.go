package plugin

import (
	"net"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// The time limit for a start grows with the work. The limits are generous: they must catch a start that hangs, but never
// one that progresses slowly on a busy host.
const (
	boundOfStart     = time.Minute
	boundOfInterface = 500 * time.Millisecond // for two programs, each of which waits for an RCU grace period
	boundOfFlow      = time.Millisecond
)

// configureTimeout returns the time limit for Configure.
func (o *Options) configureTimeout(cfg *pluginv1.Config) time.Duration {
	if o.ConfigureTimeout != 0 {
		return o.ConfigureTimeout
	}
	links, _ := net.Interfaces() // on error, startBound counts the entries of the configuration instead
	return startBound(cfg, links)
}

// startBound returns the default time limit. links are the interfaces of the host, to see how many match a pattern.
func startBound(cfg *pluginv1.Config, links []net.Interface) time.Duration {
	entries := make([]dataplane.Interface, len(cfg.GetInterfaces()))
	for i, e := range cfg.GetInterfaces() {
		entries[i].Name = e.GetName()
	}

	counted := 0
	for _, l := range links {
		if slices.ContainsFunc(entries, func(e dataplane.Interface) bool { return e.Matches(l.Name) }) {
			counted++
		}
	}
	counted = max(counted, len(entries))

	return boundOfStart +
		time.Duration(counted)*boundOfInterface +
		time.Duration(len(cfg.GetFlows()))*boundOfFlow
}
