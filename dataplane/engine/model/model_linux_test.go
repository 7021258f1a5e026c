package model

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// drawHistory draws a history of all steps but those of devices.
func drawHistory(t *rapid.T) string {
	verbs := []string{
		"set", "plus", "minus", "rename", "send", "send", "send", "check", "check", "stop", "start", "start", "kill", "keep", "drop",
		"detach", "refuse", "allow", "delete", "add", "hold", "free", "wait", "unlink", "unpin", "strict", "degraded", "only",
		"kill@", "kill@", "cancel@", "pass@", "pass@",
	}
	steps := []string{"set " + drawFlows(t), "start", "check"}
	if rapid.IntRange(0, 3).Draw(t, "tight") == 0 {
		steps = append([]string{"tight"}, steps...)
	}
	steps = append(drawPace(t), steps...)
	for range rapid.IntRange(1, 14).Draw(t, "steps") {
		step := drawStep(t, rapid.SampledFrom(verbs).Draw(t, "verb"), verbs)
		switch verb, at, _ := strings.Cut(step, " "); {
		case strings.HasPrefix(verb, "detach") && rapid.Bool().Draw(t, "seen"):
			arrow := strings.TrimPrefix(verb, "detach")
			step += fmt.Sprintf("; send%s 1 %s 2; send%s 2 %s 1; ", arrow, at, arrow, at)
			if n := rapid.IntRange(0, 8).Draw(t, "kill"); n > 0 {
				step += fmt.Sprintf("kill@%d ", n)
			}
			step += "wait 1s"
		case verb == "unlink" || verb == "unpin":
			step += "; wait 3s" // nothing makes them again for a process that has ended before
		}
		steps = append(steps, step)
	}
	return strings.Join(append(steps, "allow v0", "allow v1", "allow> v0", "allow> v1", "start"), "; ")
}

// drawPace makes three of four processes slow: most looks of the others find what they found 20 ms before.
func drawPace(t *rapid.T) []string {
	if rapid.IntRange(0, 3).Draw(t, "pace") == 0 {
		return nil
	}
	return []string{"slow"}
}

func drawStep(t *rapid.T, verb string, verbs []string) string {
	arrow := rapid.SampledFrom([]string{"", "", ">"})
	port := rapid.SampledFrom([]string{"1", "2"})
	ifname := rapid.SampledFrom([]string{"v0", "v1"})
	switch verb {
	case "set":
		return "set " + drawFlows(t)
	case "plus":
		return "plus " + drawFlow(t, flowName.Draw(t, "name"))
	case "minus":
		return "minus " + flowName.Draw(t, "name")
	case "rename":
		return "rename " + flowName.Draw(t, "from") + " " + flowName.Draw(t, "to")
	case "send":
		return fmt.Sprintf("send%s %s %s %d", arrow.Draw(t, "side"), port.Draw(t, "port"), ifname.Draw(t, "interface"), rapid.IntRange(1, 9).Draw(t, "packets"))
	case "kill@":
		of := drawStep(t, rapid.SampledFrom([]string{"set", "plus", "minus", "rename", "only", "start", "stop", "wait"}).Draw(t, "in"), verbs)
		return fmt.Sprintf("kill@%d %s", rapid.IntRange(1, 12).Draw(t, "at"), of)
	case "pass@":
		of := drawStep(t, rapid.SampledFrom([]string{"start", "stop", "wait", "wait"}).Draw(t, "in"), verbs)
		if n := rapid.IntRange(0, 12).Draw(t, "kill"); n > 0 {
			of = fmt.Sprintf("kill@%d %s", n, of)
		}
		return fmt.Sprintf("pass@%d %s", rapid.IntRange(1, 12).Draw(t, "at"), of)
	case "cancel@":
		of := drawStep(t, rapid.SampledFrom([]string{"set", "plus", "rename", "only"}).Draw(t, "in"), verbs)
		return fmt.Sprintf("cancel@%d %s", rapid.IntRange(1, 12).Draw(t, "at"), of)
	case "detach", "refuse", "allow":
		return verb + arrow.Draw(t, "side") + " " + ifname.Draw(t, "interface")
	case "hold", "free", "delete", "add":
		return verb + " " + ifname.Draw(t, "interface")
	case "only":
		return "only " + rapid.SampledFrom([]string{"v0", "v1", "v0 v1", "v0 v1"}).Draw(t, "interfaces")
	case "wait":
		return "wait " + rapid.SampledFrom([]string{"1ms", "30ms", "1s", "40s"}).Draw(t, "time")
	}
	return verb
}

// drawFlows draws a set of flows. No two match the same packets.
func drawFlows(t *rapid.T) string {
	var words []string
	seen := make(map[string]bool)
	for _, name := range []string{"a", "b", "c"} {
		if len(words) > 0 && rapid.Bool().Draw(t, "skip") {
			continue
		}
		f := drawFlow(t, name)
		if _, match, _ := strings.Cut(strings.TrimSuffix(f, "!"), "="); !seen[match] {
			seen[match] = true
			words = append(words, f)
		}
	}
	return strings.Join(words, " ")
}

var flowName = rapid.SampledFrom([]string{"a", "b", "c", "d"})

func drawFlow(t *rapid.T, name string) string {
	match := rapid.SampledFrom([]string{"1", "1", "2", "1@v0", "1@v1", "2>", "1>"}).Draw(t, "match")
	drop := rapid.SampledFrom([]string{"", "", "", "!"}).Draw(t, "action")
	return name + "=" + match + drop
}

// TestModel plays drawn histories. A history that fails is shrunk, and TestHistory repeats its line.
//
// The histories are the same in each run: a change must not be refused for a fault that was there before it. make test-stress
// draws others each time. What it finds belongs into knownFaults.
func TestModel(t *testing.T) {
	preset := map[string]string{"rapid.seed": "1"}
	switch {
	case os.Getenv("FLOWTALLY_STRESS") != "":
		preset = map[string]string{"rapid.checks": "100000"}
	case !testing.Short():
		preset["rapid.checks"] = "8000" // 18 s of CPU
	}
	presetRapid(t, preset)
	playDrawn(t, drawHistory)
}

// playDrawn plays histories that draw draws.
//
// One in eight has all CPUs, and the others one: with an idle CPU beside it, each goroutine that wakes another one wakes a
// thread first, which takes longer than what most of them do.
func playDrawn(t *testing.T, draw func(*rapid.T) string) {
	t.Helper()
	cpus := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(cpus)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // histories leave a heap of a few megabytes

	var c counts
	began, used := time.Now(), usedCPU(t)
	rapid.Check(t, func(rt *rapid.T) {
		h := draw(rt)
		if c.histories%8 == 0 {
			runtime.GOMAXPROCS(cpus)
		} else {
			runtime.GOMAXPROCS(1)
		}
		if err := play(t, h, &c); err != nil {
			rt.Fatalf("%v\nto repeat it: go test ./dataplane/engine/model -run TestHistory -v -history %q", err, h)
		}
	})
	each := (usedCPU(t) - used) / time.Duration(max(1, c.histories))
	t.Logf("%+v in %v, %v of CPU each", c, time.Since(began).Round(time.Millisecond), each.Round(time.Microsecond))
}

// usedCPU returns the time that this process has had a CPU.
func usedCPU(t *testing.T) time.Duration {
	t.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// presetRapid sets flags of rapid for a test, except those on the command line.
func presetRapid(t *testing.T, preset map[string]string) {
	given := make(map[string]bool)
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range preset {
		if given[name] {
			continue
		}
		f := flag.Lookup(name)
		was := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(was) })
	}
}
