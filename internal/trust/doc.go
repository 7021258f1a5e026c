// Package trust reports which user could have changed a file that a privileged program is about to
// load, to execute or to keep objects in. The caller decides whose files are trusted, because a
// library and a program differ there.
package trust
