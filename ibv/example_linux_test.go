package ibv_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// open returns the device mlx5_0.
func open() (lib *ibv.Library, dev *ibv.Context) {
	lib, err := ibv.Load(ibv.Options{})
	if errors.Is(err, probe.ErrNotSupported) {
		log.Fatal("this host has no libibverbs: ", err)
	}
	if err != nil {
		log.Fatal(err)
	}
	if dev, err = lib.Open("mlx5_0"); err != nil {
		log.Fatal(err)
	}
	return lib, dev
}

// The devices of this host.
func ExampleLoad() {
	lib, err := ibv.Load(ibv.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer lib.Close()
	devices, err := lib.Devices()
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range devices {
		fmt.Println(d.Name, d.Transport)
		for _, r := range ibv.Probe(lib, d.Name) {
			fmt.Println(" ", r.Feature, r.Answer, r.Reason)
		}
	}
}

// A flow counts packets and bytes for 192.0.2.10 and lets them go on to the kernel.
func ExampleQP_CreateFlow() {
	lib, dev := open()
	defer lib.Close()
	defer dev.Close()
	counters, err := dev.CreateCounters()
	if err != nil {
		log.Fatal(err)
	}
	defer counters.Close()
	err = errors.Join(
		counters.Attach(ibv.CounterAttach{Counter: ibv.CounterPackets, Index: 0}),
		counters.Attach(ibv.CounterAttach{Counter: ibv.CounterBytes, Index: 1}))
	if err != nil {
		log.Fatal(err)
	}
	qp := rawQP(dev)
	defer qp.Close()
	flow, err := qp.CreateFlow(ibv.FlowAttr{
		Type: ibv.FlowAttrNormal, Flags: ibv.FlowDontTrap, Port: 1,
		Specs: []ibv.Spec{
			ibv.EthSpec{},
			ibv.IPv4Spec{Val: ibv.IPv4Filter{DstIP: [4]byte{192, 0, 2, 10}}, Mask: ibv.IPv4Filter{DstIP: [4]byte{255, 255, 255, 255}}},
			ibv.CountSpec{Counters: counters},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer flow.Close()
	var values [2]uint64
	if err := counters.Read(values[:], 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(values[0], "packets,", values[1], "bytes")
}

// rawQP returns a queue pair for Ethernet frames.
func rawQP(dev *ibv.Context) *ibv.QP {
	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	cq, err := dev.CreateCQ(ibv.CQOptions{})
	if err != nil {
		log.Fatal(err)
	}
	qp, err := pd.CreateQP(ibv.QPOptions{Type: ibv.QPTRawPacket, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		log.Fatal(err)
	}
	return qp
}

// A completion counter counts the sends of a queue pair without a look at its completion queue.
func ExampleContext_CreateCompCntr() {
	lib, dev := open()
	defer lib.Close()
	defer dev.Close()
	sent, err := dev.CreateCompCntr(ibv.CompCntrOptions{})
	if errors.Is(err, probe.ErrNotSupported) {
		log.Fatal("count with CQ.Poll: ", err)
	}
	if err != nil {
		log.Fatal(err)
	}
	defer sent.Close()
	qp := rawQP(dev)
	defer qp.Close()
	if err := qp.AttachCompCntr(sent, ibv.QPAttachCompCntrOpSend); err != nil {
		log.Fatal(err)
	}
	n, err := sent.Read()
	fmt.Println(n, err)
}

// The completions of a queue, up to 16 at a time.
func ExampleCQ_Poll() {
	lib, dev := open()
	defer lib.Close()
	defer dev.Close()
	cq, err := dev.CreateCQ(ibv.CQOptions{CQE: 256})
	if err != nil {
		log.Fatal(err)
	}
	defer cq.Close()
	var done [16]ibv.WC
	n, err := cq.Poll(done[:])
	if err != nil {
		log.Fatal(err)
	}
	for _, wc := range done[:n] {
		fmt.Println(wc.QPNum, wc.Status, wc.Opcode)
	}
}

// Events of a device, for example its end.
func ExampleContext_NextEvent() {
	lib, dev := open()
	defer lib.Close()
	defer dev.Close()
	for {
		e, err := dev.NextEvent(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Type)
	}
}
