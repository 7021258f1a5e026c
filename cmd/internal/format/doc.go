// Package format writes tables, numbers, JSON and the strings of other programs so that a terminal shows them safely.
package format
