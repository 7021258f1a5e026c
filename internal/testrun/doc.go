// Testrun runs go test, shows the output of failing tests, and ends with a summary: how many
// tests passed, failed and were skipped, why, and how long it took.
//
//	testrun [-go COMMAND] [-dir DIR] [-name NAME] [-to FILE] [-failures FILE] [-times FILE] -- FLAG… PACKAGE…
//
// FLAG… and PACKAGE… are the arguments of go test, which runs in DIR. A flag with a value has the form
// -name=value, because testrun must tell flags from packages. NAME stands at the beginning of the
// summary, which is also appended to FILE: a make target of several runs shows them together at its end.
//
// # Unsteady tests
//
// A failed test is run once more when everything else has ended: alone, with the same flags and the same seed.
// If it passes then, it is unsteady: it counts as a failure of luck and the run is green. The summary names it. The file of
// -failures has the name and the message of each failed test, and says which of them are unsteady. Each entry is a fault of
// the product until shown otherwise.
//
// Luck needs something that two runs of the same code do not share. So only a test with real time is run again:
// one that waits or reads the clock, uses the network, a process or a system call, or starts a goroutine. The sources
// of the test say which (realtime.go); no list is kept. These failures are never forgiven:
//
//   - a package that does not build, or that vet refuses;
//   - a panic, a timeout or an exit in the middle of a test, as the tests behind it have not run;
//   - a failure outside of every test;
//   - a report of the race detector or of a sanitizer: it is proof of a fault, however rarely it is made;
//   - more than ten failed tests, which are no luck.
//
// # Times
//
// The file of -times gets one line for each test that is no subtest: seconds, NAME, package, test. `sort -rn` puts the
// slowest first.
//
// Testrun exits with the status of go test, or with 0 when all failed tests are unsteady.
package main
