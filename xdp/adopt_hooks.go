package xdp

import (
	"errors"
	"os"

	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// adoptHooks takes up the links that a process left pinned. Links of interfaces that are gone are removed.
func (rs *RuleSet) adoptHooks() {
	for n := range uint16(maxPorts) {
		r := rs.meta.port(n)
		if !r.used() {
			continue
		}
		for _, at := range []Hook{HookIngress, HookEgress} {
			k, mode := hookKey{port: n, hook: at}, r.mode(at)
			if mode == modeDispatcher {
				if err := rs.adoptSlot(k, r); err != nil {
					rs.log.Warn("adopting a place in a dispatcher", "interface", r.name(), "error", err)
				}
				mode = modeTCX // of a link that is pinned: the process died in a move between the two
			}
			l, err := rs.openLink(rs.pinPath(site{hookKey: k}))
			if err != nil {
				if !errors.Is(err, os.ErrNotExist) {
					rs.log.Warn("adopting a link", "interface", r.name(), "hook", at, "error", err)
				}
				continue
			}
			h := &hook{
				site:    site{hookKey: k, layer3: r.layer3()}.in(mode),
				name:    r.name(),
				mode:    mode,
				adopted: true,
				link:    l,
			}
			if h.ifindex, _ = linkIndex(l); h.ifindex == 0 { // of a link that was detached; else the record has one for both hooks
				h.ifindex = r.ifindex()
			}
			h.pin = rs.pinPath(h.site)
			slot := rs.hooks[k]
			rs.hooks[k] = h
			if slot != nil || !h.alive() || h.mode == "" {
				rs.log.Info("removing a link that is not needed, or whose interface is gone", "interface", h.name, "hook", at)
				rs.drop(h)
			}
			if slot != nil {
				rs.hooks[k] = slot
				r.setHook(slot.site, slot.ifindex, slot.mode)
			}
		}
	}
}

// adoptSlot takes up the place of an earlier process in a dispatcher. After an error the program may be there: the hook is
// taken up, so that the interface does not get a second one.
func (rs *RuleSet) adoptSlot(k hookKey, r portRecord) error {
	s, err := dispatcher.NewSlot(r.ifindex(), rs.maps.counters.hostMap(), rs.wait)
	if err != nil {
		return err
	}
	filled, err := s.Filled()
	if err == nil && !filled {
		return errors.Join(s.Detach(), s.Close()) // its interface may be in another namespace
	}
	rs.hooks[k] = &hook{
		site:    site{hookKey: k, layer3: r.layer3()}.in(modeDispatcher),
		name:    r.name(),
		ifindex: r.ifindex(),
		mode:    r.mode(k.hook),
		adopted: true,
		link:    s,
	}
	return err
}
