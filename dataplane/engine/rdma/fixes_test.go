package rdma

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/probe"
)

// fixOf returns the next step in an error of something that is not supported.
func fixOf(t *testing.T, err error) string {
	t.Helper()
	var u *probe.UnsupportedError
	if !errors.As(err, &u) {
		t.Fatalf("%v is no refusal", err)
	}
	return u.Fix
}

// Whoever follows the next step in a refusal must get a match that hardware counts.
func TestARefusedMatchFitsAfterItsFix(t *testing.T) {
	rules := func(match string) error {
		_, err := ruleMatches(flow.MustParse("m", match).Match, withDevX)
		return err
	}
	fixed := func(match string) {
		t.Helper()
		if err := rules(match); err != nil {
			t.Errorf("%s: %v", match, err)
		}
	}
	lab.Step(t, fixOf(t, rules("ipv4 vxlan inner any")), `leave "inner any" out`)
	fixed("ipv4 vxlan")
	lab.Step(t, fixOf(t, rules("ipv4 vxlan inner eth")), `leave "inner" out, or ask for a field of it`)
	fixed("ipv4 vxlan")
	fixed("ipv4 vxlan inner eth type 0x0806")
	lab.Step(t, fixOf(t, rules("ipv4 udp sport 1-65534 dport 1-65534")), "split the flow, or use aligned port ranges")
	fixed("ipv4 udp sport 1-65534 dport 8")
	fixed("ipv4 udp sport 32768-65535 dport 32768-65535")
}

// The fix says that reading is tried again, so the condition must end without help.
func TestReadErrorsEndByThemselves(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	in := mustInstall(t, b, placedUDP(t, "f", 1, 0))
	n := h.nic(0)
	n.setFail(syscall.EIO)
	lab.Eventually(t, "a condition", func() bool { c := b.Conditions(); return len(c) == 1 && c[0].Code == "rdma-read-errors" })
	lab.Step(t, b.Conditions()[0].Fix, "reading is tried again")
	n.setFail(nil)
	lab.Eventually(t, "the end of the condition", func() bool { return len(b.Conditions()) == 0 })
	n.set(t, 1, backend.Pair{Packets: 5, Bytes: 500})
	sampledAs(t, b, in[0].ID, backend.Pair{Packets: 5, Bytes: 500})
}

// A device has no named sets, and its rules must not leave one out.
func TestNamedSetsAreRefused(t *testing.T) {
	for _, by := range []steeringAPI{withVerbs, withDevX} {
		for _, text := range []string{"ipv4 src @blocklist", "ipv6 dst != @blocklist", "vxlan inner ipv4 src @blocklist"} {
			rules, err := ruleMatches(flow.MustParse("m", text).Match, by)
			if !errors.Is(err, flow.ErrInvalid) || !strings.Contains(err.Error(), "@blocklist") || len(rules) > 0 {
				t.Errorf("%s: %d rules, error %v", text, len(rules), err)
			}
		}
	}
}
