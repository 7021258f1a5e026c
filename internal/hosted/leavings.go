package hosted

import (
	"encoding/json"
	"fmt"
)

// ReleaseWord is the first argument of a plugin's process that does nothing but remove what another one has left. The
// second is Leavings as text.
const ReleaseWord = "release-leavings"

// Leavings are what a dead process of an instance may have left, by their paths.
type Leavings struct {
	Pins   string   `json:"pins,omitempty"`   // the directory; "" for none
	Keep   []string `json:"keep,omitempty"`   // names of pins that stay
	Mirror string   `json:"mirror,omitempty"` // a file to remove; "" for none
}

// Text is the argument for Parse.
func (l Leavings) Text() (string, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return "", fmt.Errorf("encoding what a process has left: %w", err)
	}
	return string(b), nil
}

// Parse reads the text of Leavings.
func Parse(text string) (l Leavings, err error) {
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return l, fmt.Errorf("decoding what a process has left: %w", err)
	}
	return l, nil
}
