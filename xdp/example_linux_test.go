package xdp_test

import (
	"fmt"
	"log"

	"github.com/flowtally/flowtally/xdp"
)

// Count TCP packets to port 443 on eth0, in both directions. Run this as root. If the process dies, counting goes on, and the next
// Open continues with the value.
func ExampleOpen() {
	dp, err := xdp.Open(xdp.Options{PinDir: "/sys/fs/bpf/flowtally/example"})
	if err != nil {
		log.Fatal(err)
	}
	defer dp.Destroy() // Close instead would leave the programs counting

	counter, err := dp.AllocCounter("https")
	if err != nil {
		log.Fatal(err)
	}

	rule := xdp.Rule{Counter: counter.ID}
	rule.Key.Out.Proto, rule.Mask.Out.Proto = 6, 0xff
	rule.Key.Out.L4, rule.Mask.Out.L4 = [4]byte{2: 1, 3: 0xbb}, [4]byte{2: 0xff, 3: 0xff}
	rule.Key.Out.Flags, rule.Mask.Out.Flags = xdp.FlagL4, xdp.FlagL4
	if err := dp.Add(rule); err != nil {
		log.Fatal(err)
	}

	held, err := dp.Attach("eth0", xdp.AttachOptions{Ingress: true, Egress: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range held {
		fmt.Println(a.Interface, a.Hook, a.Mode)
	}

	var value [1]xdp.Pair
	if err := dp.Read([]uint32{counter.ID}, value[:]); err != nil {
		log.Fatal(err)
	}
	fmt.Println(value[0].Packets, value[0].Bytes)
}

// Turn a counting rule into a dropping one. Each packet meets either the old rule or the new one, and is counted once.
func ExampleDatapath_Exchange() {
	dp, err := xdp.Open(xdp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dp.Close()
	counter, err := dp.AllocCounter("all")
	if err != nil {
		log.Fatal(err)
	}

	count := xdp.Rule{Counter: counter.ID}
	drop := xdp.Rule{Counter: counter.ID, Drop: true}
	if err := dp.Add(count); err != nil {
		log.Fatal(err)
	}
	if err := dp.Exchange([]xdp.Rule{count}, []xdp.Rule{drop}); err != nil {
		log.Fatal(err)
	}
}

// Print what an interface supports, and what to do about the rest.
func ExampleProbe() {
	for _, r := range xdp.Probe("eth0") {
		fmt.Println(r.Feature, r.Answer, r.Reason, r.Fix)
	}
}
