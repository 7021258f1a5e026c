package rdma

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/lab/golden"
)

func TestReadEveryFollowsTheBudgetAndThePeriod(t *testing.T) {
	for _, c := range []struct {
		name                 string
		budget               Budget
		counters, perCommand int
		commands             int
		every                time.Duration
	}{
		{"the period is longer", Budget{}, 99, 1, 99, 10 * time.Millisecond},
		{"the budget is shorter", Budget{}, 1000, 1, 1000, 100 * time.Millisecond},
		{"a bulk that is full", Budget{}, 128, 128, 1, 10 * time.Millisecond},
		{"one counter more", Budget{}, 129, 128, 2, 10 * time.Millisecond},
		{"a small budget in bulk", Budget{CommandsPerSecond: 100}, 10000, 128, 79, 790 * time.Millisecond},
		{"a long period", Budget{Period: time.Second}, 1000, 1, 1000, time.Second},
		{"a period below the least", Budget{Period: time.Microsecond}, 1, 1, 1, backend.ReadPeriodMin},
		{"no counter", Budget{}, 0, 1, 0, 10 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			if commands, every := c.budget.ReadEvery(c.counters, c.perCommand); commands != c.commands || every != c.every {
				t.Errorf("%d commands, each counter every %v; want %d, every %v", commands, every, c.commands, c.every)
			}
		})
	}
}

func TestResultOfABudgetNamesWhatOneCommandReads(t *testing.T) {
	for _, c := range []struct {
		budget     Budget
		perCommand int
		want       string
	}{
		{Budget{}, 1, "one command reads one counter; commands_per_second 10000 and poll.period 10ms read each of 100 every 10ms, of 1000 every 100ms, of 10000 every 1s"},
		{Budget{}, bulkCounters, "one command reads 128 counters; commands_per_second 10000 and poll.period 10ms read each of 100 every 10ms, of 1000 every 10ms, of 10000 every 10ms"},
		{Budget{2000, 100 * time.Millisecond}, 1, "one command reads one counter; commands_per_second 2000 and poll.period 100ms read each of 100 every 100ms, of 1000 every 500ms, of 10000 every 5s"},
	} {
		if r := c.budget.Result("rdma mlx5_0", c.perCommand); r.Reason != c.want {
			t.Errorf("got  %s\nwant %s", r.Reason, c.want)
		}
	}
}

// The table in docs/rdma.md says what ReadEvery computes, with the default settings.
func TestTheTableOfReadsIsUpToDate(t *testing.T) {
	var table strings.Builder
	fmt.Fprintf(&table, "| flows in the NIC | rdma-core 44 and 56, or without DevX: one command reads one counter | rdma-core 65 with DevX: one command reads %d |\n| --- | --- | --- |\n", bulkCounters)
	for _, n := range exampleCounters() {
		number := fmt.Sprint(n)
		if len(number) > 3 {
			number = number[:len(number)-3] + "," + number[len(number)-3:]
		}
		fmt.Fprintf(&table, "| %s |", number)
		for _, perCommand := range []int{1, bulkCounters} {
			commands, every := Budget{}.ReadEvery(n, perCommand)
			fmt.Fprintf(&table, " %s, by %s |", every, plural(commands))
		}
		table.WriteString("\n")
	}
	golden.CompareSection(t, "../../../docs/rdma.md", "reads", table.String(), *update)
}

func plural(commands int) string {
	if commands == 1 {
		return "1 command"
	}
	return fmt.Sprintf("%d commands", commands)
}
