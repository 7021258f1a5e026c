//go:build !linux

package cli

func note(string) {}
