package plugin

import (
	"net"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// The bound of a start grows with its work. A start takes far less of each: it is to end one that hangs, and none that goes
// on, on a host that is busy.
const (
	boundOfStart     = time.Minute
	boundOfInterface = 500 * time.Millisecond // two programs are attached, each behind an RCU grace period
	boundOfFlow      = time.Millisecond
)

// configureTimeout is the bound of the start of an instance.
func (o *Options) configureTimeout(cfg *pluginv1.Config) time.Duration {
	if o.ConfigureTimeout != 0 {
		return o.ConfigureTimeout
	}
	links, _ := net.Interfaces() // without a list the entries are counted
	return startBound(cfg, links)
}

// startBound counts the interfaces of the host that the configuration names, patterns too.
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
