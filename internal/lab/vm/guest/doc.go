// Package guest holds the tests that run inside the machines of package vm, as root, without other
// processes. They carry the build tag vm and are compiled by the tests of package vm. The
// environment describes the machine:
//
//	FLOWTALLY_GUEST_BIN  directory of the project's programs
//	FLOWTALLY_GUEST_RXE  not empty where the kernel has rdma_rxe loaded
//	FLOWTALLY_GUEST_UVERBS path of the uverbs kernel in software
//	FLOWTALLY_GUEST_PROGRAM what TestSCTPLeavesWhole attaches: empty, flowtally or pull
//	FLOWTALLY_GUEST_ONLY a regular expression: the rows MODE/SCENARIO that TestTrafficPassesUnharmedAndIsCounted runs
//	FLOWTALLY_GUEST_HARM not empty where TestTrafficPassesUnharmedAndIsCounted runs the rows that harm the kernel, too
//
// The host names the tests that fit the kernel, and treats a skipped test as a failure.
package guest
