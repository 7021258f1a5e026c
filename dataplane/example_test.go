package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/plugintest"
)

// start returns a running instance: a fake one here. A program calls plugin.Launch or engine.New.
func start(cfg dataplane.Config) dataplane.Service {
	svc, err := plugintest.NewFake(context.Background(), cfg, nil)
	if err != nil {
		log.Fatal(err)
	}
	return svc
}

// Flows are added and removed while the instance counts.
func ExampleService() {
	ctx := context.Background()
	svc := start(dataplane.Config{Backend: flow.Sim})
	defer svc.Close()
	placements, err := svc.AddFlows(ctx, flow.MustParse("web", "tcp dport 443"), flow.MustParse("dns", "udp dport 53"))
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range placements {
		fmt.Println(p.Flow.Name, "is counted by", p.Source)
	}
	_, err = svc.AddFlows(ctx, flow.MustParse("web", "tcp dport 80"))
	fmt.Println("the name exists:", errors.Is(err, dataplane.ErrExists))
	if err := svc.RemoveFlows(ctx, "web"); err != nil {
		log.Fatal(err)
	}
	placements, err = svc.Placements(ctx)
	fmt.Println(len(placements), "flow is left", err)
	// Output:
	// web is counted by sim
	// dns is counted by sim
	// the name exists: true
	// 1 flow is left <nil>
}

// SetFlows makes the set of flows the given flows. A dry run shows the difference first.
func ExampleService_SetFlows() {
	ctx := context.Background()
	svc := start(dataplane.Config{Backend: flow.Sim})
	defer svc.Close()
	web, dns := flow.MustParse("web", "tcp dport 443"), flow.MustParse("dns", "udp dport 53")
	if _, err := svc.AddFlows(ctx, web, dns); err != nil {
		log.Fatal(err)
	}
	front := web
	front.Name = "front"
	dns.Action = flow.Drop
	flows := []flow.Flow{front, dns, flow.MustParse("ssh", "tcp dport 22")}
	opts := dataplane.SetOptions{Renames: map[string]string{"web": "front"}} // front keeps the total of web
	dry := opts
	dry.DryRun = true
	d, err := svc.SetFlows(ctx, flows, dry)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(d)
	if _, err := svc.SetFlows(ctx, flows, opts); err != nil {
		log.Fatal(err)
	}
	d, err = svc.SetFlows(ctx, flows, opts)
	fmt.Println("nothing is left to change:", d.Empty(), err)
	// Output:
	// ~ dns: count -> drop
	// ~ front: was web
	// + ssh
	// nothing is left to change: true <nil>
}

// An event reports each change.
func ExampleService_Events() {
	ctx := context.Background()
	svc := start(dataplane.Config{Backend: flow.Sim})
	events, err := svc.Events(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := svc.AddFlows(ctx, flow.MustParse("web", "tcp dport 443")); err != nil {
		log.Fatal(err)
	}
	fmt.Println((<-events).Kind)
	svc.Close() // closes the channel
	for e := range events {
		fmt.Println(e.Kind, e.Object)
	}
	// Output: flow-added
}

// An operator reads the text and the fix of a condition, and a program its code.
func ExampleService_Conditions() {
	svc := start(dataplane.Config{Backend: flow.Sim})
	defer svc.Close()
	conditions, err := svc.Conditions(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range conditions {
		if c.Code == dataplane.CodeInterfaceMissing {
			fmt.Println(c.Object, c.Text, c.Fix)
		}
	}
	// Output:
}

// Every mistake of a configuration is reported, with the next step.
func ExampleConfig_Validate() {
	fmt.Println(dataplane.Config{
		Instance:   "Edge",
		Interfaces: []dataplane.Interface{{Name: "eth0", Mode: "fast"}},
		Flows:      []flow.Flow{{Name: "web", Backend: "rmda"}},
	}.Validate())
	// Output:
	// instance "Edge": use 1 to 32 characters of a-z, 0-9 and -
	// interface "eth0": mode "fast": use auto, native, generic or tcx
	// flow "web": backend: "rmda" is no backend; did you mean "rdma"?
}

// A source has a device for each interface or NIC that counts.
func ExampleSource() {
	s := dataplane.Source{Backend: flow.XDP, Devices: []dataplane.Device{
		{Backend: flow.XDP, Name: "eth0", Mode: dataplane.ModeNative},
		{Backend: flow.XDP, Name: "eth1", Mode: dataplane.ModeGeneric},
	}}
	fmt.Println(s)
	for _, d := range s.Devices {
		fmt.Println(d.Name, d.Mode)
	}
	fmt.Println(dataplane.Source{})
	// Output:
	// xdp:eth0,eth1/native,generic
	// eth0 native
	// eth1 generic
	// none
}

// The address of one end of a connection is one word, for a command line or another host.
func ExampleParseQueuePairAddress() {
	a, err := dataplane.ParseQueuePairAddress("gid=fe80::1,qpn=0x11,psn=4660")
	fmt.Println(a.QPN, a, err)
	_, err = dataplane.ParseQueuePairAddress("gid=fe80::1")
	fmt.Println(errors.Is(err, dataplane.ErrInvalid))
	// Output:
	// 17 gid=fe80::1,qpn=17,psn=4660 <nil>
	// true
}
