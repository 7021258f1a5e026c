// Package logwire carries log records from a plugin to its host: as hclog's JSON lines on stderr, which any
// host of go-plugin reads.
package logwire
