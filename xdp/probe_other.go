//go:build !linux

package xdp

import "github.com/flowtally/flowtally/probe"

// Probe says that nothing of this package works here.
func Probe(ifname string) []probe.Result {
	return []probe.Result{probe.Ask("eBPF", ifname, supported())}
}
