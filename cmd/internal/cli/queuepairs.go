package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/probe"
)

// queuePairsCmd lists and changes the queue pairs of a running instance, and the words of shared memory reserved for the
// queue pairs of other programs.
type queuePairsCmd struct {
	List    queuePairsListCmd    `cmd:"" default:"withargs" help:"Show every queue pair: its state, its address, its source of counts and why no better one."`
	Connect queuePairsConnectCmd `cmd:"" help:"Tell a queue pair its other end."`
	Reserve queuePairsReserveCmd `cmd:"" help:"Reserve words: a counter of the queue pairs of another program, which writes its value."`
	Release queuePairsReleaseCmd `cmd:"" help:"Release reserved words: the counter is removed."`
	Post    queuePairsPostCmd    `cmd:"" help:"Post operations and wait for their completions: the proof that a queue pair counts."`
}

type queuePairsListCmd struct {
	outputFlag
	controlFlag
}

// Help is shown by queue-pairs list --help.
func (*queuePairsListCmd) Help() string {
	return `The line "address" is for the other end, on its own host or in its own program. State RTS is connected; ERR is in error: the condition below says why, and connect mends it.

Examples:

  flowtally queue-pairs

  flowtally qp list -o json --instance edge`
}

func (c *queuePairsListCmd) Run(env *Env) error {
	var pairs []dataplane.QueuePairState
	var conditions []dataplane.Condition
	var words []dataplane.ReservedWords
	err := c.with(env, func(ctx context.Context, svc dataplane.Service) (err error) {
		if pairs, err = svc.QueuePairs().List(ctx); err != nil {
			return fmt.Errorf("listing the queue pairs: %w", err)
		}
		if conditions, err = svc.Conditions(ctx); err != nil {
			return fmt.Errorf("reading the conditions: %w", err)
		}
		words, err = svc.ReservedWords(ctx)
		if err != nil && !errors.Is(err, probe.ErrNotSupported) { // an older plugin reserves none
			return fmt.Errorf("listing the reserved words: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return view.QueuePairs(env.Stdout, c.json(), pairs, words, view.OfQueuePairs(env.completed(conditions)), time.Now())
}

type queuePairsConnectCmd struct {
	controlFlag
	Name    string      `arg:"" complete:"queue-pairs" help:"The queue pair."`
	Address peerAddress `arg:"" optional:"" help:"The other end's address, as list shows it there. Left out: as the configuration says."`
}

// Help is shown by queue-pairs connect --help.
func (*queuePairsConnectCmd) Help() string {
	return `A queue pair that is connected, or in error, is connected anew: outstanding operations end in error first. The connection does not survive a restart of the plugin, when numbers change: put a lasting one into the configuration.

Examples:

  flowtally queue-pairs connect storage 'gid=fe80::5054:ff:fe12:3456,qpn=17,psn=4660,addr=0x7f2a40000000,rkey=0x1f2'

  flowtally qp connect near`
}

// peerAddress is the address of another queue pair on the command line.
type peerAddress struct{ dataplane.QueuePairAddress }

// UnmarshalText is called by the parser.
func (a *peerAddress) UnmarshalText(text []byte) (err error) {
	a.QueuePairAddress, err = dataplane.ParseQueuePairAddress(string(text))
	return err
}

func (c *queuePairsConnectCmd) Run(env *Env) error {
	return c.with(env, func(ctx context.Context, svc dataplane.Service) error {
		if err := svc.QueuePairs().Connect(ctx, c.Name, c.Address.QueuePairAddress); err != nil {
			return queuePairError(err, "connecting", c.Name)
		}
		return nil
	})
}

type queuePairsReserveCmd struct {
	outputFlag
	controlFlag
	Name string `arg:"" help:"Name of the counter."`
}

// Help is shown by queue-pairs reserve --help.
func (*queuePairsReserveCmd) Help() string {
	return `A program takes the words on the socket INSTANCE.words beside the mirror: shm/words.Take in Go. Its RDMA device, or the program itself, counts completions there. The words stay reserved until release or the end of the instance; name lasting ones under words in the configuration.

Examples:

  flowtally queue-pairs reserve app

  flowtally qp reserve app -o json`
}

func (c *queuePairsReserveCmd) Run(env *Env) error {
	var words dataplane.ReservedWords
	err := c.with(env, func(ctx context.Context, svc dataplane.Service) (err error) {
		words, err = svc.ReserveWords(ctx, c.Name)
		if errors.Is(err, dataplane.ErrExists) {
			err = withHint(err, "choose another name, or: flowtally queue-pairs release %s", c.Name)
		}
		return err
	})
	if err != nil {
		return err
	}
	return view.QueuePairs(env.Stdout, c.json(), nil, []dataplane.ReservedWords{words}, nil, time.Now())
}

type queuePairsReleaseCmd struct {
	controlFlag
	Name string `arg:"" help:"Name of the counter."`
}

// Help is shown by queue-pairs release --help.
func (*queuePairsReleaseCmd) Help() string {
	return `A program that has the words goes on without a counter.

Examples:

  flowtally queue-pairs release app`
}

func (c *queuePairsReleaseCmd) Run(env *Env) error {
	return c.with(env, func(ctx context.Context, svc dataplane.Service) error {
		err := svc.ReleaseWords(ctx, c.Name)
		if errors.Is(err, dataplane.ErrNotFound) {
			err = withHint(err, "flowtally queue-pairs list # shows the reserved words")
		}
		return err
	})
}

type queuePairsPostCmd struct {
	outputFlag
	socketFlag
	Count     int           `help:"How many." default:"1" placeholder:"N"`
	Timeout   time.Duration `help:"End with 1 if they have not completed by then, or at a signal, and print the completed ones; the others stay outstanding. 0: wait." default:"0" placeholder:"DURATION"`
	Name      string        `arg:"" complete:"queue-pairs" help:"The queue pair."`
	Operation string        `arg:"" enum:"send,rdma_write,rdma_read" help:"Operation to post: ${enum}. Messages have message_size bytes. The peer must receive sent ones."`
}

// Help is shown by queue-pairs post --help.
func (*queuePairsPostCmd) Help() string {
	return `Exits with 1 if operations completed in error, and if it gave up, at --timeout or a signal; then it prints the completions so far, and posts no more. The counters of the queue pair have the posted operations, and the peer's counters the received ones: flowtally get shows both.

Examples:

  flowtally queue-pairs post near send --count 100000

  flowtally qp post near send --count 100000 --timeout 10s

  flowtally qp post near rdma_write --count 100 -o json`
}

func (c *queuePairsPostCmd) Run(env *Env) error {
	if c.Count < 1 {
		return usagef("--count %d: at least 1", c.Count)
	}
	if c.Timeout < 0 {
		return usagef("--timeout %v: not negative", c.Timeout)
	}
	return c.talk(env, 0, func(ctx context.Context, svc dataplane.Service) error { return c.post(ctx, env, svc) })
}

// post posts the operations and prints their completions. Unlike for other commands, --timeout covers the posting alone,
// without the time to reach the instance: a post that runs out of time still has completions to print.
func (c *queuePairsPostCmd) post(ctx context.Context, env *Env, svc dataplane.Service) error {
	if c.Timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		ctx = limited
	}
	posted, err := svc.QueuePairs().Post(ctx, c.Name, dataplane.Operation(c.Operation), c.Count)

	// If we give up, the instance returns the completions so far, unless it has become unreachable.
	gaveUp := ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, dataplane.ErrUnavailable)
	if err == nil || gaveUp || posted != (dataplane.Posted{}) {
		if perr := view.Posted(env.Stdout, c.json(), c.Name, c.Operation, posted); perr != nil {
			return errors.Join(perr, err)
		}
	}

	switch {
	case gaveUp:
		when := fmt.Sprintf("within %v", c.Timeout)
		if env.Context.Err() != nil {
			when = "when it was interrupted"
		}
		return withHint(fmt.Errorf("posting to queue pair %q: %s of %s had completed %s",
			c.Name, format.Count(posted.Completed+posted.Errors), format.Plural(uint64(c.Count), "operation", "operations"), when),
			"flowtally queue-pairs list # shows the outstanding operations; a send waits until the other end has receives posted")
	case err != nil:
		return queuePairError(err, "posting to", c.Name)
	case posted.Errors > 0:
		return withHint(fmt.Errorf("posting to queue pair %q: %s of %d completed in error", c.Name, format.Plural(posted.Errors, "operation", "operations"), c.Count),
			"flowtally queue-pairs list # says why; then: flowtally queue-pairs connect %s [ADDRESS]", c.Name)
	}
	return nil
}

// queuePairError adds the name of the queue pair and a next step to an instance's error.
func queuePairError(err error, doing string, name string) error {
	err = fmt.Errorf("%s queue pair %q: %w", doing, name, err)
	switch {
	case errors.Is(err, dataplane.ErrNotFound):
		return withHint(err, "flowtally queue-pairs list")
	case errors.Is(err, dataplane.ErrNotConnected):
		return withHint(err, "flowtally queue-pairs list # says why; then: flowtally queue-pairs connect %s [ADDRESS]", name)
	}
	return err
}
