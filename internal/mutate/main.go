package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"
)

// packages are the ones that mutants are drawn from.
var packages = []string{
	"ibv", "ibv/flexio", "dataplane", "dataplane/flow", engine, engine + "/backend", engine + "/catalogue", engine + "/change", engine + "/control", engine + "/event", engine + "/poll",
	engine + "/live", engine + "/queuepair", engine + "/rdma", engine + "/sim", engine + "/trial", engine + "/trial/child", engine + "/xdp", "xdp", "xdp/dispatcher", "xdp/links", "xdp/tree", "shm", "plugin",
	"plugin/internal/child", "plugin/internal/logwire", "plugin/internal/queue", "shm/words", engine + "/words", "configs", "internal/tick",
}

type options struct {
	seed    uint64
	mutants int
	again   int
	limit   time.Duration // for the tests of one mutant
	budget  time.Duration // for all of -again
	list    string
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "draw mutants by this seed")
	flag.IntVar(&o.mutants, "mutants", 100, "draw so many new mutants")
	flag.IntVar(&o.again, "again", 0, "instead, repeat so many killed mutants of the list, drawn by the commit")
	flag.DurationVar(&o.limit, "limit", 2*time.Minute, "run the tests of a mutant no longer than this")
	flag.DurationVar(&o.budget, "budget", 150*time.Second, "with -again, begin no mutant after this time")
	flag.StringVar(&o.list, "list", "docs/testing.md", "the document that lists mutants")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	root, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return err
	}
	commit, err := output(ctx, "git", "-c", "safe.directory=*", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return fmt.Errorf("making a directory for mutants: %w", err)
	}
	defer os.RemoveAll(tmp)
	if o.again > 0 {
		return again(ctx, root, commit, tmp, o)
	}
	return draw(ctx, root, commit, tmp, o)
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
