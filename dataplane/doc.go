// Package dataplane has the types of an instance, which counts flows. A program describes the instance by a [Config],
// starts it by plugin.Launch in a process of its own or by engine.New in this process, and calls it through a [Service]:
//
//	svc, err := plugin.Launch(ctx, plugin.Options{Config: dataplane.Config{
//		Interfaces: []dataplane.Interface{{Name: "eth0"}},
//		Flows:      []flow.Flow{flow.MustParse("web", "tcp dport 443")},
//	}})
//
// Package flow makes the flows. [Service.AddFlows], [Service.RemoveFlows] and [Service.SetFlows] change them while the
// instance counts. [Service.Conditions] and [Service.Events] say what needs attention, and what has changed.
//
// No counter value passes through a Service: programs read values from the mirror (package shm) at [Info].Mirror.
//
// A program that imports this package and plugin pulls in neither cgo nor eBPF. Errors satisfy errors.Is with the
// sentinels below, also behind the plugin.
package dataplane
