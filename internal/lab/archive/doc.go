// Package archive fetches packages of the distribution and unpacks them beside each other,
// in a cache outside of any tree of sources. Nothing is installed.
//
// A [Cache] has the packages that this machine would install. [Cache.Suite] has the packages of
// another suite of the same archive, from lists and with a state of its own. The
// machine's lists and its installed packages stay as they are.
//
// [Cache.Source] has the upstream sources of a package.
//
// Apt verifies the packages that it fetches, by the keys of this machine.
package archive
