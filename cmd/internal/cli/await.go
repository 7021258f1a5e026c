package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// await returns the result of read, which may block: on a terminal, or until a FIFO has a writer. If ctx ends first,
// await returns its error, and read goes on until the process ends.
func await[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()

	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// ask prints a question and reports whether the user answers y or yes. Input that ends without an answer is a no. If a
// signal ends the command before the answer, the error is the context's.
func ask(env *Env, question string) (yes bool, err error) {
	fmt.Fprintf(env.Stderr, "%s [y/N] ", question)
	line, err := await(env.Context, func() (string, error) { return bufio.NewReader(env.Stdin).ReadString('\n') })
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, err
}
