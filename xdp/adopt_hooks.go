package xdp

import (
	"errors"
	"os"

	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// adoptHooks adopts the programs that an earlier process left attached.
func (dp *Datapath) adoptHooks() {
	for port := range uint16(maxPorts) {
		if !dp.meta.port(port).used() {
			continue
		}
		dp.adoptHook(hookKey{port, HookIngress})
		dp.adoptHook(hookKey{port, HookEgress})
	}
}

// adoptHook adopts the program on one hook.
//
// A process killed while moving the hook between a dispatcher and TCX may have left a program on both. Then adoptHook keeps
// the component and removes the link. It also removes the link of a deleted interface.
func (dp *Datapath) adoptHook(k hookKey) {
	r := dp.meta.port(k.port)
	mode := r.mode(k.hook)
	if mode == modeDispatcher {
		if err := dp.adoptComponent(k, r); err != nil {
			dp.log.Warn("adopting a place in a dispatcher", "interface", r.name(), "error", err)
		}
		mode = modeTCX // if there is a link as well, it is the TCX end of an interrupted move
	}

	l, err := dp.openLink(dp.pinPath(site{hookKey: k}))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		dp.log.Warn("adopting a link", "interface", r.name(), "hook", k.hook, "error", err)
		return
	}
	h := &hook{
		site:    site{hookKey: k, layer3: r.layer3()}.in(mode),
		name:    r.name(),
		mode:    mode,
		adopted: true,
		link:    l,
	}
	h.pin = dp.pinPath(h.site)
	// The record has one index for both hooks. The link knows its own, unless it is detached.
	if h.ifindex, _ = linkIndex(l); h.ifindex == 0 {
		h.ifindex = r.ifindex()
	}

	component := dp.hooks[k]
	dp.hooks[k] = h
	if component != nil || !h.alive() || h.mode == "" {
		dp.log.Info("removing a link that is not needed, or whose interface is gone", "interface", h.name, "hook", k.hook)
		dp.drop(h)
	}
	if component != nil { // drop has cleared the entry of both
		dp.hooks[k] = component
		r.setHook(component.site, component.ifindex, component.mode)
	}
}

// adoptComponent adopts the component that an earlier process left in a dispatcher. If it cannot tell whether the component is
// still there, it adopts the component and returns an error: to attach a second program could count packets twice.
func (dp *Datapath) adoptComponent(k hookKey, r portRecord) error {
	l, err := dispatcher.NewLink(r.ifindex(), dp.maps.counters.hostMap(), dp.wait)
	if err != nil {
		return err
	}
	attached, err := l.Attached()
	if err == nil && !attached {
		return errors.Join(l.Detach(), l.Close()) // the interface may have moved to another namespace with its dispatcher
	}
	dp.hooks[k] = &hook{
		site:    site{hookKey: k, layer3: r.layer3()}.in(modeDispatcher),
		name:    r.name(),
		ifindex: r.ifindex(),
		mode:    modeDispatcher,
		adopted: true,
		link:    l,
	}
	return err
}
