package cli

import (
	"fmt"
	"log/syslog"
	"os"
)

// noteInJournal writes a line to the host's journal: who changed what by hand. A host without a journal gets none.
func noteInJournal(what string) {
	w, err := syslog.New(syslog.LOG_NOTICE|syslog.LOG_DAEMON, "flowtally")
	if err != nil {
		return
	}
	defer w.Close()
	_ = w.Notice(fmt.Sprintf("%s (by user %d, process %d)", what, os.Getuid(), os.Getpid()))
}
