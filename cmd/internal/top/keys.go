package top

import "charm.land/bubbles/v2/key"

// keyMap has the keys of all pages.
type keyMap struct {
	up, down, pageUp, pageDown, first, last key.Binding
	left, right                             key.Binding
	next, previous, turn                    key.Binding
	filter, clear                           key.Binding
	open, pause, help, suspend, quit        key.Binding
}

func newKeyMap() keyMap {
	bind := func(shown, does string, keys ...string) key.Binding {
		return key.NewBinding(key.WithKeys(keys...), key.WithHelp(shown, does))
	}
	return keyMap{
		up:       bind("↑/k", "one row up", "up", "k"),
		down:     bind("↓/j", "one row down", "down", "j"),
		pageUp:   bind("pgup/b", "one page up", "pgup", "b", "ctrl+b", "ctrl+u"),
		pageDown: bind("pgdn/f", "one page down", "pgdown", "f", "ctrl+f", "ctrl+d"),
		first:    bind("home/g", "first row", "home", "g"),
		last:     bind("end/G", "last row", "end", "G"),
		left:     bind("←/h", "columns to the left", "left", "h"),
		right:    bind("→/l", "columns to the right", "right", "l"),
		next:     bind(">/s", "order by the next column", ">", "s"),
		previous: bind("</S", "order by the previous column", "<", "S"),
		turn:     bind("r", "reverse the order", "r"),
		filter:   bind("/", "filter: name, label or source", "/"),
		clear:    bind("esc", "back; end the filter", "esc"),
		open:     bind("enter", "all of one counter", "enter"),
		pause:    bind("space", "pause, go on", "space", "p"),
		help:     bind("?", "help", "?"),
		suspend:  bind("ctrl+z", "suspend", "ctrl+z"),
		quit:     bind("q", "quit", "q", "ctrl+c"),
	}
}

// ShortHelp lists the keys for the status line.
func (k keyMap) ShortHelp() []key.Binding { return []key.Binding{k.help, k.quit} }

// FullHelp lists all keys, for the help page.
func (k keyMap) FullHelp() [][]key.Binding {
	return [][]key.Binding{
		{k.up, k.down, k.pageUp, k.pageDown, k.first, k.last, k.left, k.right},
		{k.next, k.previous, k.turn, k.filter, k.clear, k.open, k.pause, k.help, k.suspend, k.quit},
	}
}
