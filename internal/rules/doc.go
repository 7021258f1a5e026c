// Package rules holds the repository's own rules as tests: who may import whom,
// that every package says what it is, that no file has grown past reading.
package rules
