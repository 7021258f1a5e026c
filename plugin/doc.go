// Package plugin is the process boundary. It runs an instance in a process of its own, which holds the privileges
// and the kernel's objects, and gives the host a [dataplane.Service] that behaves as if the instance were in its
// process.
//
//	c, err := plugin.Launch(ctx, plugin.Options{Config: cfg, Logger: log})
//	…
//	defer c.Close()
//
// # Supervision
//
// [Launch] starts one process at a time, and [Client.Close] ends it. The process also ends when the host dies,
// however the host dies. It is started again, with the flows of that moment, when it dies or fails health checks for
// Options.Watchdog. Until the new process runs, calls return [dataplane.ErrUnavailable], also the calls under way.
// A change under way either happened and is kept, or failed and is not. A device in whose verb two processes died
// is left out. No counter value crosses the boundary: totals of the mirror go on over a restart.
//
// On Linux the plugin of root, or of a host with ambient capabilities, has CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON,
// and CAP_NET_RAW where a device may count. It has no other capability and cannot get one by executing a file. It is
// not dumpable. flowtally-plugin confines itself to its files; no plugin confines its host.
//
// # Errors
//
// The sentinels of package dataplane, probe.ErrNotSupported with its UnsupportedError, and the two errors of package
// context cross the wire: errors.Is returns the same on both sides. The text is the same up to 32 KiB. Launch adds
// [ErrStart], [ErrIncompatible] and [ErrUntrusted].
//
// # Plugins of other programs
//
// A plugin is a main function that calls [Serve] with a [Factory]. Package plugintest has an instance in memory to
// begin with, and the conformance suite for a Service and for a plugin that serves it.
//
// # The control socket
//
// [ListenControl] serves a Service of this process on a unix socket, and [Dial] connects to it: `flowtally flows add`
// changes the flows of a running `flowtally run` that way. Only root and the user of the serving process may connect.
// The socket refuses Configure and Close.
//
// docs/plugin.md describes restarts, versions of the protocol, and the handshake.
package plugin
