// Package trust says who could have changed a file that a program with privileges is about
// to load, to execute or to keep objects in. Whose files are to be trusted is the
// caller's to say: it differs between a library and a program.
package trust
