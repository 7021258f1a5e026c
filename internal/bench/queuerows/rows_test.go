package queuerows

import (
	"testing"

	"github.com/flowtally/flowtally/internal/bench/rowtest"
)

// The row is measured, and both of its sides count every completion.
func TestRowsAreMeasured(t *testing.T) { rowtest.Measure(t, Rows()) }
