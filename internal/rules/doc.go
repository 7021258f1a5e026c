// Package rules holds the repository's own rules as tests: the directions of imports, a comment for
// every package, the length of files, and plain English.
package rules
