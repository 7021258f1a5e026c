// Init is the first process of the machines of package vm: it mounts what a
// system has, loads modules, runs the steps of its script one after the other, says on the
// second serial port what they wrote and how they ended, and powers off.
//
// It is linked statically, and needs no shell and no other program. Whatever
// goes wrong in it is an event of its own and ends the machine: a first process that
// returns is a kernel panic, which shows nothing.
package main
