package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// Exit codes.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitDegraded = 3
)

// usageError is a mistake in the command line or in the configuration.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef returns a usageError.
func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// exitError ends the program with a code and without a message, because the command's output already says it all.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// hintedError is an error with its own next step, chosen where the error arose.
type hintedError struct {
	err error
	try string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// withHint gives err its own next step. It takes precedence over those in hints.
func withHint(err error, format string, args ...any) error {
	return &hintedError{err, fmt.Sprintf(format, args...)}
}

// report prints err with its next step, and returns the exit code. line is the failed command, or nil before the
// arguments were parsed.
func report(stderr io.Writer, err error, line *commandLine) int {
	if err == nil {
		return exitOK
	}
	if code := exitError(0); errors.As(err, &code) {
		return int(code)
	}

	fmt.Fprintf(stderr, "flowtally: %s\n", strings.TrimRight(format.PrintableLines(err.Error()), "\n"))
	if try := line.complete(hint(err)); try != "" {
		fmt.Fprintf(stderr, "  try: %s\n", format.PrintableLines(try))
	}

	if usage := (*usageError)(nil); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}
