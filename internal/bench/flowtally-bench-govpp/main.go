// Command flowtally-bench-govpp is a side of a row of the bench: it reads counters from a statistics segment of VPP by
// govpp. `make bench` builds it. It is a module of its own, so that govpp is no dependency of flowtally.
//
// Started as
//
//	flowtally-bench-govpp SOCKET NAME SUM
//
// it connects to the socket that hands out the segment, and writes a line with a 0 when it has found the counters NAME.
// To a line "govpp N" it replies with the nanoseconds of its thread's CPU time that one of N reads took, or with "error: "
// and the reason. The packets of a read add up to SUM.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"
	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("want SOCKET NAME SUM, got %d arguments", len(args))
	}
	want, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return fmt.Errorf("reading the sum: %w", err)
	}
	client := statsclient.NewStatsClient(args[0])
	if err := client.Connect(); err != nil {
		return fmt.Errorf("connecting to the segment: %w", err)
	}
	defer client.Disconnect()
	dir, err := client.PrepareDir(args[1])
	if err != nil {
		return fmt.Errorf("finding the counters: %w", err)
	}
	if len(dir.Entries) != 1 {
		return fmt.Errorf("the segment has %d entries of that name", len(dir.Entries))
	}

	// A read allocates what it returns. No collection runs during reads: each reply is preceded by one.
	debug.SetGCPercent(-1)
	runtime.LockOSThread() // the clock is the thread's
	fmt.Println(0)
	return serve(client, dir, want)
}

// serve replies to the lines of standard input until it ends.
func serve(client *statsclient.StatsClient, dir *adapter.StatDir, want uint64) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "govpp %d", &n); err != nil || n < 1 {
			return fmt.Errorf("no request: %q", lines.Text())
		}
		ns, err := timed(client, dir, want, n)
		if err != nil {
			return err
		}
		runtime.GC() // not behind the reply, when another side is timed on this CPU
		fmt.Printf("%.6f\n", ns)
	}
	return lines.Err()
}

// timed reads the counters n times, and returns what one read took.
func timed(client *statsclient.StatsClient, dir *adapter.StatDir, want uint64, n int) (float64, error) {
	start, err := cpuTime()
	if err != nil {
		return 0, err
	}
	for range n {
		if err := client.UpdateDir(dir); err != nil {
			return 0, fmt.Errorf("reading the counters: %w", err)
		}
		if got := packets(dir.Entries[0].Data); got != want {
			return 0, fmt.Errorf("%d packets were read, %d were written", got, want)
		}
	}
	end, err := cpuTime()
	return float64(end-start) / float64(n), err
}

// packets adds up the packets of all counters, over the threads of VPP.
func packets(stat adapter.Stat) (sum uint64) {
	threads, _ := stat.(adapter.CombinedCounterStat)
	for _, list := range threads {
		for i := range list {
			sum += list[i].Packets()
		}
	}
	return sum
}

func cpuTime() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("reading the thread's clock: %w", err)
	}
	return ts.Nano(), nil
}
