package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
)

var (
	instanceName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
	xdpModes     = []Mode{"", ModeAuto, ModeNative, ModeGeneric, ModeTCX}
)

// leastPeriod is the shortest poll period. To poll faster, use Busy.
const leastPeriod = 100 * time.Microsecond

// mostCommands is the largest CommandsPerSecond. No device processes a command per microsecond.
const mostCommands = 1_000_000

// problems collects the mistakes of a configuration, to report all of them at once.
type problems []error

func (p problems) Error() string { return errors.Join(p...).Error() }

// Is makes errors.Is(err, ErrInvalid) true.
func (p problems) Is(target error) bool { return target == ErrInvalid }

// Unwrap lets errors.Is and errors.As see each of them.
func (p problems) Unwrap() []error { return p }

// add appends a mistake.
func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

// note appends the mistakes that another check returned, if any.
func (p *problems) note(err error) {
	if several, ok := err.(problems); ok {
		*p = append(*p, several...)
	} else if err != nil {
		*p = append(*p, err)
	}
}

// err returns the problems as an error, or nil if there are none.
func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// ValidateInstance checks the name of an instance, which becomes part of paths. The error satisfies
// errors.Is(err, ErrInvalid).
func ValidateInstance(name string) error {
	if !instanceName.MatchString(name) {
		return problems{fmt.Errorf("instance %q: use 1 to 32 characters of a-z, 0-9 and -", name)}
	}
	return nil
}

// Validate reports every mistake of the configuration in one joined error that satisfies errors.Is(err, ErrInvalid). Each
// part names the field, the cause and the next step. Mistakes in flows are *flow.FieldError, and mistakes in queue pairs
// *QueuePairError.
func (c Config) Validate() error {
	var errs problems
	if c.Instance != "" {
		errs.note(ValidateInstance(c.Instance))
	}
	errs.note(c.Backend.Validate())

	if len(c.Interfaces) == 0 && c.needsInterface() {
		errs.add("interfaces: none to count on; name at least one, or a queue pair, or words, or use backend sim")
	}
	errs.checkInterfaces(c.Interfaces)
	if len(c.Interfaces) > mostInterfaces {
		return errs // checkFlows would search the long list for each flow
	}

	if !slices.Contains([]StartMode{"", StartStrict, StartDegraded}, c.Start) {
		errs.add("start %q: use strict or degraded", c.Start)
	}
	errs.checkSets(c.Sets)
	errs.checkFlows(c)
	for _, err := range c.QueuePairErrors() {
		errs = append(errs, err)
	}
	errs = append(errs, c.WordsErrors()...)
	errs.checkMirror(c.Mirror)
	errs.checkPoll(c.Poll)
	errs.checkXDP(c.XDP)
	errs.checkRDMA(c.RDMA)
	return errs.err()
}

// checkInterfaces checks each interface, and that none is listed twice.
func (p *problems) checkInterfaces(list []Interface) {
	if len(list) > mostInterfaces {
		p.add("interfaces: %d entries: at most %d; a pattern stands for many interfaces", len(list), mostInterfaces)
		return
	}
	listed := make(map[string]bool, len(list))
	for _, i := range list {
		p.note(i.Validate())
		if listed[i.Name] {
			p.add("interface %q: listed twice; remove one", i.Name)
		}
		listed[i.Name] = true
	}
}

// checkFlows checks each flow, that its name is unique, that the sets it names are defined, and that an interface can count it.
func (p *problems) checkFlows(c Config) {
	defined := make(map[string]bool, len(c.Flows))
	for _, f := range c.Flows {
		p.note(f.Validate())
		if defined[f.Name] {
			p.add("flow %q: defined twice; rename one", f.Name)
		}
		defined[f.Name] = true
		p.note(KnowsSets(c.Sets, f))
		p.note(ReachesInterface(c.Interfaces, f))
	}
}

