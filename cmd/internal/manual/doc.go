// Package manual generates the man pages of flowtally from the model of its command line, so they cannot differ from the
// program.
//
// flowtally(1) has an overview and the common flags. Each command has its own page, flowtally-COMMAND(1).
// flowtally.yaml(5) is the commented default configuration, and flowtally-plugin(8) describes the counting process. The
// pages use only the macros of man(7), which every reader of man pages supports.
package manual
