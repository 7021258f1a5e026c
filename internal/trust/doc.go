// Package trust says who could have written a file that a program with
// privileges is about to load or to start. Whose files are to be trusted is the
// caller's to say: it differs between a library and a program.
package trust
