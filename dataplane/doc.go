// Package dataplane describes an instance: what it counts ([Config]) and how to talk to it while it runs ([Service]).
//
// To start an instance in a process of its own, call plugin.Launch. To run it inside this process, call engine.New. Both
// return a Service:
//
//	svc, err := plugin.Launch(ctx, plugin.Options{Config: dataplane.Config{
//		Interfaces: []dataplane.Interface{{Name: "eth0"}},
//		Flows:      []flow.Flow{flow.MustParse("web", "tcp dport 443")},
//	}})
//
// Flows are made by package flow, and change by [Service.AddFlows], [Service.RemoveFlows] and [Service.SetFlows] while the
// instance counts. [Service.Conditions] lists what needs attention; [Service.Events] streams what changes.
//
// A Service carries no counter values. Programs read them from the shared-memory mirror: shm.Open opens it by the name of the
// instance.
//
// Importing this package and plugin pulls in neither cgo nor eBPF. Compare errors with the sentinels of this package by
// errors.Is, on either side of the plugin.
package dataplane
