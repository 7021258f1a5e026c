package cli

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/flowtally/flowtally/dataplane"
)

// startError adds to the error of a failed start what the user needs to cure it: missing interfaces, dead instances and
// a next step.
func (c *runCmd) startError(err error, cfg dataplane.Config) error {
	invalid := errors.Is(err, dataplane.ErrInvalid)
	err = fmt.Errorf("starting instance %s: %w", cfg.Instance, err)
	if invalid {
		return &usageError{err} // the configuration is wrong for this host
	}

	// A missing interface in a file may appear later, as during boot, and systemd tries again. Exit code 2 would stop that.
	// A missing one on the command line is a mistake of the user.
	for _, missing := range missingInterfaces(cfg) {
		name := strings.TrimPrefix(missing.Object, "interface ")
		if c.Config == "" && strings.Contains(err.Error(), name+": not found") {
			return hintInterface(withDead(withMissingInterfaces(err, cfg), cfg), name)
		}
	}

	// The plugin's error crosses the process boundary as text.
	if strings.Contains(err.Error(), "RLIMIT_NOFILE") || strings.Contains(err.Error(), syscall.EMFILE.Error()) {
		err = withHint(err, "ulimit -n 8192 # as root, or LimitNOFILE=8192 in the systemd unit; then start it again")
	}
	return withDead(withMissingInterfaces(err, cfg), cfg)
}

// withMissingInterfaces adds the configured interfaces missing on this host, so that one attempt reports all causes. It
// skips an interface already in err, unless it can suggest a similar name.
func withMissingInterfaces(err error, cfg dataplane.Config) error {
	text := err.Error()
	for _, w := range missingInterfaces(cfg) {
		likely := strings.HasPrefix(w.Suggestion, "did you mean")
		named := strings.Contains(text, strings.TrimPrefix(w.Object, "interface "))
		if likely || !named {
			err = errors.Join(err, fmt.Errorf("%s: %s: %s", w.Object, w.Text, w.Suggestion))
		}
	}
	return err
}
