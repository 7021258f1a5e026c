// Command own-queue-pair counts the completions of its own queue pairs into words that a running instance has reserved.
// Every reader of the mirror sees them, and flowtally has no part in the queue pairs. On EFA (rdma-core 65) the device
// writes the words; on mlx5 this program counts the ring of its completion queue.
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
	"time"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/words"
)

type options struct {
	mirror, words, device string
	gidIndex              int
	count                 int
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
	flag.BoolVar(&o.hold, "hold", false, "wait for a line on standard input before the end")
	flag.StringVar(&o.lib.Library, "library", "", "path of libibverbs")
	flag.StringVar(&o.lib.MLX5, "mlx5", "", "path of libmlx5")
	flag.StringVar(&o.lib.EFA, "efa", "", "path of libefa")
	flag.Parse()
	if err := run(os.Stdout, os.Stdin, o); err != nil {
		log.Fatal(err)
	}
}

// pairs are two queue pairs of a device that write to each other, and whose completions one counter counts.
type pairs struct {
	dev   *ibv.Context
	cq    *ibv.CQ
	mr    *ibv.MR
	qps   [2]*ibv.QP
	count func(polled int) error
	// left are operations that were posted and have not completed.
	left int
}

func run(out io.Writer, in io.Reader, o options) (err error) {
	lib, err := ibv.Load(o.lib)
	if err != nil {
		return err
	}
	// The device writes the words until its objects are destroyed: they go before the words, and the words last.
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
	p := &pairs{dev: dev}
	how, err := p.make(w, o, closing)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "counting by %s into %s\n", how, o.words)
	if err := p.write(o.count); err != nil {
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

// make makes the queue pairs, and their counter in the words. It returns how they are counted.
func (p *pairs) make(w *words.Words, o options, closing func(io.Closer)) (how string, err error) {
	pd, err := p.dev.AllocPD()
	if err != nil {
		return "", err
	}
	closing(pd)
	const access = ibv.AccessLocalWrite | ibv.AccessRemoteWrite
	if p.mr, err = pd.AllocMR(4096, access); err != nil {
		return "", err
	}
	closing(p.mr)
	if p.cq, err = p.dev.CreateCQ(ibv.CQOptions{CQE: 256}); err != nil {
		return "", err
	}
	closing(p.cq)
	comp, errs := w.Memory()
	k, err := p.dev.CreateCompCntr(ibv.CompCntrOptions{External: &ibv.CompCntrMemory{Comp: comp, Err: errs}})
	switch {
	case err == nil:
		closing(k)
		how, p.count = "comp_cntr", func(int) error { return nil }
	case !errors.Is(err, probe.ErrNotSupported):
		return "", err
	default:
		if p.count, err = p.countRing(w); err != nil {
			return "", err
		}
		how = "cq_ring"
	}
	for i := range p.qps {
		if p.qps[i], err = pd.CreateQP(ibv.QPOptions{
			Type: ibv.QPTRC, SendCQ: p.cq, RecvCQ: p.cq, Cap: ibv.QPCap{MaxSendWR: depth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		}); err != nil {
			return "", err
		}
		closing(p.qps[i])
		if k != nil { // one counter for both queue pairs
			if err := p.qps[i].AttachCompCntr(k, ibv.QPAttachCompCntrOpRDMAWrite); err != nil {
				return "", err
			}
		}
	}
	return how, errors.Join(p.connect(0, 1, o.gidIndex), p.connect(1, 0, o.gidIndex))
}

// countRing counts the entries of the completion queue where the device writes them.
func (p *pairs) countRing(w *words.Words) (func(polled int) error, error) {
	m, err := p.cq.MLX5Ring()
	if err != nil {
		return nil, err
	}
	ring, err := flexio.NewRing(m.Buf, flexio.RingOptions{EntrySize: m.CQESize})
	if err != nil {
		return nil, err
	}
	counter := flexio.NewRingCounter(ring, w.Add, nil)
	return func(polled int) error {
		_, err := counter.Count(polled)
		return err
	}, nil
}

// depth is the number of operations that a queue pair has outstanding.
const depth = 64

// connect brings queue pair i to RTS, connected to the other one of this device.
func (p *pairs) connect(i, to, gidIndex int) error {
	gid, err := p.dev.QueryGID(1, gidIndex)
	if err != nil {
		return err
	}
	port, err := p.dev.QueryPort(1)
	if err != nil {
		return err
	}
	const psn = 1
	for _, step := range []struct {
		attr ibv.QPAttr
		mask ibv.QPAttrMask
	}{
		{ibv.QPAttr{State: ibv.QPSInit, PortNum: 1, AccessFlags: ibv.AccessRemoteWrite}, ibv.QPAttrPort | ibv.QPAttrPKeyIndex | ibv.QPAttrAccessFlags},
		{ibv.QPAttr{
			State: ibv.QPSRTR, PathMTU: port.ActiveMTU, DestQPNum: p.qps[to].Number(), RQPSN: psn, MaxDestRdAtomic: 1, MinRNRTimer: 12,
			AH: ibv.AHAttr{IsGlobal: true, PortNum: 1, GRH: ibv.GlobalRoute{DGID: gid, SGIDIndex: uint8(gidIndex), HopLimit: 64}},
		}, ibv.QPAttrAV | ibv.QPAttrPathMTU | ibv.QPAttrDestQPN | ibv.QPAttrRQPSN | ibv.QPAttrMaxDestRdAtomic | ibv.QPAttrMinRNRTimer},
		{ibv.QPAttr{State: ibv.QPSRTS, SQPSN: psn, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
			ibv.QPAttrSQPSN | ibv.QPAttrTimeout | ibv.QPAttrRetryCnt | ibv.QPAttrRNRRetry | ibv.QPAttrMaxQPRdAtomic},
	} {
		if err := p.qps[i].Modify(step.attr, step.mask|ibv.QPAttrState); err != nil {
			return err
		}
	}
	return nil
}

// write posts count writes of each queue pair, and waits until all have completed.
func (p *pairs) write(count int) error {
	request := ibv.SendWR{
		Opcode: ibv.WRRDMAWrite, Flags: ibv.SendSignaled, SGE: ibv.SGE{Addr: p.mr.Addr(), Length: 64, LKey: p.mr.LKey()},
		RemoteAddr: p.mr.Addr() + 1024, RKey: p.mr.RKey(),
	}
	var done [depth]ibv.WC
	for posted := 0; posted < count || count == 0 || p.left > 0; {
		if p.left == 0 {
			for _, q := range p.qps {
				if _, err := q.PostSend([]ibv.SendWR{request}); err != nil {
					return err
				}
				p.left++
			}
			posted++
		}
		if err := p.count(0); err != nil {
			return err
		}
		n, err := p.cq.Poll(done[:])
		if err != nil {
			return err
		}
		for _, wc := range done[:n] {
			if wc.Status != ibv.WCSuccess {
				return fmt.Errorf("queue pair %d: %v", wc.QPNum, wc.Status)
			}
		}
		p.left -= n
		if err := p.count(n); err != nil {
			return err
		}
		if n == 0 {
			time.Sleep(time.Microsecond)
		}
	}
	return nil
}
