// Package dispatcher puts a program into the libxdp dispatcher that holds the XDP hook of an interface.
//
// A dispatcher is an XDP program that calls up to ten component programs in the order of their priorities. Each
// component replaces a function of it (freplace). The protocol is libxdp's (lib/libxdp/protocol.org of xdp-tools): the
// configuration of a dispatcher is the one value of its one map, and the components and their links are pinned below
// [Dir], in a directory that is named after the interface and the dispatcher's id.
//
// libxdp makes a dispatcher with as many places as it has components. [Hook.Change] therefore makes another dispatcher,
// attaches all components to it, and exchanges the program on the hook. The kernel exchanges it only if the hook still
// holds the dispatcher that was read. Each packet runs through one of the two dispatchers, so that a program counts each
// packet once. Programs of libxdp find the new dispatcher, and change it in the same way.
//
// A change takes CAP_SYS_ADMIN, because programs and maps are opened by their ids.
package dispatcher
