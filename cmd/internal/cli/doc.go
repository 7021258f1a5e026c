// Package cli is the command flowtally. [root] is the map of the command line, and each command has one file, named
// after it: its flags, its --help, its Run, and what Run calls.
//
// A command is a struct with a method Run(*Env) error. Run prints data to Env.Stdout and messages to Env.Stderr, and
// ends when Env.Context ends. It never exits by itself: [Main] alone turns its error into the exit code.
//
//	0  ok, or ended by a signal as asked
//	1  failed
//	2  wrong usage or configuration
//	3  ran, but degraded (only with --strict)
//
// A method Help returns what --help prints below its first line. Each line of it that begins with "flowtally" is an
// example: a test parses it.
//
// Several commands share these files:
//
//	commandline.go  a next step, completed so that it works when it is pasted
//	config.go       the configuration file
//	control.go      a running instance, over its control socket
//	flowsflag.go    the flows that a command line names
//	hints.go        the next step for each sentinel of the libraries, whose errors are terse
//	instance.go     the flags that name an instance and its mirror
//	mirror.go       a mirror to read
//	warnings.go     what a configuration probably gets wrong, although it is valid
package cli
