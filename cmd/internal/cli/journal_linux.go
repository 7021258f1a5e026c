package cli

import (
	"fmt"
	"log/syslog"
	"os"
)

// note writes a line to the host's journal: who changed what by hand. A host without one has no such line.
func note(what string) {
	w, err := syslog.New(syslog.LOG_NOTICE|syslog.LOG_DAEMON, "flowtally")
	if err != nil {
		return
	}
	defer w.Close()
	_ = w.Notice(fmt.Sprintf("%s (by user %d, process %d)", what, os.Getuid(), os.Getpid()))
}
