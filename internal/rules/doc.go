// Package rules holds the repository's own rules as tests: facts about the sources that a compiler does not check, such
// as the directions of imports, a comment for every exported name, and links that lead to a file.
package rules
