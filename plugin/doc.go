// Package plugin runs an instance in a process of its own. [Launch] starts the process and returns a [Client], which is
// a [dataplane.Service]:
//
//	c, err := plugin.Launch(ctx, plugin.Options{Config: cfg, Logger: log})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//
// The plugin process holds the privileges and the kernel's objects. The host needs neither, and is built without cgo
// and eBPF. No counter value crosses the boundary: readers take values from the mirror at [dataplane.Info].Mirror.
//
// The other calls are for other programs:
//   - A program that changes an instance of another process connects by [Dial] to the socket that [FindControl] names.
//   - A host opens that socket for its instance by [ListenControl].
//   - The main function of a plugin of your own calls [Serve].
//
// # Supervision
//
// [Launch] starts one process at a time, and [Client.Close] ends it. The process also ends with its host, in whatever way.
// When the plugin dies, or fails health checks for Options.Watchdog, it is started again with the flows of that moment. Until the new process runs, calls return [dataplane.ErrUnavailable], also the calls under way. A change
// under way either happened and is kept, or failed and is not. A device in whose verb two processes died is left out.
// Totals of the mirror go on over a restart.
//
// On Linux the plugin of root, or of a host with ambient capabilities, has CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON,
// and CAP_NET_RAW where a device may count. It has no other capability and cannot get one by executing a file. It is
// not dumpable. flowtally-plugin confines itself to its files by [Confine]. No plugin confines its host.
//
// # Errors
//
// The sentinels of package dataplane, probe.ErrNotSupported with its UnsupportedError, and the two errors of package
// context cross the wire: errors.Is returns the same on both sides. The text is the same up to 32 KiB. Launch adds
// [ErrStart], [ErrIncompatible] and [ErrUntrusted].
//
// # A plugin of your own
//
// A plugin is a main function that calls [Serve] with a [Factory], which makes the instance that the plugin serves.
//
// # The control socket
//
// [ListenControl] serves a Service of this process on a unix socket, and [Dial] connects to it: `flowtally flows add`
// changes the flows of a running `flowtally run` that way. Only root and the user of the serving process may connect.
// The socket refuses Configure and Close.
//
// docs/plugin.md describes restarts, versions of the protocol, and the handshake.
package plugin
