package vm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// KernelLog reads the log of the kernel that runs it (Documentation/ABI/testing/dev-kmsg).
type KernelLog struct{ fd int }

// OpenLog opens the log, from the boot on.
func OpenLog() (*KernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the kernel's log: %w", err)
	}
	return &KernelLog{fd}, nil
}

// Close closes the log.
func (l *KernelLog) Close() error { return unix.Close(l.fd) }

// Read returns the lines at warning or above that the kernel has written since the last call. Records that the
// kernel has dropped before are a line too, because they may have been warnings.
func (l *KernelLog) Read() ([]Log, error) {
	var lines []Log
	var buf [8192]byte // the longest record
	for {
		n, err := unix.Read(l.fd, buf[:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return lines, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EPIPE):
			lines = append(lines, Log{Level: Warning, Text: "the kernel has dropped lines of its log"})
		case err != nil:
			return lines, fmt.Errorf("reading the kernel's log: %w", err)
		default:
			line, err := parseRecord(string(buf[:n]))
			if err != nil {
				return lines, err
			}
			if line.Level <= Warning {
				lines = append(lines, line)
			}
		}
	}
}

// parseRecord parses a record ("4,231,5140900,-;text", then lines of its dictionary). What programs have written to
// the log has a level above those of the kernel, because it has another facility.
func parseRecord(record string) (Log, error) {
	head, text, _ := strings.Cut(record, ";")
	number, _, _ := strings.Cut(head, ",")
	priority, err := strconv.Atoi(number)
	if err != nil {
		return Log{}, fmt.Errorf("reading a record of the kernel's log, %.80q: %w", record, err)
	}
	text, _, _ = strings.Cut(text, "\n")
	return Log{Level: priority, Text: text}, nil
}
