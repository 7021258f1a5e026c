// Package trust protects privileged programs from files of other users. Before such a program loads a library, executes a
// binary or creates objects in a directory, it must check that only trusted users could have changed the file. The caller
// decides whom it trusts.
package trust
