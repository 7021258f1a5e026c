//go:build releases && cgo

package ibv

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// otherEnv is set in the second process of TestKernelProcessesShareOneFlowTable.
const otherEnv = "FLOWTALLY_OTHER_PROCESS"

// Two processes without shared memory use one device over the real libmlx5 of each release. When one process is killed,
// its flows end and the flows of the other keep counting.
func TestKernelProcessesShareOneFlowTable(t *testing.T) {
	overServer(t, [][]string{nil}, rdmacore.Suites(), func(t *testing.T) {
		if os.Getenv(otherEnv) != "" {
			otherProcess(t)
			return
		}
		b := newDevXBench(t)
		m := must(b.dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()}))(t)
		b.closes(m)
		mine := b.counts(1)
		b.closes(must(m.CreateFlow(udpPort(1), FlowActions{Counters: mine, DefaultMiss: true}))(t))
		takes := func(port uint16, want error) {
			t.Helper()
			f, err := m.CreateFlow(udpPort(port), FlowActions{DefaultMiss: true})
			if !errors.Is(err, want) {
				t.Fatalf("a flow of port %d: %v, want %v", port, err, want)
			}
			if err == nil {
				b.check(f.Close())
			}
		}
		for round := uint64(1); round <= 2; round++ {
			var other *lab.Lines
			b.check(b.wire.Near.NS.Do(func() error {
				cmd := exec.Command("/proc/self/exe", "-test.run=^TestKernelProcessesShareOneFlowTable$")
				cmd.Env = append(os.Environ(), otherEnv+"=1")
				other = lab.StartLines(t, cmd)
				return nil
			}))
			expect(t, other.Next(), "EEXIST") // a drop beside the flow of this process
			takes(2, syscall.EEXIST)          // beside the drop of the other
			for port := range uint16(3) {
				b.send(b.udpTo(port), repeats)
			}
			expect(t, other.Say("count"), fmt.Sprint(repeats, repeats))
			b.wantCounts(mine, times(repeats*(2*round-1), b.udpTo(1)))
			other.Kill()
			takes(2, nil)
			b.send(b.udpTo(1), repeats)
			b.wantCounts(mine, times(repeats*2*round, b.udpTo(1)))
		}
	})
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("the other process printed %q, want %q", got, want)
	}
}

// otherProcess drops port 2, and counts port 1 beside the first process.
func otherProcess(t *testing.T) {
	lib := must(Load(Options{}))(t)
	dx := must(must(lib.Open(device()))(t).DevX())(t)
	m := must(dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()}))(t)
	one, two := must(dx.AllocFlowCounters(1))(t), must(dx.AllocFlowCounters(1))(t)
	must(m.CreateFlow(udpPort(1), FlowActions{Counters: one, DefaultMiss: true}))(t)
	must(m.CreateFlow(udpPort(2), FlowActions{Counters: two, Drop: true}))(t)
	if _, err := m.CreateFlow(udpPort(1), FlowActions{Drop: true}); errors.Is(err, syscall.EEXIST) {
		fmt.Println("EEXIST")
	} else {
		fmt.Println(err)
	}
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		counts := make([]FlowCount, 2)
		for i, c := range []*FlowCounters{one, two} {
			if err := c.Query(counts[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Println(counts[0].Packets, counts[1].Packets)
	}
}

// The front end for seccomp serves tests of both devices and the statements of the references 000 to 002, on the
// distribution's release. A test's environment does not reach this kernel, so each set of faults gets a kernel of its
// own.
func TestKernelServedThroughSeccompPassesTheSuites(t *testing.T) {
	statements := slices.Concat(attachStatements, createStatements, readStatements)
	overServer(t, environs(statements, kernelNames), rdmacore.Suites()[:1], func(t *testing.T) {
		if os.Getenv(groupEnv) == "" {
			t.Run("opens", TestKernelOpensBothDevices)
			t.Run("efa", TestKernelEFAMovesDataByUDAndSRD)
			t.Run("suites", TestKernelPassesTheSuitesOfRDMACore)
			t.Run("devx", TestDevXFlowCountsPacketsAndOctets)
			t.Run("async", TestDevXAsyncQueryReturnsItsIDAndCounts)
		}
		runStatements(t, statements, func(t *testing.T) *bench { return newBench(t, newWire(t)) })
	})
}

// The statements of reference 003 need the release with completion counters.
func TestKernelServedThroughSeccompCountsCompletions(t *testing.T) {
	overServer(t, environs(compCntrStatements, efaMethods), rdmacore.Suites()[2:], func(t *testing.T) {
		runStatements(t, compCntrStatements, newEFA)
	})
}
