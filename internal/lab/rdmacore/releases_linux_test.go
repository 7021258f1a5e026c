//go:build releases

package rdmacore

import (
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
)

var releases = make(map[string]*Release)

// release gets the release of a suite once: the archive takes seconds of CPU to reply.
func release(t *testing.T, suite string) *Release {
	t.Helper()
	if releases[suite] == nil {
		releases[suite] = Get(t, suite)
	}
	return releases[suite]
}

// netdevs returns a network namespace with the netdevs of the devices: the ends v0 and v1 of a veth pair.
func netdevs(t *testing.T) *lab.Netns {
	t.Helper()
	ns, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	pair, err := lab.NewPair(ns, ns, "v0", "v1", lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pair.Close() })
	return ns
}
