package xdp

import (
	"errors"
	"os"

	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// adoptHooks takes up the programs that an earlier process has left attached, on all numbered interfaces.
func (dp *Datapath) adoptHooks() {
	for port := range uint16(maxPorts) {
		if !dp.meta.port(port).used() {
			continue
		}
		dp.adoptHook(hookKey{port, HookIngress})
		dp.adoptHook(hookKey{port, HookEgress})
	}
}

// adoptHook takes over the program on one hook. A process that was killed while it moved the hook between a dispatcher
// and TCX may have left both: keep the component, and remove the link. Remove the link of a vanished interface, too.
func (dp *Datapath) adoptHook(k hookKey) {
	r := dp.meta.port(k.port)
	mode := r.mode(k.hook)
	if mode == modeDispatcher {
		if err := dp.adoptComponent(k, r); err != nil {
			dp.log.Warn("adopting a place in a dispatcher", "interface", r.name(), "error", err)
		}
		mode = modeTCX // of the other one, if there is a link
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
	// The record has one index for both hooks, so the link knows better, unless it is detached.
	if h.ifindex, _ = linkIndex(l); h.ifindex == 0 {
		h.ifindex = r.ifindex()
	}

	component := dp.hooks[k]
	dp.hooks[k] = h
	if component != nil || !h.alive() || h.mode == "" {
		dp.log.Info("removing a link that is not needed, or whose interface is gone", "interface", h.name, "hook", k.hook)
		dp.drop(h)
	}
	if component != nil { // drop has removed it from the hooks and from the record
		dp.hooks[k] = component
		r.setHook(component.site, component.ifindex, component.mode)
	}
}

// adoptComponent takes up the component that an earlier process has left in a dispatcher, if it is there. After an error it
// may be there or not. adoptComponent takes it up then too, so that the interface does not get a second program.
func (dp *Datapath) adoptComponent(k hookKey, r portRecord) error {
	l, err := dispatcher.NewLink(r.ifindex(), dp.maps.counters.hostMap(), dp.wait)
	if err != nil {
		return err
	}
	attached, err := l.Attached()
	if err == nil && !attached {
		return errors.Join(l.Detach(), l.Close()) // its interface may be in another namespace
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
