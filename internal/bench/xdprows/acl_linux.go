package xdprows

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/cside"
	"github.com/flowtally/flowtally/internal/lab/classbench"
	"github.com/flowtally/flowtally/probe"
)

//go:embed src/acl.c
var aclC []byte

// patience bounds the build of rte_acl, which takes seconds for some sets and does not end for others.
const patience = 2 * time.Minute

// acl is DPDK's rte_acl over one set and trace, in a process that serves all openings of a row.
type acl struct {
	set  func() input
	once sync.Once
	err  error
	peer *cside.Program
	open bench.Closers
}

// prepare compiles and starts the peer, and has it build its tables, once.
func (a *acl) prepare(ctx context.Context) error {
	a.once.Do(func() { a.err = a.start(ctx) })
	return a.err
}

func (a *acl) start(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "flowtally-acl-")
	if err != nil {
		return fmt.Errorf("making a directory for rte_acl: %w", err)
	}
	a.open.Add(func() error { return os.RemoveAll(dir) })
	flags, err := dpdkFlags(ctx)
	if err != nil {
		return err
	}
	bin, err := cside.Compile(ctx, dir, "acl", aclC, flags...)
	if err != nil {
		return err
	}

	in := a.set()
	rules := filepath.Join(dir, "rules")
	if err := written(rules, func(w io.Writer) { writeRules(w, in.rules) }); err != nil {
		return err
	}
	packets := filepath.Join(dir, "packets")
	if err := written(packets, func(w io.Writer) { writePackets(w, in.rules, in.packets) }); err != nil {
		return err
	}

	cpus, err := bench.CPUs()
	if err != nil {
		return err
	}
	if a.peer, err = cside.Start(&a.open, bin, rules, packets, strconv.Itoa(cpus[0])); err != nil {
		return err
	}
	return a.peer.Ready(patience)
}

// dpdkFlags are the compiler's flags for a program of rte_acl.
func dpdkFlags(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "pkg-config", "--cflags", "libdpdk").Output()
	if err != nil {
		return nil, &probe.UnsupportedError{
			Feature: "rte_acl",
			Reason:  "pkg-config does not find libdpdk",
			Fix:     "install libdpdk-dev, as make bench does",
		}
	}
	return append(strings.Fields(string(out)), "-lrte_acl", "-lrte_eal"), nil
}

// written makes a file.
func written(path string, write func(io.Writer)) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing a set for rte_acl: %w", err)
	}
	w := bufio.NewWriter(f)
	write(w)
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		return fmt.Errorf("writing a set for rte_acl: %w", err)
	}
	return nil
}

// writeRules writes a rule a line, as src/acl.c reads them.
func writeRules(w io.Writer, rules []classbench.Rule) {
	for _, r := range rules {
		fmt.Fprintln(w, r.Src.Addr, r.Src.Len, r.Dst.Addr, r.Dst.Len,
			r.SrcPort.First, r.SrcPort.Last, r.DstPort.First, r.DstPort.Last, r.Proto)
	}
}

// writePackets writes a packet a line, with the number of the rule that decides it, from 1 on; 0: none.
func writePackets(w io.Writer, rules []classbench.Rule, packets []classbench.Packet) {
	for _, p := range packets {
		fmt.Fprintln(w, p.Src, p.Dst, p.SrcPort, p.DstPort, p.Proto, classbench.First(rules, p)+1)
	}
}

// side classifies packets of the trace on a CPU.
func (a *acl) side(cpu int) (bench.Side, error) {
	if _, err := a.peer.Ask("pin", cpu); err != nil {
		return nil, err
	}
	return func(_ context.Context, n int) (float64, error) { return a.peer.Ask("acl", n) }, nil
}

// aclRow compares the cost of a set above the empty program with rte_acl, which only classifies.
func aclRow(row bench.Row, generate func() input) bench.Row {
	in := sync.OnceValue(generate)
	a := &acl{set: in}
	row.Prepare = a.prepare
	row.Release = a.open.Close
	row.Open = func(ctx context.Context, env bench.Env) (*bench.Sides, error) {
		ref, err := a.side(env.CPU)
		if err != nil {
			return nil, err
		}
		return withSet(in().rules, in().packets, func(s *set) (*bench.Sides, error) {
			return &bench.Sides{
				Ours:      bench.Above(s.spread(traceOurs), s.spread(traceEmpty)),
				Ref:       ref,
				N:         tracePackets,
				MaxSpread: 0.3,
			}, nil
		})(ctx, env)
	}
	return row
}
