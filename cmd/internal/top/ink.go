package top

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// ink has the control sequences before and after a styled text. We make them once from a lipgloss style, because rendering
// each cell by a style would cost more than the rest of a frame. bubbletea removes colors that the terminal lacks or that
// NO_COLOR forbids.
type ink struct{ on, off string }

func newInk(s lipgloss.Style) ink {
	on, off, _ := strings.Cut(s.Render("x"), "x")
	return ink{on, off}
}

// inks are the styles of the screen.
type inks struct{ heading, selected, status, trouble, note, label ink }

func newInks() inks {
	s := lipgloss.NewStyle
	return inks{
		heading:  newInk(s().Bold(true)),
		selected: newInk(s().Reverse(true)),
		status:   newInk(s().Reverse(true)),
		trouble:  newInk(s().Reverse(true).Bold(true).Foreground(lipgloss.Red)),
		note:     newInk(s().Foreground(lipgloss.Yellow)),
		label:    newInk(s().Faint(true)),
	}
}
