// Command mutate measures which changes of the code the tests notice. It changes one expression or
// statement of a package (a mutant), compiles the package's tests with that
// change and runs them: a mutant is killed when a test fails.
//
//	go run ./internal/mutate -seed 1 -mutants 100   # draws new mutants and prints the list
//	go run ./internal/mutate -again 10              # repeats mutants of docs/testing.md
//
// The sources stay as they are: the changed file reaches the compiler by
// -overlay. Mutants are drawn at random, by the seed, from all places of the
// packages that an operator applies to (sites.go). A mutant that does not compile
// is replaced by the next one.
//
// The first form runs every test of a package once, alone, to learn its duration
// and the lines that it covers. A mutant then meets the tests that cover its line,
// the shortest first, until one fails or until the time limit. One that no test
// fails on has survived.
//
// The second form takes mutants that docs/testing.md lists as killed, drawn by the
// commit, and runs the test that killed each. It fails when the tests of the
// package no longer kill one of them. A mutant whose source has changed is skipped.
package main
