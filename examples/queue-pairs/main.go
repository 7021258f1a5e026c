// Command queue-pairs shows the engine inside a program. It creates two queue pairs of an RDMA device, connects them to each
// other, posts operations, and reads the counters of their completions.
//
//	go run ./examples/queue-pairs -device rxe0 -count 1000
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/shm"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	device := flag.String("device", "rxe0", "as rdma dev lists it")
	count := flag.Int("count", 1000, "operations of each kind")
	flag.Parse()

	if err := run(ctx, os.Stdout, config(*device), *count); err != nil {
		log.Fatal(err)
	}
}

// config has two queue pairs connected to each other. One posts, and counts its sends and writes. The other counts the
// messages it receives.
func config(device string) dataplane.Config {
	return dataplane.Config{
		Instance: "pairs",
		QueuePairs: []dataplane.QueuePair{
			{Name: "near", Device: device, Connect: "far", Counters: []dataplane.CompletionCounter{
				{Name: "sent", Operations: []dataplane.Operation{dataplane.Send}},
				{Name: "written", Operations: []dataplane.Operation{dataplane.RDMAWrite}},
			}},
			{Name: "far", Device: device, Counters: []dataplane.CompletionCounter{
				{Name: "received", Operations: []dataplane.Operation{dataplane.Recv}},
			}},
		},
	}
}

// run posts count operations of each kind and waits until the counters show them.
func run(ctx context.Context, out io.Writer, cfg dataplane.Config, count int) (err error) {
	svc, err := engine.New(ctx, cfg, engine.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := svc.Close(); err == nil {
			err = cerr
		}
	}()

	pairs, err := svc.QueuePairs().List(ctx)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		fmt.Fprintf(out, "%s: %s on %s, counted by %s\n", p.Name, p.State, p.Device, p.Source.Modes())
	}
	for _, op := range []dataplane.Operation{dataplane.Send, dataplane.RDMAWrite} {
		if _, err := svc.QueuePairs().Post(ctx, "near", op, count); err != nil {
			return err
		}
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
	for _, name := range []string{"sent", "written", "received"} {
		c, err := mirror.Counter(name)
		if err != nil {
			return err
		}
		// The value appears with the next poll cycle. If an operation fails, Wait returns shm.ErrCompletion.
		v, err := c.Wait(ctx, uint64(count))
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", name, err)
		}
		fmt.Fprintf(out, "%s: %d completions, %d errors\n", name, v.Completions(), v.Errors())
	}
	return nil
}
