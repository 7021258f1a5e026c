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

// policies is the kernel's list of IPsec policies in one network namespace. It does not list the states: those carry keys, which
// this process must not see.
type policies interface {
	// available reports whether the kernel has loaded xfrm_user. Callers must ask first, because the other methods would load it.
	available() bool
	// watch begins to note changes of the list.
	watch() (policyChanges, error)
	// tunnel returns a policy of tunnel mode for received packets, or "".
	tunnel() (string, error)
}

// policyChanges is an open watch of the policies. Callers must close it.
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

// tunnels finds a policy of tunnel mode, if the namespace has one. A list of 10,000 policies takes milliseconds, so it lists them
// only after a change.
type tunnels struct {
	policies policies
	changes  policyChanges // nil: no watch is open
	stale    bool          // the policies have changed since the last listing
	next     time.Time     // no listing begins earlier
	found    string        // a policy of tunnel mode, or ""
}

// restAfterListing is the least pause after a listing, as a multiple of its duration. Even if the policies change all the time,
// listing them takes at most a percent of a CPU.
const restAfterListing = 100

// look returns a policy of tunnel mode, or "".
func (t *tunnels) look() (string, error) {
	if t.changes == nil && !t.policies.available() {
		return "", nil
	}
	if t.changes == nil || t.changes.seen() {
		// Begin the new watch before the listing, so it notes a change during the listing for the next look. Keep the old
		// watch open until then: with no socket at all the kernel may unload the module.
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

// lookForTunnels looks for a policy of tunnel mode, as long as an interface counts behind the driver. Only watchLinks may call it,
// because tunnels has no lock. It calls into the kernel without mu, as a listing may be long.
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

// behindDriver lists the interfaces where received packets count behind the driver, by TCX or generic XDP. There a packet of a
// tunnel passes twice: encrypted, and again after the kernel has decrypted it.
func (h *hooks) behindDriver() (names []string) {
	for _, a := range h.held {
		if a.Hook == xdp.HookIngress && (isTCX(a) || a.Mode == "generic") {
			names = append(names, a.Interface)
		}
	}
	return names
}

// tunnelConditions returns the condition of an IPsec policy of tunnel mode. Its fix proposes native XDP only if all of the
// interfaces can have it.
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
