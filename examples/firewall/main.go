// Command firewall shows flowtally in a firewall. It drops packets by rules, counts others, and bans a flow that exceeds its
// limit. Once the banning call returns, no packet of the flow passes, and all are still counted.
//
//	make build
//	PATH=$PWD/bin:$PATH go run ./examples/firewall -interface eth0 -limit 10000 \
//		-drop 'scanner=ipv4 src 203.0.113.7' -watch 'guests=ipv4 src 198.51.100.0/24'
//
// Run it as root. It looks for the plugin in its own directory, then in PATH.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	name := flag.String("interface", "eth0", "where packets arrive")
	limit := flag.Uint64("limit", 10_000, "packets after which a watched flow is banned")
	var rules []flow.Flow
	rule := func(action flow.Action) func(string) error {
		return func(s string) error {
			name, match, _ := strings.Cut(s, "=")
			f, err := flow.Parse(name, match, flow.Options{Action: action})
			rules = append(rules, f)
			return err
		}
	}
	flag.Func("drop", "drop and count these packets: NAME=MATCH; may be repeated", rule(flow.Drop))
	flag.Func("watch", "count these packets, and ban them at the limit: NAME=MATCH; may be repeated", rule(flow.Count))
	flag.Parse()

	svc, err := plugin.Launch(ctx, plugin.Options{ // starts the privileged process
		Config: dataplane.Config{
			Instance:   "firewall",
			Interfaces: []dataplane.Interface{{Name: *name}},
			Flows:      rules,
		},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	err = run(ctx, os.Stdout, svc, rules, *limit)
	if err = errors.Join(err, svc.Close()); err != nil {
		log.Fatal(err)
	}
}

// due is a watched rule that has reached its limit.
type due struct {
	rule int
	err  error
}

// run sets the rules as the flows of an instance and bans each watched flow after limit packets, until ctx ends.
func run(ctx context.Context, out io.Writer, svc dataplane.Service, rules []flow.Flow, limit uint64) error {
	if _, err := svc.SetFlows(ctx, rules, dataplane.SetOptions{}); err != nil {
		return err
	}
	info, err := svc.Info(ctx)
	if err != nil {
		return err
	}
	mirror, err := shm.OpenPath(info.Mirror)
	if err != nil {
		return err
	}
	defer mirror.Close()

	// One goroutine waits per watched rule. When run returns, end wakes those still waiting.
	var waiting sync.WaitGroup
	defer waiting.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	ready := make(chan due, len(rules))
	for i, r := range rules {
		if r.Action == flow.Drop {
			continue
		}
		counter, err := mirror.Counter(r.Name)
		if err != nil {
			return err
		}
		waiting.Go(func() {
			_, err := counter.Wait(ctx, limit) // sleeps until the counting process wakes it
			ready <- due{i, err}
		})
	}

	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-ready:
			if d.err != nil && ctx.Err() == nil {
				return d.err
			}
			rules[d.rule].Action = flow.Drop
			change, err := svc.SetFlows(ctx, rules, dataplane.SetOptions{}) // changes all rules or, on error, none
			if err != nil && ctx.Err() == nil {
				return err
			}
			fmt.Fprint(out, change)
		}
	}
}
