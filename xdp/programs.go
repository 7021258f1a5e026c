package xdp

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// Loading a program takes tens of milliseconds, so interfaces share programs. The programs of a hook differ only in the number of
// their interface, and only rules that name an interface look at the number. All other interfaces share the program with number
// 0, which means no interface.

// programs are the shared programs, with number 0, by site. They have equal constants.
type programs map[site]*ebpf.Program

func (ps programs) close() {
	for at, p := range ps {
		p.Close()
		delete(ps, at)
	}
}

// namedPorts are the numbers of interfaces that rules have named. A number remains when its rules are removed, because the
// interface keeps its own program.
type namedPorts struct {
	all    bool // a rule matches a part of the number, or number 0
	byPort map[uint16]bool
}

func (n *namedPorts) has(port uint16) bool { return n.all || n.byPort[port] }

func (n *namedPorts) add(rules []Rule) {
	for i := range rules {
		port, mask := rules[i].Key.Out.Port, rules[i].Mask.Out.Port
		switch {
		case mask == 0:
		case mask != 0xffff || port == 0:
			n.all = true
		default:
			if n.byPort == nil {
				n.byPort = map[uint16]bool{}
			}
			n.byPort[port] = true
		}
	}
}

// numberPrograms loads a program with the number of the interface for each interface named by rules. Callers must call it before they
// add the rules, and must not add them after an error. Programs exchanged before the error do no harm.
func (dp *Datapath) numberPrograms(rules []Rule) error {
	dp.named.add(rules)
	exchanged := false
	for _, h := range dp.hooks {
		if h.numbered || !dp.named.has(h.port) {
			continue
		}
		p, err := dp.loadFor(dp.constants, h.site)
		if err != nil {
			return err
		}
		dp.exchangeProgram(h, p)
		exchanged = true
	}
	if !exchanged {
		return nil
	}
	// The shared program would not find the rules, and packets may still be in it.
	if err := dp.wait(); err != nil {
		return fmt.Errorf("exchanging the programs of interfaces that rules name: %w", err)
	}
	return nil
}

// programFor returns a program for a site: one with the number of the interface if rules name it, and a shared one otherwise. The
// caller must close it.
func (dp *Datapath) programFor(c constants, shared programs, at site) (*ebpf.Program, error) {
	if at.component || dp.named.has(at.port) { // a component cannot be shared: the kernel attaches it once
		return dp.loadFor(c, at)
	}

	at.port = 0
	p := shared[at]
	if p == nil {
		var err error
		if p, err = dp.loadFor(c, at); err != nil {
			return nil, err
		}
		shared[at] = p
	}
	clone, err := p.Clone()
	if err != nil {
		return nil, fmt.Errorf("sharing a program: %w", explain(err))
	}
	return clone, nil
}

// loadFor loads a program for a site. Under Options.Kernel it returns a nil program, whose methods do nothing.
func (dp *Datapath) loadFor(c constants, at site) (*ebpf.Program, error) {
	p, err := dp.loader.load(c, at)
	if err != nil {
		return nil, err
	}
	dp.loads++
	if p == nil {
		return nil, nil
	}
	if info, err := p.Info(); err == nil {
		dp.insns, _ = info.VerifiedInstructions()
	}
	return p, nil
}

// reload gives all hooks programs with the current constants of the tables. It loads all programs before it exchanges the first. If
// one fails to load, every hook keeps its old program.
func (dp *Datapath) reload() error {
	if err := dp.tables.check(); err != nil {
		dp.log.Error("checking the trees", "error", err)
		return err
	}
	c := dp.tables.constants()
	shared := programs{}
	programByHook := map[*hook]*ebpf.Program{}
	for _, h := range dp.hooks {
		p, err := dp.programFor(c, shared, h.site)
		if err != nil {
			for _, p := range programByHook {
				p.Close()
			}
			shared.close()
			return err
		}
		programByHook[h] = p
	}

	// During the exchange, hooks have programs with different constants, so the meta map names none. If the process dies now, the
	// next one reloads all programs.
	dp.meta.clearLoaded()
	dp.sharedPrograms.close()
	dp.sharedPrograms = shared
	for h, p := range programByHook {
		dp.exchangeProgram(h, p)
	}
	if len(programByHook) > 0 {
		if err := dp.wait(); err != nil {
			// The new programs are attached, so there is no way back. Give packets time to leave the old ones.
			dp.log.Error("waiting for the programs that were exchanged", "error", err)
			time.Sleep(time.Second)
		}
	}

	dp.tables.finishLoad()
	dp.constants = c
	dp.commitPin()
	dp.meta.setLoaded(objectHash(), c)
	return nil
}

// exchangeProgram gives a hook another program, and takes ownership of the program.
//
// If that fails, the hook would keep a program that does not find all rules. So exchangeProgram records an outage and drops the
// hook. A link that is not attached any more is no concern here: the next Look finds out why.
func (dp *Datapath) exchangeProgram(h *hook, p *ebpf.Program) {
	err := h.update(p)
	if err == nil {
		h.numbered = h.component || dp.named.has(h.port)
		return
	}

	p.Close()
	if !h.alive() {
		return
	}
	dp.log.Error("exchanging a program", "interface", h.name, "hook", h.hook, "error", err)
	dp.ledger.begin(h.hookKey)
	dp.drop(h)
}
