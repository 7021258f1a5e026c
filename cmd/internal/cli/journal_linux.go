package cli

import (
	"fmt"
	"log/syslog"
	"os"
)

// noteInJournal writes to the host's journal who changed what by hand. It does nothing on a host without a journal, such
// as a container.
func noteInJournal(what string) {
	w, err := syslog.New(syslog.LOG_NOTICE|syslog.LOG_DAEMON, "flowtally")
	if err != nil {
		return
	}
	defer w.Close()
	_ = w.Notice(fmt.Sprintf("%s (by user %d, process %d)", what, os.Getuid(), os.Getpid()))
}
