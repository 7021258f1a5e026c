// Init is the first process of the machines of package vm: it mounts the usual file systems, loads
// modules, runs the steps of its script one after the other, writes their output and exit codes to
// the second serial port, and powers off.
//
// It is linked statically, and needs no shell and no other program. Every failure inside it is an
// event of its own and ends the machine: a first process that returns is a kernel panic, which
// hides the cause.
package main
