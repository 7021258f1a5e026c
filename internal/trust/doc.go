// Package trust reports whether an untrusted user could have changed a file that a privileged program is about to load, to
// execute or to keep objects in. The caller says which users it trusts: a library and a program differ there.
package trust
