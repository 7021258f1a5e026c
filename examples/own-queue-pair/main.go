// Command own-queue-pair counts the completions of its own queue pairs in words reserved by a running instance. Readers of
// the mirror see them like any counter, although flowtally does not touch the queue pairs. On EFA (rdma-core 65) the
// device writes the words. On mlx5 this program counts the entries of its completion queue, compressed or not; or with
// -collapsed the single entry of one that the device overwrites.
//
//	flowtally queue-pairs reserve app
//	go run ./examples/own-queue-pair -mirror /run/flowtally/default.mirror -words app -device rdmap0s6 -count 1000
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/words"
)

type options struct {
	mirror, words, device string
	gidIndex              int
	count                 int
	compress, collapsed   bool
	hold                  bool
	lib                   ibv.Options
}

func main() {
	log.SetFlags(0)

	var o options
	flag.StringVar(&o.mirror, "mirror", shm.DefaultPath("default"), "path of the mirror")
	flag.StringVar(&o.words, "words", "app", "name of the reserved words")
	flag.StringVar(&o.device, "device", "rdmap0s6", "as rdma dev lists it")
	flag.IntVar(&o.gidIndex, "gid-index", 0, "row of the GID table that is the queue pairs' own address")
	flag.IntVar(&o.count, "count", 1000, "writes of each of the two queue pairs; 0: without end")
	flag.BoolVar(&o.compress, "compress", false, "have an mlx5 device compress the entries of the completion queue")
	flag.BoolVar(&o.collapsed, "collapsed", false, "have an mlx5 device write all completions to one entry (needs DevX)")
	flag.BoolVar(&o.hold, "hold", false, "wait for a line on standard input before the end")
	flag.StringVar(&o.lib.Library, "library", "", "path of libibverbs")
	flag.StringVar(&o.lib.MLX5, "mlx5", "", "path of libmlx5")
	flag.StringVar(&o.lib.EFA, "efa", "", "path of libefa")
	flag.Parse()

	if err := run(os.Stdout, os.Stdin, o); err != nil {
		log.Fatal(err)
	}
}

// run takes the words, creates two queue pairs, and lets them write to each other.
func run(out io.Writer, in io.Reader, o options) (err error) {
	lib, err := ibv.Load(o.lib)
	if err != nil {
		return err
	}

	// The order of closing matters. The device writes the words until its queue pairs and its completion counter are
	// destroyed, so these close first. Then close the words, and the device and the library last.
	var closers []io.Closer
	closing := func(c io.Closer) { closers = append(closers, c) }
	defer func() {
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i].Close())
		}
	}()
	closing(lib)

	dev, err := lib.Open(o.device)
	if err != nil {
		return err
	}
	closing(dev)
	caps, err := dev.QueryCompCntrCaps()
	if err != nil && !errors.Is(err, probe.ErrNotSupported) {
		return err
	}
	w, err := words.Take(o.mirror, o.words, words.Options{Limit: caps.MaxValue})
	if err != nil {
		return err
	}
	closing(w)

	write, how, err := makePairs(dev, w, o, closing)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "counting by %s into %s\n", how, o.words)

	if err := write(o.count); err != nil {
		return err
	}
	completed, failed := w.Load()
	fmt.Fprintf(out, "%d completions, %d errors\n", completed, failed)

	if o.hold {
		if _, err := in.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// makePairs makes two connected queue pairs and their counter in the words. It returns the function that has them write, and
// how they are counted.
func makePairs(dev *ibv.Context, w counted, o options, closing func(io.Closer)) (write func(count int) error, how string, err error) {
	if o.collapsed {
		c, err := newCollapsed(dev, w, o, closing)
		if err != nil {
			return nil, "", err
		}
		return c.write, "collapsed_cq", nil
	}
	p := &pairs{dev: dev, closing: closing}
	if how, err = p.make(w, o); err != nil {
		return nil, "", err
	}
	return p.write, how, nil
}
