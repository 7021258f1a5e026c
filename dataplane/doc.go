// Package dataplane is what an embedder sees of flowtally: [Service], the one
// interface that the engine (package dataplane/engine, in this process) and the
// plugin's client (package plugin, in another) both meet, and the types it names.
//
// It imports only the vocabulary, so that a load balancer that talks to a
// plugin pulls in neither cgo nor eBPF. No counter value passes through a
// Service: values are read from the mirror (package shm) at [Info].Mirror.
package dataplane
