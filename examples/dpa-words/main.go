// Command dpa-words is the host side of a program on the DPA, the processor of a BlueField-3 or ConnectX-7, that counts
// into words reserved by a running instance. Readers of the mirror see its counts like any counter.
//
// The host takes the words, and registers their memory in the protection domain of the DPA's process. The DPA writes to
// them through the key of this region. What runs only on a DPU is the DPA program, and the calls of the Flex IO SDK that
// start it: this program checks the attributes of these calls, and has the numbers of no SDK.
//
//	flowtally queue-pairs reserve app
//	go run ./examples/dpa-words -mirror /run/flowtally/default.mirror -words app -device mlx5_0
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/words"
)

type options struct {
	mirror, words, device string
	lib                   ibv.Options
}

func main() {
	log.SetFlags(0)

	var o options
	flag.StringVar(&o.mirror, "mirror", shm.DefaultPath("default"), "path of the mirror")
	flag.StringVar(&o.words, "words", "app", "name of the reserved words")
	flag.StringVar(&o.device, "device", "mlx5_0", "as rdma dev lists it")
	flag.StringVar(&o.lib.Library, "library", "", "path of libibverbs")
	flag.StringVar(&o.lib.MLX5, "mlx5", "", "path of libmlx5")
	flag.Parse()

	if err := run(os.Stdout, os.Stdin, o); err != nil {
		log.Fatal(err)
	}
}

// run opens the words to the DPA until a line arrives on standard input.
func run(out io.Writer, in io.Reader, o options) (err error) {
	h, err := open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()

	j := h.job()
	fmt.Fprintf(out, "%s: 16 bytes at %#x, key %#x\n", o.words, j.addr, j.lkey)
	for _, c := range calls(noSDK) {
		if c.structure == "" {
			fmt.Fprintf(out, "%s\n", c.name)
			continue
		}
		if err := flexio.Validate(c.structure, c.attr, c.uses...); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Fprintf(out, "%s: %s is valid\n", c.name, c.structure)
	}
	fmt.Fprintln(out, "not called: no Flex IO SDK here")

	if _, err := in.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// host has the words and a memory region over them.
type host struct {
	lib   *ibv.Library
	dev   *ibv.Context
	pd    *ibv.PD
	words *words.Words
	mr    *ibv.MR
}

func open(o options) (h *host, err error) {
	h = new(host)
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if h.lib, err = ibv.Load(o.lib); err != nil {
		return h, err
	}
	if h.dev, err = h.lib.Open(o.device); err != nil {
		return h, err
	}
	if h.pd, err = h.dev.AllocPD(); err != nil {
		return h, err
	}
	if h.words, err = words.Take(o.mirror, o.words, words.Options{}); err != nil {
		return h, err
	}

	// A window of the DPA needs local write access. A queue pair of the DPA, which writes by RDMA, needs remote write
	// access too.
	comp, _ := h.words.Memory()
	h.mr, err = h.pd.RegMR(comp[:16], ibv.AccessLocalWrite|ibv.AccessRemoteWrite)
	return h, err
}

// Close gives the words back. Stop the DPA's process before: once the region is gone, the device refuses its writes.
// The region closes ahead of the words, because the next program must get words that nobody writes. If the region stays,
// the words and all that the region needs stay too, until this process ends and the kernel takes them back.
func (h *host) Close() error {
	if h.mr != nil {
		if err := h.mr.Close(); err != nil {
			return err
		}
	}
	var errs []error
	if h.words != nil {
		errs = append(errs, h.words.Close())
	}
	if h.pd != nil {
		errs = append(errs, h.pd.Close())
	}
	if h.dev != nil {
		errs = append(errs, h.dev.Close())
	}
	if h.lib != nil {
		errs = append(errs, h.lib.Close())
	}
	return errors.Join(errs...)
}

// job returns what the DPA program must know.
func (h *host) job() job {
	return job{addr: h.mr.Addr(), lkey: h.mr.LKey(), rkey: h.mr.RKey()}
}
