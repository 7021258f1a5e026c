//go:build !linux

package main

import "os"

// The first process of a Linux machine is a Linux program.
func main() { os.Exit(2) }
