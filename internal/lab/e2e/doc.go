// Package e2e holds the tests of the whole: real traffic, counted by the real
// plugin process, read from the mirror by other processes. It has no code of
// its own.
//
// The test binary moves itself into a network namespace of its own, where the
// near ends of its veth pairs and the plugins that it launches are. It runs the
// programs in $FLOWTALLY_BIN, or builds them. FLOWTALLY_STRESS=1 asks for the long
// form: more kills, over more time.
package e2e
