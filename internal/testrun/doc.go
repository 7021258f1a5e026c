// Testrun runs go test, shows the output of failing tests, and ends with a summary: how many
// tests passed, failed and were skipped, why, and how long it took.
//
//	testrun [-go COMMAND] [-name NAME] [-to FILE] -- ARG…
//
// ARG… are the arguments of go test. NAME stands at the beginning of the summary, which is
// also appended to FILE: a make target of several runs shows them together at its end.
// Testrun exits with the status of go test.
package main
