//go:build !linux

package cli

func noteInJournal(string) {}
