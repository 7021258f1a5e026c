// Package guest holds the tests that run inside the machines of package vm, as
// root, alone. They carry the build tag vm, are compiled by the tests of package
// vm, and are told by the environment what they find:
//
//	FLOWTALLY_GUEST_BIN  directory of the project's programs
//	FLOWTALLY_GUEST_RXE  not empty where the kernel has rdma_rxe loaded
//
// A test that does not fit the kernel at hand is not run there: the host names
// those that are, and takes a skip for a failure.
package guest
