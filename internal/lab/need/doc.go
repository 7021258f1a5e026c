// Package need gates tests by their needs of the machine: capabilities,
// tools, BPF, network namespaces.
//
// A missing need skips the test and names the need. Where the
// environment variable FLOWTALLY_REQUIRE is "all", or lists the need by name
// (comma or space separated: "bpf,netns,tool:cc,cap:net_admin"), it fails the
// test in place of skipping it, so that a lane of CI cannot pass by skipping.
//
// The functions may be called from the goroutine of a test only, as
// testing.TB.FailNow asks. They change nothing on the machine that outlives
// the call.
package need
