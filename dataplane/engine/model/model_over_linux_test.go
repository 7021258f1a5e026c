package model

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawOver draws a history of a host with devices.
func drawOver(t *rapid.T) string {
	verbs := []string{
		"set", "set", "plus", "minus", "send", "send", "send", "send", "check", "check", "wait", "rename",
		"lose", "lose", "return", "return", "vanish", "down", "up", "full", "empty", "unread", "read", "reset",
		"detach", "refuse", "allow", "stop", "start", "start", "kill", "kill@", "kill@", "cancel@",
		"amid@", "amid@", "amid@", "amid@",
	}
	steps := drawPace(t)
	if rapid.IntRange(0, 4).Draw(t, "tight") == 0 {
		steps = append(steps, "tight")
	}
	kind := rapid.SampledFrom([]string{"devx", "devx", "devx", "verbs", "steal", ""})
	for i, ifname := range []string{"v0", "v1"} {
		if k := kind.Draw(t, "kind"); k != "" || i == 0 {
			steps = append(steps, strings.TrimSpace("device "+ifname+" "+max(k, "devx")))
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "audit") == 0 {
		steps = append(steps, "audit")
	}
	if rapid.IntRange(0, 2).Draw(t, "late") == 0 {
		steps = append(steps, "late")
	}
	steps = append(steps, "set "+drawFlowsOver(t), "start", "check")
	for range rapid.IntRange(1, 14).Draw(t, "steps") {
		step := drawStepOver(t, rapid.SampledFrom(verbs).Draw(t, "verb"))
		if strings.HasPrefix(step, "reset") {
			step = "wait 1s; " + step + "; wait 1s" // a counter that is not below its last sample looks as if it had gone on
		}
		steps = append(steps, step)
	}
	for _, ifname := range []string{"v0", "v1"} {
		for _, verb := range []string{"allow", "allow>", "return", "up", "empty", "read"} {
			steps = append(steps, verb+" "+ifname)
		}
	}
	return strings.Join(append(steps, "start", "wait 40s"), "; ")
}

func drawStepOver(t *rapid.T, verb string) string {
	arrow := rapid.SampledFrom([]string{"", "", "", ">"})
	ifname := rapid.SampledFrom([]string{"v0", "v1"})
	switch verb {
	case "set":
		return "set " + drawFlowsOver(t)
	case "plus":
		return "plus " + drawFlowOver(t, flowName.Draw(t, "name"))
	case "minus":
		return "minus " + flowName.Draw(t, "name")
	case "rename":
		return "rename " + flowName.Draw(t, "from") + " " + flowName.Draw(t, "to")
	case "send":
		return fmt.Sprintf("send%s %s %s %d", arrow.Draw(t, "side"), rapid.SampledFrom([]string{"1", "1", "2"}).Draw(t, "port"), ifname.Draw(t, "interface"), rapid.IntRange(1, 9).Draw(t, "packets"))
	case "kill@":
		of := drawStepOver(t, rapid.SampledFrom([]string{"set", "plus", "minus", "rename", "start", "stop", "wait"}).Draw(t, "in"))
		return fmt.Sprintf("kill@%d %s", rapid.IntRange(1, 20).Draw(t, "at"), of)
	case "cancel@":
		of := drawStepOver(t, rapid.SampledFrom([]string{"set", "plus", "rename"}).Draw(t, "in"))
		return fmt.Sprintf("cancel@%d %s", rapid.IntRange(1, 20).Draw(t, "at"), of)
	case "amid@":
		sent := drawStepOver(t, "send")
		of := drawStepOver(t, rapid.SampledFrom([]string{"set", "plus", "minus", "rename", "wait", "wait", "cancel@"}).Draw(t, "in"))
		return fmt.Sprintf("amid@%d %s: %s", rapid.IntRange(1, 12).Draw(t, "at"), sent, of)
	case "detach", "refuse", "allow":
		return verb + arrow.Draw(t, "side") + " " + ifname.Draw(t, "interface")
	case "lose", "vanish", "return", "down", "up", "full", "empty", "unread", "read", "reset":
		return verb + " " + ifname.Draw(t, "interface")
	case "wait":
		return "wait " + rapid.SampledFrom([]string{"1ms", "30ms", "1s", "5s", "40s"}).Draw(t, "time")
	}
	return verb
}

func drawFlowsOver(t *rapid.T) string {
	var words []string
	seen := make(map[string]bool)
	for _, name := range []string{"a", "b", "c", "d"} {
		if len(words) > 0 && rapid.Bool().Draw(t, "skip") {
			continue
		}
		f := drawFlowOver(t, name)
		if match := identityOf(f); !seen[match] {
			seen[match] = true
			words = append(words, f)
		}
	}
	return strings.Join(words, " ")
}

// identityOf returns what the word of a flow says of the packets.
func identityOf(word string) string {
	_, rest, _ := strings.Cut(word, "=")
	return rest[:len(rest)-len(strings.TrimLeft(rest, "12*@v0>"))]
}

func drawFlowOver(t *rapid.T, name string) string {
	match := rapid.SampledFrom([]string{"1", "1", "2", "*", "1@v0", "1@v1", "*@v1", "2>", "1>"}).Draw(t, "match")
	drop := rapid.SampledFrom([]string{"", "", "", "", "!"}).Draw(t, "action")
	priority := rapid.SampledFrom([]string{"", "", "", "^1", "^2"}).Draw(t, "priority")
	of := rapid.SampledFrom([]string{"", "", "", "", "~xdp", "~rdma"}).Draw(t, "backend")
	return name + "=" + match + drop + priority + of
}

// TestModelWithDevices plays histories of a host whose devices count before XDP, or behind it. They are the same in each run,
// as those of TestModel.
func TestModelWithDevices(t *testing.T) {
	preset := map[string]string{"rapid.seed": "1"}
	switch {
	case os.Getenv("FLOWTALLY_STRESS") != "":
		preset = map[string]string{"rapid.checks": "20000"}
	case !testing.Short():
		preset["rapid.checks"] = "2000" // 10 s of CPU
	}
	presetRapid(t, preset)
	playDrawn(t, drawOver)
}
