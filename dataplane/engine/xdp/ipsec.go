package xdp

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// policies is the kernel's list of IPsec policies in one network namespace. A list of states would have their keys.
type policies interface {
	// available reports whether the kernel's part that lists policies is loaded. The other methods load its module.
	available() bool
	// watch begins to note changes of the list.
	watch() (policyChanges, error)
	// tunnel returns a policy that lets packets of a tunnel in, or "" if there is none.
	tunnel() (string, error)
}

// policyChanges notes changes of the list of policies since it was made.
type policyChanges interface {
	seen() bool
	io.Closer
}

// tunnels knows whether an IPsec policy of tunnel mode exists. It lists the policies when they have changed.
type tunnels struct {
	policies policies
	changes  policyChanges // nil: no look is needed, or the kernel's part that lists policies is not loaded
	stale    bool          // the list has changed since it was read
	next     time.Time     // the earliest time of the next listing
	found    string        // a policy of tunnel mode, or ""
}

// restAfterListing is the least pause after a listing, as a multiple of its duration: 10,000 policies in constant change
// cost a percent of a CPU.
const restAfterListing = 100

// look returns a policy of tunnel mode, or "".
func (t *tunnels) look() (string, error) {
	if t.changes == nil && !t.policies.available() {
		return "", nil
	}
	if t.changes == nil || t.changes.seen() {
		// The fresh socket notes a change during the listing, for the next look. The old one keeps the module loaded
		// until then.
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

// close ends the watch. The next look begins another one.
func (t *tunnels) close() {
	if t.changes != nil {
		t.changes.Close()
		t.changes = nil
	}
}

// lookForTunnels looks for IPsec policies of tunnel mode while they matter. Only the watcher's goroutine calls it, and it
// holds mu for no call into the kernel.
func (h *hooks) lookForTunnels() {
	h.mu.Lock()
	needed := !h.closed && len(h.decrypting()) > 0
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

// decrypting lists the interfaces whose received packets are counted where the kernel hands a decrypted packet in again:
// behind the driver.
func (h *hooks) decrypting() (names []string) {
	for _, a := range h.held {
		if a.Hook == xdp.HookIngress && (isTCX(a) || a.Mode == "generic") {
			names = append(names, a.Interface)
		}
	}
	return names
}

// tunnelConditions is the condition of an IPsec policy of tunnel mode.
func (h *hooks) tunnelConditions() []dataplane.Condition {
	names := h.decrypting()
	if h.upstream.tunnel == "" || len(names) == 0 {
		return nil
	}
	const match = "match esp (behind NAT: udp dport 4500) in a flow that goes before the others: it counts the encrypted packets, and the others count each packet once"
	c := dataplane.Condition{
		Code: dataplane.CodeIPsecTunnel, Severity: dataplane.Medium, Object: "ipsec",
		Text: fmt.Sprintf("there is an IPsec policy of tunnel mode (%s), and received packets are counted by TCX or generic XDP on %s: a packet of the "+
			"tunnel passes there twice, encrypted and again decrypted", h.upstream.tunnel, someNames(names)),
		Fix: match,
	}
	changes := make(map[string]dataplane.Interface)
	for _, name := range names {
		i, is := h.find(name)
		_, taken := h.upstream.beside.holder[name]
		if !is || taken || h.rejected[name] != nil {
			return []dataplane.Condition{c} // native XDP is not to be had
		}
		i.Mode = dataplane.ModeNative
		changes[name] = i
	}
	c.Fix = "interfaces: [" + strings.Join(rewritten(h.patterns, h.countedNow(), changes), ", ") + "] in the configuration, then flowtally apply -f FILE: " +
		"XDP in the driver sees the encrypted packets alone. Or " + match
	return []dataplane.Condition{c}
}
