package top

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// ink is the control sequences around a text. They are made once from a style of lipgloss: to render each cell by
// a style costs more than all else of a frame. bubbletea leaves out the colors that the terminal, or NO_COLOR, does
// not allow.
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
