package xdp

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// The verifier takes tens of milliseconds for a program, so interfaces share programs. Programs of one hook differ in the
// number of their interface alone, and only rules that name an interface read it. An interface that no rule names has the
// program of number 0, which no interface has.

// programs are loaded programs of number 0, by the site that they are for. They are all of the same constants.
type programs map[site]*ebpf.Program

func (ps programs) close() {
	for at, p := range ps {
		p.Close()
		delete(ps, at)
	}
}

// ports are the numbers of interfaces that rules have named. A number stays after its rules: its interface goes on with a
// program of its own.
type ports struct {
	all  bool // a rule asks for a part of the number, or for number 0
	each map[uint16]bool
}

func (p *ports) has(n uint16) bool { return p.all || p.each[n] }

func (p *ports) add(rules []Rule) {
	for i := range rules {
		switch n := rules[i].Key.Out.Port; {
		case rules[i].Mask.Out.Port == 0:
		case rules[i].Mask.Out.Port != 0xffff || n == 0:
			p.all = true
		default:
			if p.each == nil {
				p.each = map[uint16]bool{}
			}
			p.each[n] = true
		}
	}
}

// name gives a program of its own to each interface that rules name, before the rules come. After an error some have it, and
// the rules must not come.
func (rs *RuleSet) name(rules []Rule) error {
	rs.named.add(rules)
	exchanged := false
	for _, h := range rs.hooks {
		if h.numbered || !rs.named.has(h.port) {
			continue
		}
		p, err := rs.loadFor(rs.constants, h.site)
		if err != nil {
			return err
		}
		rs.give(h, p)
		exchanged = true
	}
	if !exchanged {
		return nil
	}
	if err := rs.wait(); err != nil { // a packet may still be in the shared program, which does not find the rules
		return fmt.Errorf("exchanging the programs of interfaces that rules name: %w", err)
	}
	return nil
}

// programFor returns a program for a site: its own one where rules name its interface, else a shared one. The caller
// closes it.
func (rs *RuleSet) programFor(c constants, shared programs, at site) (*ebpf.Program, error) {
	if at.slot || rs.named.has(at.port) { // a component of a dispatcher is attached once
		return rs.loadFor(c, at)
	}
	at.port = 0
	p := shared[at]
	if p == nil {
		var err error
		if p, err = rs.loadFor(c, at); err != nil {
			return nil, err
		}
		shared[at] = p
	}
	one, err := p.Clone()
	if err != nil {
		return nil, fmt.Errorf("sharing a program: %w", explain(err))
	}
	return one, nil
}

// loadFor loads a program.
func (rs *RuleSet) loadFor(c constants, at site) (*ebpf.Program, error) {
	p, err := rs.load.load(c, at)
	if err != nil {
		return nil, err
	}
	rs.loads++
	if p == nil {
		return nil, nil
	}
	if info, err := p.Info(); err == nil {
		rs.insns, _ = info.VerifiedInstructions()
	}
	return p, nil
}

// reload exchanges the programs of all hooks. A program that does not load leaves all as they were; a link that does
// not take its program is reported and lost, the others go on.
func (rs *RuleSet) reload() error {
	if err := rs.class.check(); err != nil {
		rs.log.Error("checking the trees", "error", err)
		return err
	}
	c := rs.class.constants()
	fresh := map[*hook]*ebpf.Program{}
	shared := programs{}
	for _, h := range rs.hooks {
		p, err := rs.programFor(c, shared, h.site)
		if err != nil {
			for _, p := range fresh {
				p.Close()
			}
			shared.close()
			return err
		}
		fresh[h] = p
	}
	rs.meta.clearLoaded()
	rs.shared.close()
	rs.shared = shared
	for h, p := range fresh {
		rs.give(h, p)
	}
	if len(fresh) > 0 {
		if err := rs.wait(); err != nil {
			// The new programs run and stay. If the wait cannot confirm a grace period, a pause must do.
			rs.log.Error("waiting for the programs that were exchanged", "error", err)
			time.Sleep(time.Second)
		}
	}
	rs.class.finishLoad()
	rs.constants = c
	rs.meta.setLoaded(objectHash(), c)
	return nil
}

// give exchanges the program of a hook. A link that does not take it is reported and lost. Why a link is not attached any
// more, the next Look finds out.
func (rs *RuleSet) give(h *hook, p *ebpf.Program) {
	if err := h.update(p); err != nil {
		if !h.alive() {
			p.Close()
			return
		}
		rs.log.Error("exchanging a program", "interface", h.name, "hook", h.hook, "error", err)
		p.Close()
		rs.ledger.begin(h.hookKey)
		rs.drop(h)
		return
	}
	h.numbered = h.slot || rs.named.has(h.port)
}
