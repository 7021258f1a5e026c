// Package cli is the command flowtally. [root] is the map of the command line. Each command has a file named after it,
// with its flags, its --help, its Run, and what Run calls. Parts of a large command have files of their own behind an
// underscore, such as run_serve.go.
//
// A command is a struct with a method Run(*Env) error. Run prints data to Env.Stdout and messages to Env.Stderr, and
// must return when Env.Context ends. It must not exit by itself: only [Main] turns its error into the exit code.
//
//	0  ok, or ended by a signal as asked
//	1  failed
//	2  wrong usage or configuration
//	3  ran, but degraded (only with --strict)
//
// A method Help returns what --help prints below its first line. A line beginning with "flowtally" is an example, and a
// test parses it.
//
// Commands share these files:
//
//	await.go        input that may never come, such as an answer, and ends at a signal
//	capture.go      captures of packets
//	commandline.go  completing a next step so that it works when pasted
//	config.go       the configuration file
//	control.go      talking to a running instance over its control socket
//	errors.go       exit codes, and how an error is printed
//	flowsflag.go    the flows named on the command line
//	hints.go        the next step for each sentinel of the libraries, whose errors are terse
//	instance.go     the flags that name an instance and its mirror
//	interfaces.go   the network interfaces of this host
//	journal_*.go    telling the host's journal who changed what
//	leftovers.go    what dead instances and other releases have left on this host
//	memory.go       the memory of large configurations
//	mirror.go       reading a mirror
//	warnings.go     what a configuration probably gets wrong, although it is valid
package cli
