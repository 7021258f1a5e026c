package dataplane

import (
	"cmp"
	"errors"
	"fmt"
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

// minPeriod is the shortest poll period. Busy is for shorter ones.
const minPeriod = 100 * time.Microsecond

// defaultPeriod is the poll period where none is configured.
const defaultPeriod = 10 * time.Millisecond

// mostCommands is the largest budget: a command per microsecond, more than a device takes.
const mostCommands = 1_000_000

// problems has an error for each rule that a configuration breaks.
type problems []error

func (p problems) Error() string { return errors.Join(p...).Error() }

// Is makes errors.Is(err, ErrInvalid) true.
func (p problems) Is(target error) bool { return target == ErrInvalid }

// Unwrap lets errors.Is and errors.As see each of them.
func (p problems) Unwrap() []error { return p }

// ValidateInstance reports an invalid name of an instance. The name becomes part of paths. The error satisfies
// errors.Is(err, ErrInvalid).
func ValidateInstance(name string) error {
	if !instanceName.MatchString(name) {
		return problems{fmt.Errorf("instance %q: use 1 to 32 characters of a-z, 0-9 and -", name)}
	}
	return nil
}

// Validate reports every rule that the configuration breaks, joined, in an error
// that satisfies errors.Is(err, ErrInvalid). Each part names the field, the cause
// and the next step; errors.As finds a *flow.FieldError in those about a flow.
func (c Config) Validate() error {
	var errs problems
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Instance != "" {
		if err := ValidateInstance(c.Instance); err != nil {
			errs = append(errs, err)
		}
	}
	if err := c.Backend.Validate(); err != nil {
		errs = append(errs, err)
	}
	if len(c.Interfaces) == 0 && c.needsInterface() {
		bad("interfaces: none to count on; name at least one, or a queue pair, or words, or use backend sim")
	}
	if err := ValidateInterfaces(c.Interfaces); err != nil {
		errs = append(errs, err.(problems)...)
	}
	if len(c.Interfaces) > mostInterfaces {
		return errs
	}
	if !slices.Contains([]StartMode{"", StartStrict, StartDegraded}, c.Start) {
		bad("start %q: use strict or degraded", c.Start)
	}
	flows := make(map[string]bool, len(c.Flows))
	for _, f := range c.Flows {
		if err := f.Validate(); err != nil {
			errs = append(errs, err)
		}
		if flows[f.Name] {
			bad("flow %q: defined twice; rename one", f.Name)
		}
		flows[f.Name] = true
		if err := ReachesInterface(c.Interfaces, f); err != nil {
			errs = append(errs, err.(problems)...)
		}
	}
	for _, err := range c.QueuePairErrors() {
		errs = append(errs, err)
	}
	errs = append(errs, c.WordsErrors()...)
	if n := c.Mirror.Counters; n < 0 || n > 1<<24 {
		bad("mirror.counters %d: 0 to %d", n, 1<<24)
	}
	if n := c.Mirror.LatencyCounters; n < 0 || n > 1<<20 {
		bad("mirror.latency_counters %d: 0 to %d", n, 1<<20)
	}
	if n := c.Mirror.History; n < -1 || n > 1<<24 {
		bad("mirror.history %d: -1 (none) to %d", n, 1<<24)
	}
	if d := c.Mirror.HistoryPeriod; d < 0 {
		bad("mirror.history_period %s: not below 0", d)
	}
	if m := c.Mirror.Mode; m&^0o666 != 0 || m != 0 && m&0o200 == 0 || m&0o022 != 0 {
		bad("mirror.mode %#o: let only the owner write, as in 0644 or 0600", uint32(m))
	}
	if m := c.Mirror.LiveMode; m&^0o666 != 0 || m != 0 && m&0o200 == 0 {
		bad("mirror.live_mode %#o: the bits for reading and writing, and the owner's for writing, as in 0660 or 0600", uint32(m))
	}
	if m := c.Mirror.WordsMode; m&^0o666 != 0 || m != 0 && m&0o200 == 0 {
		bad("mirror.words_mode %#o: the bits for reading and writing, and the owner's for writing, as in 0660 or 0600", uint32(m))
	}
	for _, g := range []struct{ field, name string }{{"wait_group", c.Mirror.WaitGroup}, {"live_group", c.Mirror.LiveGroup}, {"words_group", c.Mirror.WordsGroup}} {
		if strings.ContainsFunc(g.name, func(r rune) bool { return r <= ' ' || r == ':' || r == 0x7f }) {
			bad("mirror.%s %q: name a group of /etc/group, or its number", g.field, g.name)
		}
	}
	if d := c.Poll.Period; d != 0 && d < minPeriod {
		bad("poll.period %s: at least %s; for less use poll.busy", d, minPeriod)
	}
	if err := c.Poll.ValidateIdle(); err != nil {
		bad("%w", err)
	}
	if n := c.Poll.CPU; n < 0 || n > math.MaxInt32 {
		bad("poll.cpu %d: 0 to %d", n, math.MaxInt32)
	}
	if n := c.XDP.MaxFlows; n < 0 || n > MostFlows {
		bad("xdp.max_flows %d: 0 to %d", n, MostFlows)
	}
	if n := c.XDP.WorstCost; n < 0 || n > MostWorstCost {
		bad("xdp.worst_cost %d: 0 to %d", n, MostWorstCost)
	}
	if t := c.XDP.TCX; !slices.Contains([]string{"", "first", "last"}, t) {
		bad("xdp.tcx %q: use first or last", t)
	}
	for i, b := range c.XDP.Beside {
		switch {
		case !slices.Contains(Besides(), b):
			bad("xdp.beside %q: use dispatcher, tcx or refuse", b)
		case slices.Contains(c.XDP.Beside[:i], b):
			bad("xdp.beside: %s is listed twice; remove one", b)
		case b == BesideDispatcher && slices.Contains(c.XDP.Beside[:i], BesideTCX):
			bad("xdp.beside: dispatcher stands behind tcx, which is always possible first; list dispatcher before tcx, or leave it out")
		}
	}
	if n := c.RDMA.CommandsPerSecond; n < 0 || n > mostCommands {
		bad("rdma.commands_per_second %d: 0 (10000) to %d", n, mostCommands)
	}
	for _, lib := range []struct{ field, path string }{{"library", c.RDMA.Library}, {"mlx5", c.RDMA.MLX5}, {"efa", c.RDMA.EFA}} {
		if lib.path != "" && !filepath.IsAbs(lib.path) {
			bad("rdma.%s %q: write the whole path, from / on, or leave it out for the loader's", lib.field, lib.path)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// needsInterface reports whether a flow may need an interface: a configured flow, or a later one if there is nothing
// else to count.
func (c Config) needsInterface() bool {
	if c.Backend != "sim" && len(c.QueuePairs)+len(c.Words) == 0 {
		return true
	}
	return slices.ContainsFunc(c.Flows, func(f flow.Flow) bool {
		return f.Backend != "sim" && (f.Backend != "" || c.Backend != "sim")
	})
}

// ValidateIdle returns an error if IdlePeriod is shorter than Period.
func (p PollConfig) ValidateIdle() error {
	if period := cmp.Or(p.Period, defaultPeriod); p.IdlePeriod != 0 && p.IdlePeriod < period {
		return fmt.Errorf("poll.idle_period %s: at least poll.period, which is %s", p.IdlePeriod, period)
	}
	return nil
}
