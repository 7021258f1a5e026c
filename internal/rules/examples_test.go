package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// mainCalls are the calls of each public package that a user of the package begins with.
var mainCalls = map[string][]string{
	"configs":          {"Parse", "Load", "Marshal", "Sample"},
	"dataplane":        {"Service", "Service_Conditions", "Service_Events", "Service_SetFlows", "Difference", "Config_Validate", "Source", "ParseQueuePairAddress"},
	"dataplane/engine": {"New", "Check", "Probe"},
	"dataplane/flow":   {"ParseMatch", "MustParse", "Parse", "Flow_Validate", "Match_Expand", "Backends"},
	"probe":            {"Ask"},
	"ibv":              {"Load", "Context_CreateCompCntr", "Context_NextEvent", "CQ_Poll", "QP_CreateFlow"},
	"ibv/flexio":       {"Decode", "Validate", "NewRing", "NewCollapsed"},
	"plugin":           {"Launch", "Serve", "Dial", "ListenControl", "Find"},
	"shm":              {"Open", "OpenReader", "Create", "Reader_Wait", "Reader_History"},
	"xdp":              {"Open", "Datapath_Exchange", "Probe"},
	"xdp/links":        {"Watch"},
}

var example = regexp.MustCompile(`(?m)^func Example(\w+)\(\)`)

// TestMainCallsHaveExamples: the documentation of a public package shows each of its main calls.
func TestMainCallsHaveExamples(t *testing.T) {
	all := packages(t)
	for name, calls := range mainCalls {
		var shown []string
		for _, f := range append(all[name].TestGoFiles, all[name].XTestGoFiles...) {
			data, err := os.ReadFile(filepath.Join(all[name].Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range example.FindAllSubmatch(data, -1) {
				shown = append(shown, string(m[1]))
			}
		}
		for _, call := range calls {
			if !slices.Contains(shown, call) {
				t.Errorf("package %s has no Example%s", name, call)
			}
		}
	}
}
