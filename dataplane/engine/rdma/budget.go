package rdma

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// Budget is what a device may be asked for its counters, by the settings of an instance. The zero value has the defaults.
type Budget struct {
	CommandsPerSecond int           // dataplane.RDMAConfig's; 0 is the default
	Period            time.Duration // dataplane.PollConfig's; 0 is the default
}

// commands returns the commands per second.
func (b Budget) commands() int {
	return cmp.Or(b.CommandsPerSecond, backend.DefaultCommandsPerSecond)
}

// period returns the least time between two reads of one counter.
func (b Budget) period() time.Duration {
	return max(cmp.Or(b.Period, dataplane.DefaultPollPeriod), backend.ReadPeriodMin)
}

// ReadEvery returns how many commands read all of a device's counters, and the time between two reads of each, if no other
// device shares the budget. perCommand is the number of counters that one command reads.
func (b Budget) ReadEvery(counters, perCommand int) (commands int, every time.Duration) {
	commands = (counters + perCommand - 1) / perCommand
	pass := time.Duration(commands) * time.Duration(newPacer(b.commands()).interval)
	return commands, max(pass, b.period())
}

// FeatureReads is the name of the feature in the result of [Budget.Result].
const FeatureReads = "reading flow counters"

// exampleCounters are the numbers of counters of which Result tells how often each is read.
func exampleCounters() []int { return []int{100, 1000, 10000} }

// Result tells how often the counters of a device are read, one command reading perCommand of them.
func (b Budget) Result(object string, perCommand int) probe.Result {
	var each []string
	for _, n := range exampleCounters() {
		_, every := b.ReadEvery(n, perCommand)
		each = append(each, fmt.Sprintf("%d every %s", n, every))
	}
	counters := "one counter"
	if perCommand > 1 {
		counters = fmt.Sprintf("%d counters", perCommand)
	}
	return probe.Result{
		Feature: FeatureReads,
		Object:  object,
		Answer:  probe.Yes,
		Reason: fmt.Sprintf("one command reads %s; commands_per_second %d and poll.period %s read each of %s",
			counters, b.commands(), b.period(), strings.Join(each, ", of ")),
	}
}

// CountersPerCommand returns how many counters one command reads: a bulk by DevX, or one. It needs a device that counts flows.
func CountersPerCommand(lib *ibv.Library, device string) int {
	ctx, err := lib.Open(device)
	if err != nil {
		return 1
	}
	defer ctx.Close()
	n, err := openDevXNIC(ctx, 1)
	if err != nil {
		return 1
	}
	defer n.dx.Close()
	return n.bulk
}
