// Package manual writes the man pages of flowtally from the model of its command line, so that a page has
// the flags that the program has.
//
// The page flowtally(1) has the commands and the flags of all commands, and each command has a page
// of its own, flowtally-COMMAND(1). flowtally.yaml(5) is the default configuration, and
// flowtally-plugin(8) describes the process that counts. The pages use the macros of man(7) alone.
package manual