func (p *problems) checkMirror(m MirrorConfig) {
	if n := m.Counters; n < 0 || n > 1<<24 {
		p.add("mirror.counters %d: 0 to %d", n, 1<<24)
	}
	if n := m.LatencyCounters; n < 0 || n > 1<<20 {
		p.add("mirror.latency_counters %d: 0 to %d", n, 1<<20)
	}
	if n := m.History; n < -1 || n > 1<<24 {
		p.add("mirror.history %d: -1 (none) to %d", n, 1<<24)
	}
	if d := m.HistoryPeriod; d < 0 {
		p.add("mirror.history_period %s: not below 0", d)
	}

	if !isAccessMode(m.Mode) || m.Mode&0o022 != 0 {
		p.add("mirror.mode %#o: let only the owner write, as in 0644 or 0600", uint32(m.Mode))
	}
	if !isAccessMode(m.LiveMode) {
		p.add("mirror.live_mode %#o: the bits for reading and writing, and the owner's for writing, as in 0660 or 0600", uint32(m.LiveMode))
	}
	if !isAccessMode(m.WordsMode) {
		p.add("mirror.words_mode %#o: the bits for reading and writing, and the owner's for writing, as in 0660 or 0600", uint32(m.WordsMode))
	}

	for _, g := range []struct{ field, name string }{
		{"wait_group", m.WaitGroup},
		{"live_group", m.LiveGroup},
		{"words_group", m.WordsGroup},
	} {
		if strings.ContainsFunc(g.name, func(r rune) bool { return r <= ' ' || r == ':' || r == 0x7f }) {
			p.add("mirror.%s %q: name a group of /etc/group, or its number", g.field, g.name)
		}
	}
}

// isAccessMode reports whether a mode lets the owner write and has no bits other than read and write. 0 is valid: it means
// the default.
func isAccessMode(m fs.FileMode) bool {
	return m == 0 || m&^0o666 == 0 && m&0o200 != 0
}

func (p *problems) checkPoll(c PollConfig) {
	if d := c.Period; d != 0 && d < leastPeriod {
		p.add("poll.period %s: at least %s; for less use poll.busy", d, leastPeriod)
	}
	if err := c.ValidateIdle(); err != nil {
		p.add("%w", err)
	}
	if n := c.CPU; n < 0 || n > math.MaxInt32 {
		p.add("poll.cpu %d: 0 to %d", n, math.MaxInt32)
	}
}

func (p *problems) checkXDP(c XDPConfig) {
	if n := c.MaxFlows; n < 0 || n > MostFlows {
		p.add("xdp.max_flows %d: 0 to %d", n, MostFlows)
	}
	if n := c.WorstCost; n < 0 || n > MostWorstCost {
		p.add("xdp.worst_cost %d: 0 to %d", n, MostWorstCost)
	}
	if t := c.TCX; !slices.Contains([]string{"", "first", "last"}, t) {
		p.add("xdp.tcx %q: use first or last", t)
	}
	for i, b := range c.Beside {
		earlier := c.Beside[:i]
		switch {
		case !slices.Contains(Besides(), b):
			p.add("xdp.beside %q: use dispatcher, tcx or refuse", b)
		case slices.Contains(earlier, b):
			p.add("xdp.beside: %s is listed twice; remove one", b)
		case b == BesideDispatcher && slices.Contains(earlier, BesideTCX):
			p.add("xdp.beside: dispatcher stands behind tcx, which is always possible first; list dispatcher before tcx, or leave it out")
		}
	}
}

func (p *problems) checkRDMA(c RDMAConfig) {
	if n := c.CommandsPerSecond; n < 0 || n > mostCommands {
		p.add("rdma.commands_per_second %d: 0 (10000) to %d", n, mostCommands)
	}
	if b := c.ByteBasis; b != "" && !slices.Contains(ByteBases(), b) {
		p.add("rdma.byte_basis %q: use l2, l2-untagged, l2-fcs, l2-fcs-untagged, l3 or unknown", b)
	}
	for _, lib := range []struct{ field, path string }{
		{"library", c.Library},
		{"mlx5", c.MLX5},
		{"efa", c.EFA},
	} {
		if lib.path != "" && !filepath.IsAbs(lib.path) {
			p.add("rdma.%s %q: write the whole path, from / on, or leave it out for the loader's", lib.field, lib.path)
		}
	}
}

// needsInterface reports whether the configuration makes no sense without interfaces: a flow needs one, or there is nothing
// else to count and flows are expected later.
func (c Config) needsInterface() bool {
	if c.Backend != "sim" && len(c.QueuePairs)+len(c.Words) == 0 {
		return true
	}
	return slices.ContainsFunc(c.Flows, func(f flow.Flow) bool {
		return f.Backend != "sim" && (f.Backend != "" || c.Backend != "sim")
	})
}

// ValidateIdle checks that IdlePeriod is not shorter than Period.
func (p PollConfig) ValidateIdle() error {
	if period := cmp.Or(p.Period, DefaultPollPeriod); p.IdlePeriod != 0 && p.IdlePeriod < period {
		return fmt.Errorf("poll.idle_period %s: at least poll.period, which is %s", p.IdlePeriod, period)
	}
	return nil
}
