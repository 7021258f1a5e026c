// Package shmrows holds the rows of the bench that are about the mirror, with its readers in Go
// and in C. docs/performance.md describes each row and its reference.
//
// Every row makes a mirror of its own on the tmpfs and removes it. A row that needs a second
// thread runs it pinned to the other CPU; without one the row is not measured. Package bench runs and
// compares the sides.
package shmrows
