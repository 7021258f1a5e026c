// Package plugin is the process boundary: it runs an instance in a process of
// its own, which holds the privileges and the kernel's objects, and hands the
// host a [dataplane.Service] that behaves as if the instance were here.
//
//	c, err := plugin.Launch(ctx, plugin.Options{Config: cfg, Logger: log})
//	…
//	defer c.Close()
//
// # What the host may rely on
//
//   - One process at a time. It is started by Launch, ended by Close, and ends by
//     itself when the host dies, however it dies: it holds the read end of a
//     pipe whose write end dies with the host. Whether counting goes on then is what
//     XDPConfig.KeepPins says.
//   - Ctrl-C in a terminal reaches the host alone: the plugin has a process group of its own.
//   - On Linux the plugin of a root process, or of one with ambient capabilities, has CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON,
//     CAP_NET_RAW where a device may count, and no other capability; it cannot get another by executing a file.
//   - When the process dies, or answers no health check for Options.Watchdog, it is
//     started again, after a pause that grows from Options.RestartMin to RestartMax
//     while it dies soon, and configured with the flows of that moment: the configured ones, in
//     the order of addition, with those added and without those removed at run time.
//   - Meanwhile calls answer [dataplane.ErrUnavailable], those under way included.
//     A change that was under way either happened and is kept, or answered an error and is not.
//     Flows that were being added for a caller whose context ended are removed again as soon as
//     the plugin has answered, and Placements waits for that.
//     Conditions answers the one condition "plugin-restarting", Info what it
//     answered before, without a PID, and Events streams stay open; after the restart
//     they go on, behind a plugin-restarted event. What the plugin would have
//     said while it was dead is lost.
//   - The plugin names each verb of an RDMA device in a page that it shares with the host before it calls it.
//     A plugin that died of itself, twice in the same verb of the same device (the last that began, where
//     several were under way), is started without that device until the host ends, and the condition
//     "rdma-crash" says so. That holds for Launch too, which starts it again for that. SIGKILL, SIGTERM,
//     SIGINT and SIGHUP come from outside and do not count.
//   - Queue pairs go with the process. The next one makes those of the configuration again, with
//     other numbers, and connects them as it says; what QueuePairs.Connect said is forgotten, since
//     the peer must learn the number too.
//   - A caller of QueuePairs.Post that gives up is told what had completed: the end of its context
//     ends the posting, and not the call, which is waited for, up to 10 s.
//   - Counts are not the business of this package: the mirror's totals go on over a
//     restart, and no value ever crosses the boundary. An event may say what a change of
//     source has cost (dataplane.Uncounted), which no mirror can.
//   - Nothing that a plugin writes or answers can panic the host: go-plugin's own
//     reading of the plugin's log, which can, is switched off, and the log is read here.
//
// # Errors
//
// Every sentinel of package dataplane, probe.ErrNotSupported (with its
// UnsupportedError) and the context's two cross the wire: errors.Is answers the same on both sides, and the
// text is the same up to 32 KiB. Launch adds [ErrStart], [ErrIncompatible] and [ErrUntrusted].
//
// # Versions
//
// The major version is the one in the proto package's name, flowtally.plugin.v1,
// and the number of the handshake. A host offers all that it speaks, a plugin
// picks the highest of them that it speaks. Within a major, messages and calls
// are only added, and found by looking: a call that the other side does not know
// satisfies probe.ErrNotSupported, an unknown field is ignored. Released files are
// not changed. A pair with no major in common fails to launch with one of:
//
//	… incompatible plugin: it speaks protocol version 2, this program speaks 1;
//	  the plugin is newer: upgrade this program, or install the plugin of its release
//	… incompatible plugin: it speaks protocol version 1, this program speaks 2;
//	  the plugin is older: install the plugin of this program's release
//
// # Handshake
//
// The transport is gRPC on a unix socket in a directory of mode 0700, with
// mutual TLS between keys made for that one launch. The environment variable
// FLOWTALLY_PLUGIN_COOKIE tells a plugin that a host started it; run by hand it explains itself and
// exits with 1. FLOWTALLY_PLUGIN_HOST_FD names the pipe that tells it of the host's end, FLOWTALLY_PLUGIN_VERBS_FD the page
// of verbs, FLOWTALLY_PLUGIN_EXCLUDED the RDMA devices to leave alone, as a JSON object with the reasons, and
// FLOWTALLY_PLUGIN_LOG the level from which it logs. On stderr a plugin writes hclog's JSON lines; anything else
// there is logged as a warning, and as an error from a Go panic on.
//
// # Writing a plugin
//
// A plugin is a main function that calls [Serve] with a [Factory]. Package
// plugintest holds an in-memory Service to start from and the conformance suite
// that a Service, and a plugin that serves it, must pass.
//
// # The control socket
//
// [ListenControl] serves a Service that this process holds on a unix socket, and [Dial] connects to it:
// `flowtally flows add` changes the flows of a running `flowtally run` that way. Root and the user who runs the
// instance may connect, nobody else; Configure and Close are refused.
package plugin
