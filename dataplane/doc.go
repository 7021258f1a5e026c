// Package dataplane has the interface of an instance, [Service], and its types. The engine implements it in this
// process (package dataplane/engine), and the plugin's client for an instance in another process (package plugin).
//
// A program that imports this package and plugin pulls in neither cgo nor eBPF. No counter value passes through a
// Service: programs read values from the mirror (package shm) at [Info].Mirror.
package dataplane
