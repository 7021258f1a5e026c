package plugin

import (
	"fmt"
	"net"
	"testing"
	"time"

	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// The bound of a start grows with the interfaces that are counted on and with the flows. One that the caller gives stays.
func TestStartBoundGrowsWithTheWork(t *testing.T) {
	var links []net.Interface
	for i := range 240 {
		links = append(links, net.Interface{Name: fmt.Sprintf("veth%d", i)}, net.Interface{Name: fmt.Sprintf("other%d", i)})
	}
	for _, test := range []struct {
		name    string
		entries []string
		flows   int
		want    time.Duration
	}{
		{"nothing to do", nil, 0, time.Minute},
		{"one interface", []string{"veth7"}, 0, time.Minute + 500*time.Millisecond},
		{"a pattern", []string{"veth*"}, 0, 3 * time.Minute},
		{"interfaces that are not there", []string{"eth0", "eth1"}, 0, time.Minute + time.Second},
		{"flows", nil, 60000, 2 * time.Minute},
	} {
		cfg := &pluginv1.Config{Flows: make([]*pluginv1.Flow, test.flows)}
		for _, name := range test.entries {
			cfg.Interfaces = append(cfg.Interfaces, &pluginv1.Interface{Name: name})
		}
		if got := startBound(cfg, links); got != test.want {
			t.Errorf("%s: a bound of %v, want %v", test.name, got, test.want)
		}
		if got := (&Options{ConfigureTimeout: time.Second}).configureTimeout(cfg); got != time.Second {
			t.Errorf("%s: a bound of %v, want the second that the caller gave", test.name, got)
		}
	}
}
