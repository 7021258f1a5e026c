// Command load-balancer shows flowtally in a load balancer. It counts a flow per server, reads the counters to choose a
// server for each new connection, and sleeps until a server has had its share.
//
//	make build
//	PATH=$PWD/bin:$PATH go run ./examples/load-balancer -interface eth0 -share 100000 192.0.2.1 192.0.2.2
//
// Run it as root. It looks for the plugin in its own directory, then in PATH.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	name := flag.String("interface", "eth0", "where the servers are reached")
	share := flag.Uint64("share", 100_000, "packets that each server is to have had")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("no server: name the address of one or more, as in load-balancer -interface eth0 192.0.2.1")
	}
	var servers []netip.Addr
	for _, arg := range flag.Args() {
		a, err := netip.ParseAddr(arg)
		if err != nil {
			log.Fatal(err)
		}
		servers = append(servers, a)
	}

	// The plugin needs privileges to count. This process needs them only to start it.
	opts := plugin.Options{
		Config: dataplane.Config{Instance: "balancer", Interfaces: []dataplane.Interface{{Name: *name}}},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if err := run(ctx, os.Stdout, opts, servers, *share); err != nil {
		log.Fatal(err)
	}
}

// run balances until each server has had its share.
func run(ctx context.Context, out io.Writer, opts plugin.Options, servers []netip.Addr, share uint64) error {
	svc, err := plugin.Launch(ctx, opts)
	if err != nil {
		return err
	}
	defer svc.Close()

	b, err := newBalancer(ctx, svc, servers)
	if err != nil {
		return err
	}
	defer b.close()

	placed, err := svc.Placements(ctx)
	if err != nil {
		return err
	}
	for _, p := range placed {
		fmt.Fprintf(out, "%s: counted by %s\n", p.Flow.Name, p.Source.Backend)
	}

	// This is what a load balancer does for each new connection.
	if _, err := b.pick(); err != nil {
		return err
	}

	for i := range b.servers {
		s := &b.servers[i]
		if _, err := b.wait(ctx, s, share); err != nil {
			return fmt.Errorf("waiting for %s: %w", s.name, err)
		}
		fmt.Fprintf(out, "%s: has had its %d packets\n", s.name, share)
	}
	s, err := b.pick()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "next: %s\n", s.name)
	return nil
}
