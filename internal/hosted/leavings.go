package hosted

import (
	"encoding/json"
	"fmt"
)

// ReleaseWord is the first argument that makes a plugin binary clean up after another process instead of serving. The second
// is [Leavings.Text].
const ReleaseWord = "release-leavings"

// Leavings has the paths that a dead process may have left behind.
type Leavings struct {
	Pins   string   `json:"pins,omitempty"`   // directory of pins to remove
	Keep   []string `json:"keep,omitempty"`   // names of pins to keep
	Mirror string   `json:"mirror,omitempty"` // file to remove
}

// Text encodes Leavings as an argument for [Parse].
func (l Leavings) Text() (string, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return "", fmt.Errorf("encoding what a process has left: %w", err)
	}
	return string(b), nil
}

// Parse decodes the output of [Leavings.Text].
func Parse(text string) (l Leavings, err error) {
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return l, fmt.Errorf("decoding what a process has left: %w", err)
	}
	return l, nil
}
