package rules

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/flowtally/flowtally/"

type pkg struct {
	ImportPath string
	Dir        string
	Doc        string
	GoFiles    []string // those with cgo among them
	CgoFiles   []string
	Imports    []string
	Deps       []string

	IgnoredGoFiles            []string // of other systems, mostly
	TestGoFiles, XTestGoFiles []string
}

// list is the module as go list sees it for Linux with cgo: it runs no compiler.
var list = sync.OnceValues(func() (map[string]pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,GoFiles,CgoFiles,Imports,Deps,IgnoredGoFiles,TestGoFiles,XTestGoFiles", module+"...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOOS=linux")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	all := make(map[string]pkg)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		p.GoFiles = append(p.GoFiles, p.CgoFiles...)
		all[strings.TrimPrefix(p.ImportPath, module)] = p
	}
})

func packages(t *testing.T) map[string]pkg {
	t.Helper()
	all, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("go list found %d packages", len(all))
	}
	return all
}

// TestImportsFollowTheTableOfPackages holds the table of packages: which of our packages each may import, and
// which packages must never be among its dependencies, however indirectly.
func TestImportsFollowTheTableOfPackages(t *testing.T) {
	all := packages(t)
	// Direct imports of our own packages.
	allowed := map[string][]string{
		"dataplane/flow":    {"internal/spelling"},
		"probe":             {},
		"shm":               {"internal/space", "internal/trust", "shm/words"},
		"shm/words":         {},
		"shm/include":       {},
		"xdp":               {"probe", "internal/genl", "internal/kernel", "internal/trust", "xdp/dispatcher", "xdp/fold", "xdp/members", "xdp/tree"},
		"xdp/dispatcher":    {"internal/trust"},
		"xdp/links":         {},
		"xdp/fold":          {"internal/insn"},
		"xdp/members":       {},
		"xdp/tree":          {},
		"dataplane":         {"dataplane/flow", "internal/spelling", "probe", "shm"},
		"ibv":               {"probe", "ibv/flexio", "ibv/internal/abi", "internal/trust"},
		"ibv/flexio":        {},
		"ibv/ibvtest":       {"ibv/internal/abi"},
		"ibv/internal/abi":  {},
		"ibv/ibvtest/build": {"ibv/ibvtest"},
		"dataplane/engine": {
			"dataplane", "dataplane/flow", "probe", "ibv", "internal/verbpage", "shm",
			"dataplane/engine/backend", "dataplane/engine/catalogue", "dataplane/engine/change", "dataplane/engine/control", "dataplane/engine/event", "dataplane/engine/overlap", "dataplane/engine/poll", "dataplane/engine/queuepair", "dataplane/engine/rdma", "dataplane/engine/sim", "dataplane/engine/trial", "dataplane/engine/trial/child", "dataplane/engine/words", "dataplane/engine/xdp", "internal/hosted", "internal/inject", "internal/tick",
		},
		"dataplane/engine/backend":   {"dataplane", "dataplane/flow", "probe", "shm"},
		"internal/confine":           {},
		"internal/genl":              {},
		"internal/hosted":            {"internal/verbpage"},
		"internal/inject":            {"dataplane/engine/backend", "internal/space", "internal/tick"},
		"internal/insn":              {},
		"internal/kernel":            {"xdp/links"},
		"internal/setfile":           {},
		"internal/space":             {},
		"internal/spelling":          {},
		"dataplane/engine/catalogue": {"dataplane", "dataplane/engine/backend", "dataplane/engine/live", "dataplane/engine/poll", "internal/space", "shm"},
		"dataplane/engine/live":      {"dataplane", "probe", "shm"},
		"dataplane/engine/words":     {"dataplane", "dataplane/flow", "dataplane/engine/backend", "dataplane/engine/catalogue", "dataplane/engine/live", "dataplane/engine/queuepair", "probe", "shm", "shm/words"},
		"dataplane/engine/change":    {"dataplane", "dataplane/engine/backend", "dataplane/engine/overlap", "dataplane/flow"},
		"dataplane/engine/control":   {},
		"dataplane/engine/event":     {"dataplane"},
		"dataplane/engine/sim":       {"dataplane", "dataplane/engine/backend"},
		"dataplane/engine/overlap":   {"dataplane/flow"},
		"dataplane/engine/poll":      {"dataplane", "dataplane/engine/backend", "internal/tick", "probe", "shm"},
		"dataplane/engine/queuepair": {"dataplane", "dataplane/engine/backend", "dataplane/flow", "probe", "ibv", "ibv/flexio", "shm", "shm/words"},
		"dataplane/engine/rdma":      {"dataplane", "dataplane/engine/backend", "dataplane/engine/overlap", "dataplane/engine/trial", "dataplane/flow", "internal/genl", "probe", "ibv", "shm"},
		"dataplane/engine/trial":     {"dataplane", "probe", "ibv", "internal/verbpage"},
		"dataplane/engine/xdp":       {"dataplane", "dataplane/engine/backend", "dataplane/flow", "internal/genl", "internal/kernel", "internal/tick", "probe", "shm", "xdp", "xdp/links"},
		"plugin":                     {"dataplane", "dataplane/flow", "probe", "internal/confine", "internal/hosted", "internal/trust", "plugin/internal/child", "plugin/internal/logwire", "plugin/internal/queue", "plugin/proto/v1"},
		"plugin/proto/v1":            {},
		"configs":                    {"dataplane", "dataplane/flow", "internal/setfile", "internal/spelling", "internal/trust"}, // whose files root includes
		"internal/oracle":            {"dataplane/flow"},
		"internal/tick":              {},
		"internal/trust":             {},
		"internal/verbpage":          {},
		"cmd/flowtally":              {"cmd/internal/cli"},
		"cmd/flowtally-plugin":       {"plugin", "dataplane", "dataplane/engine"},

		"dataplane/engine/trial/child": {"dataplane/engine/queuepair", "dataplane/engine/rdma", "dataplane/engine/trial", "ibv", "internal/verbpage", "probe"},

		"plugin/internal/child":   {"internal/verbpage"},
		"plugin/internal/logwire": {},
		"plugin/internal/queue":   {"dataplane"},
		"cmd/internal/eventlog":   {"dataplane"},
		"cmd/internal/usage":      {"internal/spelling"},
		"cmd/internal/export":     {"cmd/internal/selection", "cmd/internal/view", "dataplane", "shm"},
		"cmd/internal/cost":       {"cmd/internal/format", "dataplane"},
		"cmd/internal/format":     {},
		"cmd/internal/instances":  {"dataplane", "shm"},
		"cmd/internal/manual":     {"cmd/internal/usage"},
		"cmd/internal/selection":  {"dataplane/flow", "internal/spelling", "shm"},
		"cmd/internal/view":       {"cmd/internal/cost", "cmd/internal/format", "cmd/internal/selection", "dataplane", "dataplane/flow", "internal/lab/demo", "probe", "shm"},
		"cmd/internal/top":        {"cmd/internal/format", "cmd/internal/selection", "cmd/internal/view", "shm"},
		"cmd/internal/hostcheck":  {"cmd/internal/format", "dataplane", "internal/trust", "plugin", "probe", "shm", "shm/words"},
		"cmd/internal/reload":     {"cmd/internal/cost", "cmd/internal/format", "configs", "dataplane", "shm"},
		"cmd/internal/capture":    {},
		"cmd/internal/completion": {},
		"cmd/internal/replay":     {"cmd/internal/capture", "cmd/internal/format", "cmd/internal/view", "dataplane", "dataplane/engine/xdp", "dataplane/flow", "internal/oracle", "probe", "shm"},
		"cmd/internal/selftest":   {"cmd/internal/format", "dataplane", "dataplane/flow", "probe", "shm"},
		"cmd/internal/explain":    {"cmd/internal/capture", "cmd/internal/cost", "cmd/internal/format", "cmd/internal/replay", "dataplane/engine/xdp", "dataplane/flow", "internal/lab/frame", "internal/oracle"},
	}
	for name, may := range allowed {
		p, ok := all[name]
		if !ok {
			t.Errorf("package %s is in the design and not in the tree", name)
			continue
		}
		for _, imp := range p.Imports {
			ours, is := strings.CutPrefix(imp, module)
			if is && !slices.Contains(may, ours) {
				t.Errorf("%s imports %s; it may import %v of ours", name, ours, may)
			}
		}
	}
	// The dependencies that are forbidden, with the reason.
	never := []struct{ from, what, why string }{
		{"dataplane", "github.com/cilium/ebpf", "an embedder that talks to a plugin pulls in no eBPF"},
		{"plugin", "github.com/cilium/ebpf", "an embedder that talks to a plugin pulls in no eBPF"},
		{"dataplane", module + "ibv", "an embedder that talks to a plugin pulls in no cgo"},
		{"plugin", module + "ibv", "an embedder that talks to a plugin pulls in no cgo"},
		{"plugin", module + "dataplane/engine", "the client side must not link the engine"},
		{"dataplane/engine", "github.com/hashicorp/go-plugin", "go-plugin links testing into the engine"},
		{"dataplane/engine", "google.golang.org/grpc", "control crosses the wire in package plugin only"},
		{"shm", "github.com/cilium/ebpf", "a reader needs no kernel"},
		{"shm", "github.com/vishvananda/netlink", "a reader needs no kernel"},
		{"configs", "github.com/cilium/ebpf", "checking a configuration needs no kernel"},
		{"configs", module + "ibv", "checking a configuration needs no library"},
		{"dataplane/engine/xdp", module + "ibv", "backends meet in the engine alone"},
		{"ibv", "github.com/cilium/ebpf", "verbs are one thing, XDP is another"},
		{"ibv", "github.com/vishvananda/netlink", "which netdev a device has is the engine's question"},
		{"ibv", module + "dataplane/flow", "ibv knows verbs, not flows"},
		{"ibv", module + "xdp", "backends meet in the engine alone"},
		{"ibv", module + "shm", "backends write no mirror"},
		{"xdp", module + "ibv", "backends meet in the engine alone"},
		{"xdp", module + "dataplane", "xdp knows rules, not flows and services"},
		{"ibv", module + "dataplane", "ibv knows verbs, not flows and services"},
		{"xdp", module + "shm", "backends write no mirror"},
		{"dataplane/engine/rdma", module + "xdp", "backends meet in the engine alone"},
		{"dataplane/engine/rdma", "github.com/cilium/ebpf", "verbs are one thing, XDP is another"},
		{"dataplane/engine/backend", module + "ibv", "the interface between engine and backends is no backend"},
		{"dataplane/engine/backend", module + "xdp", "the interface between engine and backends is no backend"},
		{"shm", module + "ibv", "a reader needs no device"},
		{"shm", module + "xdp", "a reader needs no kernel"},
		{"cmd/flowtally", module + "internal/bench", "the bench is a program of its own, which needs the sources and a compiler"},
		{"cmd/flowtally-plugin", module + "internal/bench", "the bench is a program of its own, which needs the sources and a compiler"},
		{"cmd/flowtally", module + "ibv/ibvtest", "the software NIC is a library beside the programs, not a part of them"},
		{"cmd/flowtally-plugin", module + "ibv/ibvtest", "the software NIC is a library beside the programs, not a part of them"},
	}
	for _, n := range never {
		p, ok := all[n.from]
		if !ok {
			t.Errorf("package %s is named in the rules and not in the tree", n.from)
		}
		if slices.Contains(p.Deps, n.what) {
			t.Errorf("%s reaches %s: %s", n.from, n.what, n.why)
		}
	}
	for name, p := range all {
		for _, imp := range p.Imports {
			if imp == module+"internal/inject" && name != "dataplane/engine" && name != "internal/bench/pollrows" && name != "internal/bench/flowrows" {
				t.Errorf("%s imports internal/inject, which is for tests and benchmarks of the engine", name)
			}
			if imp == "github.com/alecthomas/kong" && !strings.HasPrefix(name, "cmd/") && name != "internal/bench/flowtally-bench" {
				t.Errorf("%s imports kong: only cmd/ and the program of the bench know a command line", name)
			}
		}
		if len(p.CgoFiles) > 0 && name != "ibv" {
			t.Errorf("%s has cgo in %v: only ibv may", name, p.CgoFiles)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for name, p := range packages(t) {
		if p.Doc == "" {
			t.Errorf("package %s has no package comment", name)
		}
	}
}

// unsafeUse matches the functions of unsafe that can break memory. Sizes and offsets are constants
// and cannot.
var unsafeUse = regexp.MustCompile(`\bunsafe\.(Pointer|Add|Slice|SliceData|String|StringData)\b`)

// TestUnsafeIsInOneFilePerPackage keeps the code that can break memory where a reader finds it.
func TestUnsafeIsInOneFilePerPackage(t *testing.T) {
	for name, p := range packages(t) {
		var unsafeIn []string
		for _, f := range p.GoFiles {
			data, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			if !generated(data) && unsafeUse.Match(data) {
				unsafeIn = append(unsafeIn, f)
			}
		}
		if len(unsafeIn) > 1 {
			t.Errorf("package %s uses unsafe in %v; one file per package", name, unsafeIn)
		}
	}
}

// generated reports whether a generator wrote the file.
func generated(src []byte) bool {
	s := bufio.NewScanner(bytes.NewReader(src))
	for s.Scan() {
		if strings.HasPrefix(s.Text(), "// Code generated ") {
			return true
		}
		if strings.HasPrefix(s.Text(), "package ") {
			return false
		}
	}
	return false
}
