package xdp

import "errors"

// Detach takes the programs off the named hooks of an interface, or off both. No counter relies on these hooks any more. The
// interface keeps its number.
func (dp *Datapath) Detach(ifname string, hooks ...Hook) error {
	if len(hooks) == 0 {
		hooks = []Hook{HookIngress, HookEgress}
	}
	return dp.takeOff(ifname, hooks, func(k hookKey) { dp.ledger.release(k) })
}

// Leave takes the programs off an interface that is not among the counted ones any more, or that does not exist under this
// name in the network namespace of the calling thread. Counters that relied on it stay, so an outage ends here.
//
// isCounted reports whether interfaces of a name are counted on. An interface that was renamed to such a name joins again,
// and its packets until then are missing.
func (dp *Datapath) Leave(ifname string, isCounted func(name string) bool) error {
	return dp.takeOff(ifname, []Hook{HookIngress, HookEgress}, func(k hookKey) {
		h := dp.hooks[k]
		// Nobody may have looked since the hook was lost: the ledger needs the outage before the interface leaves.
		if h != nil && !h.alive() {
			dp.lapse(h)
		}
		joins := h != nil && h.alive() && isCounted(dp.nameOf(h.ifindex))
		dp.ledger.leave(k, joins)
	})
}

// takeOff takes the programs off hooks. It calls end before each detachment: the ledger must know the reason first, because
// a kill behind the detachment would look like an outage.
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
