package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bytes returns n bytes in binary units, with one decimal: "8.0 MiB".
func Bytes(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/1024, 0
	for f >= 1024 && unit < 5 {
		f, unit = f/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTPE"[unit])
}

// Count returns n with commas between the thousands: "1,234,567". Totals are never shortened.
func Count(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Rate returns a rate in decimal units, with two decimals: "1.50G".
func Rate(perSecond float64) string {
	if perSecond < 1000 {
		return strconv.FormatFloat(perSecond, 'f', 0, 64)
	}
	f, unit := perSecond/1000, 0
	for f >= 999.995 && unit < 5 {
		f, unit = f/1000, unit+1
	}
	return fmt.Sprintf("%.2f%c", f, "kMGTPE"[unit])
}

// Age returns a duration, rounded down to one unit: "15ms", "3d".
func Age(d time.Duration) string {
	switch {
	case d < 0:
		return "0"
	case d < time.Microsecond:
		return fmt.Sprintf("%dns", d.Nanoseconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 10*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Plural returns n with the right form of a word: "1 flow", "2,000 flows".
func Plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}

// OrDash returns s, or "-" if it is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Progress returns a bar and a percentage, or just n as bytes if total is 0, which means unknown.
func Progress(n, total int64) string {
	if total <= 0 {
		return Bytes(uint64(max(0, n)))
	}
	const width = 30
	n = min(max(0, n), total)
	full := int(width * n / total)
	return fmt.Sprintf("[%s%s] %3d%%", strings.Repeat("#", full), strings.Repeat(".", width-full), 100*n/total)
}
