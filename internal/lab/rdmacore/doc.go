// Package rdmacore gives tests the real rdma-core of several suites of Debian, each in a root of its own
// with the libc of its suite: a libibverbs finds its providers in directories that are compiled into it, it
// takes no provider of another release (IBVERBS_PRIVATE), and a newer one needs a newer libc.
//
// A root has no kernel RDMA below it. It names two devices in a sysfs of its own, so that
// libibverbs lists them by the providers of its release. They cannot be opened, except over the uverbs kernel in
// software: Root.Preload.
//
// Its tests, and the tests of package ibv that use it, carry the build tag releases, because they ask the
// distribution's archive: `make test-releases`. Those that run foreign programs are in `make test-judges`.
package rdmacore
