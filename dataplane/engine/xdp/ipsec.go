package xdp

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// policies is the kernel's list of IPsec policies in one network namespace. The states carry keys, so nothing lists them.
type policies interface {
	// available reports whether the kernel has loaded its module for policies. The other methods would load it.
	available() bool
	// watch begins to note changes of the list.
	watch() (policyChanges, error)
	// tunnel returns a policy of tunnel mode for received packets, or "".
	tunnel() (string, error)
}

// policyChanges is an open watch of the policies.
type policyChanges interface {
	// seen reports whether the policies have changed since the watch began.
	seen() bool
	io.Closer
}

// noPolicies is a kernel without IPsec.
type noPolicies struct{}

func (noPolicies) available() bool               { return false }
func (noPolicies) watch() (policyChanges, error) { return nil, errors.ErrUnsupported }
func (noPolicies) tunnel() (string, error)       { return "", errors.ErrUnsupported }

// tunnels knows a policy of tunnel mode, if the kernel has one. It lists the policies only after a change.
type tunnels struct {
	policies policies
	changes  policyChanges // nil: no watch is open
	stale    bool          // the policies have changed since the last listing
	next     time.Time     // no listing begins earlier
	found    string        // a policy of tunnel mode, or ""
}

// restAfterListing is the least pause after a listing, as a multiple of its duration. Policies in constant change cost a
// percent of a CPU, however many they are.
const restAfterListing = 100

// look returns a policy of tunnel mode, or "".
func (t *tunnels) look() (string, error) {
	if t.changes == nil && !t.policies.available() {
		return "", nil
	}
	if t.changes == nil || t.changes.seen() {
		// The fresh watch begins before the listing, so it notes a change during the listing for the next look. The old
		// watch ends afterwards, so the kernel keeps the module.
		fresh, err := t.policies.watch()
		if err != nil {
			return t.found, fmt.Errorf("watching the IPsec policies: %w", err)
		}

		t.close()
		t.changes = fresh
		t.stale = true
	}
	if !t.stale || time.Now().Before(t.next) {
		return t.found, nil
	}

	began := time.Now()
	found, err := t.policies.tunnel()
	t.next = time.Now().Add(restAfterListing * time.Since(began))
	if err != nil {
		return t.found, fmt.Errorf("listing the IPsec policies: %w", err)
	}
	t.found = found
	t.stale = false
	return found, nil
}

// close ends the watch. A later look begins another one.
func (t *tunnels) close() {
	if t.changes != nil {
		t.changes.Close()
		t.changes = nil
	}
}

// lookForTunnels notes a policy of tunnel mode while an interface counts behind the driver. Only the watcher's goroutine
// calls it. It does not hold mu while it calls into the kernel.
func (h *hooks) lookForTunnels() {
	h.mu.Lock()
	needed := !h.closed && len(h.behindDriver()) > 0
	h.mu.Unlock()

	found := ""
	if needed {
		var err error
		if found, err = h.tunnels.look(); err != nil {
			h.log.Debug("looking for IPsec tunnels", "err", err)
		}
	} else {
		h.tunnels.close()
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	h.upstream.tunnel = found
}

// behindDriver lists the interfaces that count received packets behind the driver. There the kernel hands in a decrypted
// packet again.
func (h *hooks) behindDriver() (names []string) {
	for _, a := range h.held {
		if a.Hook == xdp.HookIngress && (isTCX(a) || a.Mode == "generic") {
			names = append(names, a.Interface)
		}
	}
	return names
}

// tunnelConditions returns the condition of an IPsec policy of tunnel mode. Its fix names native XDP only where every
// interface can have it.
func (h *hooks) tunnelConditions() []dataplane.Condition {
	names := h.behindDriver()
	if h.upstream.tunnel == "" || len(names) == 0 {
		return nil
	}

	const match = "match esp (behind NAT: udp dport 4500) in a flow before the others: it counts the encrypted packets, and the others count each packet once"
	c := dataplane.Condition{
		Code:     dataplane.CodeIPsecTunnel,
		Severity: dataplane.Medium,
		Object:   "ipsec",
		Text: fmt.Sprintf("the namespace has an IPsec policy of tunnel mode (%s), and TCX or generic XDP counts received packets on %s: a packet of the "+
			"tunnel passes there twice, encrypted and again decrypted", h.upstream.tunnel, someNames(names)),
		Fix: match,
	}

	changes := make(map[string]dataplane.Interface)
	for _, name := range names {
		i, configured := h.find(name)
		_, taken := h.upstream.beside.holder[name]
		if !configured || taken || h.rejected[name] != nil {
			return []dataplane.Condition{c} // the interface cannot have native XDP
		}
		i.Mode = dataplane.ModeNative
		changes[name] = i
	}

	list := strings.Join(rewritten(h.patterns, h.countedNow(), changes), ", ")
	c.Fix = "interfaces: [" + list + "] in the configuration, because XDP in the driver sees the encrypted packets alone, then: flowtally apply -f FILE; or " + match
	return []dataplane.Condition{c}
}
