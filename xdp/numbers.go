package xdp

import "fmt"

// Port returns the number of an interface, which is in Headers.Port of its packets, so that a rule may match it. It gives
// the name a number if it has none. A name keeps its number as long as the pins exist; the interface need not exist.
func (rs *RuleSet) Port(ifname string) (uint16, error) {
	if err := rs.enter(); err != nil {
		return 0, err
	}
	defer rs.mu.Unlock()
	return rs.port(ifname)
}

func (rs *RuleSet) port(ifname string) (uint16, error) {
	if ifname == "" || len(ifname) >= metaInterfaceSz {
		return 0, fmt.Errorf("numbering interface %q: %w: a name is 1 to %d bytes", ifname, ErrInvalid, metaInterfaceSz-1)
	}
	if n, ok := rs.meta.portOf(ifname); ok {
		return n, nil
	}
	unused := -1
	for n := 1; n < maxPorts && unused < 0; n++ { // 0 is no interface
		if !rs.meta.port(uint16(n)).used() {
			unused = n
		}
	}
	if unused < 0 {
		if unused = rs.idlePort(); unused < 0 {
			return 0, fmt.Errorf("numbering interface %q: %w: %d interfaces have numbers", ifname, ErrFull, maxPorts-1)
		}
	}
	rs.meta.number(uint16(unused), ifname)
	for _, at := range []Hook{HookIngress, HookEgress} {
		rs.ledger.release(hookKey{uint16(unused), at})
	}
	return uint16(unused), nil
}

// idlePort is a number that no hook has and no rule asks for, or -1.
func (rs *RuleSet) idlePort() int {
	busy := map[uint16]bool{0: true}
	for k := range rs.hooks {
		busy[k.port] = true
	}
	for _, r := range rs.tables.rules() {
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
