// Package dispatcher adds a program to the libxdp dispatcher on the XDP hook of an interface.
//
// A dispatcher is an XDP program that calls up to ten other programs, its components, in the order of their priorities. Each component
// replaces one function of the dispatcher (freplace). The protocol is defined by libxdp (lib/libxdp/protocol.org of xdp-tools). The
// configuration of a dispatcher is the only value of its only map. Components and their links are pinned below [Dir], in a directory
// named after the interface and the id of the dispatcher.
//
// A dispatcher has exactly as many places as components, so changing the components takes a new dispatcher. hook.change makes one,
// attaches all components to it, and replaces the program on the hook. The kernel does so only if the hook still has the old
// dispatcher. Each packet passes through one of the two dispatchers, so every component sees it once. libxdp finds the new
// dispatcher and can change it in turn.
//
// A change needs CAP_SYS_ADMIN, because it opens programs and maps by their ids.
package dispatcher
