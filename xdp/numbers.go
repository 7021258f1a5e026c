package xdp

import "fmt"

// Port returns the number of an interface, and assigns one if need be. The key of each packet has it in Headers.Port, so that rules
// can match the interface. The name keeps its number while the pins exist. The interface itself need not exist.
func (dp *Datapath) Port(ifname string) (uint16, error) {
	if err := dp.enter(); err != nil {
		return 0, err
	}
	defer dp.mu.Unlock()
	return dp.port(ifname)
}

func (dp *Datapath) port(ifname string) (uint16, error) {
	if ifname == "" || len(ifname) >= metaInterfaceSz {
		return 0, fmt.Errorf("numbering interface %q: %w: a name is 1 to %d bytes", ifname, ErrInvalid, metaInterfaceSz-1)
	}
	if n, ok := dp.meta.portOf(ifname); ok {
		return n, nil
	}
	unused := -1
	for n := 1; n < maxPorts && unused < 0; n++ { // 0 means no interface
		if !dp.meta.port(uint16(n)).used() {
			unused = n
		}
	}
	if unused < 0 {
		if unused = dp.idlePort(); unused < 0 {
			return 0, fmt.Errorf("numbering interface %q: %w: %d interfaces have numbers", ifname, ErrFull, maxPorts-1)
		}
	}
	dp.meta.number(uint16(unused), ifname)
	for _, at := range []Hook{HookIngress, HookEgress} {
		dp.ledger.release(hookKey{uint16(unused), at})
	}
	return uint16(unused), nil
}

// idlePort returns a number that neither hooks nor rules use, or -1.
func (dp *Datapath) idlePort() int {
	busy := map[uint16]bool{0: true}
	for k := range dp.hooks {
		busy[k.port] = true
	}
	for _, r := range dp.tables.rules() {
		if r.Mask.Out.Port != 0 {
			busy[r.Key.Out.Port] = true
		}
	}
	for n := range uint16(maxPorts) {
		if !busy[n] {
			return int(n)
		}
	}
	return -1
}
