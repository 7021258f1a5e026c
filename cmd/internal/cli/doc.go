// Package cli is the command flowtally: one struct that reads like the map of
// the command line ([root]), and one file per command.
//
// Every command is a struct with a method Run(*Env) error. It prints data to Env.Stdout and
// messages to Env.Stderr, ends when Env.Context ends, and never exits by itself: its error becomes
// the exit code, in [Main] alone.
//
//	0  ok, or ended by a signal as asked
//	1  failed
//	2  wrong usage or configuration
//	3  ran, but degraded (only with --strict)
//
// Errors of the libraries are terse. Their next steps for a user stand in one table, keyed by
// sentinel (hints.go).
package cli
