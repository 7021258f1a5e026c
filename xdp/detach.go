package xdp

import "errors"

// Detach detaches the programs from the named hooks of an interface, or from both. The ledger counts this as intended and not as
// an outage. The interface keeps its number.
func (dp *Datapath) Detach(ifname string, hooks ...Hook) error {
	if len(hooks) == 0 {
		hooks = []Hook{HookIngress, HookEgress}
	}
	return dp.takeOff(ifname, hooks, func(k hookKey) { dp.ledger.release(k) })
}

// Leave detaches the programs of an interface that is no longer counted, or that no longer has this name in the network namespace
// of the calling thread. Its counters remain, and an outage ends here.
//
// isCounted reports whether an interface of some name is to be counted. If the interface was renamed to such a name, a later
// Attach will take it again. Its packets until then are missing.
func (dp *Datapath) Leave(ifname string, isCounted func(name string) bool) error {
	return dp.takeOff(ifname, []Hook{HookIngress, HookEgress}, func(k hookKey) {
		h := dp.hooks[k]
		// The hook may have lost its program since the last Look. Record that outage before the interface leaves.
		if h != nil && !h.alive() {
			dp.lapse(h)
		}
		joins := h != nil && h.alive() && isCounted(dp.nameOf(h.ifindex))
		dp.ledger.leave(k, joins)
	})
}

// takeOff detaches the programs of hooks. Before each detachment it calls end, which must record the reason in the ledger. If
// the process died after detaching and before recording, the next one would see an outage.
func (dp *Datapath) takeOff(ifname string, hooks []Hook, end func(hookKey)) error {
	if err := dp.enter(); err != nil {
		return err
	}
	defer dp.mu.Unlock()

	port, numbered := dp.meta.portOf(ifname)
	if !numbered {
		return nil
	}
	var errs []error
	for _, at := range hooks {
		k := hookKey{port, at}
		end(k)
		if h := dp.hooks[k]; h != nil {
			errs = append(errs, dp.drop(h))
		}
	}
	return errors.Join(errs...)
}
