// Package plugin runs an instance in a process of its own, the plugin. [Launch] starts it and returns a [Client], which
// implements [dataplane.Service]:
//
//	c, err := plugin.Launch(ctx, plugin.Options{Config: cfg, Logger: log})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//
// The plugin holds the privileges and the kernel objects. The host that launches it needs no privileges, no cgo and no
// eBPF. Counter values do not pass through the plugin API. Read them from the mirror with package shm.
//
// # Supervision
//
// If the plugin dies, or does not answer health checks for [Options].Watchdog, the Client starts a new one with the current
// flows. Calls return [dataplane.ErrUnavailable] until it runs; so do the calls that were under way. A change under way is
// either complete or undone after the restart, never half. Totals continue.
//
// After two crashes in the same verb of an RDMA device, the plugin no longer uses the device.
//
// The plugin ends with [Client.Close], and also when the host dies, for whatever reason.
//
// # Privileges
//
// On Linux, if the host is root or has ambient capabilities, the plugin gets CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and
// CAP_NET_RAW if an RDMA device may count. It drops all other capabilities, cannot regain them by executing a file, and is
// not dumpable. flowtally-plugin also calls [Confine], so that it can open only the files of its instance.
//
// # Errors
//
// errors.Is returns the same on both sides for the errors of package dataplane, for probe.ErrNotSupported, and for the two
// errors of package context. Texts longer than 32 KiB are cut. [Launch] adds [ErrStart], [ErrIncompatible] and
// [ErrUntrusted].
//
// # The control socket
//
// A host can serve its instance to other processes of its user and of root: call [ListenControl], then [Control.Serve].
// They connect with [Dial] to the path that [FindControl] returns. This is how `flowtally flows add` reaches a running
// `flowtally run`. Such a client cannot close the instance.
//
// # A plugin of your own
//
// To launch your own binary instead of flowtally-plugin, call [Serve] in its main function, with a [Factory] that makes
// the instance.
//
// docs/plugin.md describes restarts, versions of the protocol, and the handshake.
package plugin
