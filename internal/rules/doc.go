// Package rules holds the repository's own rules as tests. A rule is a fact about the sources outside the compiler's
// reach: the directions of imports, a comment for every exported name, links that lead to a file.
package rules
