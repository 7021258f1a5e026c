// Package fence runs the fenced commands of the README and of docs/*.md, and
// compares the output that a document shows with the real one. [Parse] and [Matches] serve tests that run
// the fences of a document elsewhere.
//
// # Fences
//
// The first word of a fence's info string is its language; the words behind it
// say how its commands run. A reader of the rendered document does not see them.
//
//	```console                      run each command; the lines behind a command are its output
//	```console fails                the last command must end with an exit code other than 0
//	```console until="TEXT"         the last command stays in the background; its output has TEXT
//	```console not-run: REASON      not run here; may stand behind the words above, for a test that runs the fence
//	```sh                           a script: run it, show no output
//	```yaml file=lb.yaml            write the fence to this file, and run nothing
//
// A line of a console fence that begins with "$ " (a user) or "# " (root) is a
// command. It goes on over lines that end with a backslash, and over a here-document.
// A command that shows no output may print any. Fences of other languages are not
// commands, and a fence without a language has no prompt in it.
//
// # Comparison
//
// Both outputs are compared after the same simplification: numbers with their units,
// durations, times and addresses match any other, blanks and rows of dashes become one.
// Only the format of a number counts: 1,006 does not match 1006. A
// line "…" stands for any lines, and "…" in a line for any text. The output is
// standard output, or, where that differs, standard output and standard error.
//
// # Environment
//
// Each document has an environment of its own, in which its fences run from top to
// bottom in one shell: the working directory is the root of the repository, flowtally
// and flowtally-plugin are in PATH, and the machine has the interfaces eth0
// (192.0.2.10/24) and eth1 (198.51.100.10/24) with a neighbor behind each. /run and
// /dev/shm are new, and /etc, /usr, /var/lib and the repository are writable copies:
// nothing outlives the document. "#" is root. "$" is the owner of the repository, with the
// same shell variables, but "cd" and "export" hold for both.
package fence
