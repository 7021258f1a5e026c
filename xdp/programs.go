package xdp

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// The verifier takes tens of milliseconds for a program, so interfaces share programs. Programs of one hook differ only in
// the number of their interface, and only rules that name an interface read that number. An interface that no rule names
// has the program with number 0, which is no interface.

// programs are loaded programs with number 0, by their site. All of them have the same constants.
type programs map[site]*ebpf.Program

func (ps programs) close() {
	for at, p := range ps {
		p.Close()
		delete(ps, at)
	}
}

// namedPorts are the numbers of interfaces that rules have named. A number stays when its rules go: the interface keeps a
// program of its own.
type namedPorts struct {
	all    bool // a rule asks for some bits of the number, or for number 0
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

// numberPrograms gives each interface that rules name a program with its number. It comes before the rules. After an error
// some interfaces have such a program, which does no harm, and the rules must not come.
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
	// A packet may still be in the shared program, which does not find the rules.
	if err := dp.wait(); err != nil {
		return fmt.Errorf("exchanging the programs of interfaces that rules name: %w", err)
	}
	return nil
}

// programFor returns a program for a site, which the caller closes: one with the number of the interface if rules name it,
// else a shared one.
func (dp *Datapath) programFor(c constants, shared programs, at site) (*ebpf.Program, error) {
	if at.component || dp.named.has(at.port) { // the kernel attaches a component once
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

// loadFor loads a program with the number of its interface, and counts the load. The program is nil where Options.Kernel
// stands in for the kernel; methods of a nil program do nothing.
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

// reload exchanges the programs of all hooks for programs with the constants that the tables have now. All programs are
// loaded before the first is exchanged: if one is refused, every hook keeps the program that it has.
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

	// The meta map names no constants while the hooks have programs of both kinds. A process that adopts such pins reloads.
	dp.meta.clearLoaded()
	dp.sharedPrograms.close()
	dp.sharedPrograms = shared
	for h, p := range programByHook {
		dp.exchangeProgram(h, p)
	}
	if len(programByHook) > 0 {
		if err := dp.wait(); err != nil {
			// The new programs are attached, and stay. Without a grace period a pause must do.
			dp.log.Error("waiting for the programs that were exchanged", "error", err)
			time.Sleep(time.Second)
		}
	}

	dp.tables.finishLoad()
	dp.constants = c
	dp.meta.setLoaded(objectHash(), c)
	return nil
}

// exchangeProgram gives a hook a program, and owns the program from here on. If the link refuses it, the hook would go on
// with a program that does not find all rules. So exchangeProgram reports an outage and drops the hook. If the link is not
// attached any more, it leaves the hook to the next Look, which finds out why.
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
