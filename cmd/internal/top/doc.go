// Package top is the live table of flowtally top, on a terminal.
//
// # Parts
//
// source reads a mirror: it follows the entries (shm.EntryWatcher), the history, and the file that takes the
// mirror's name. Its rows are the counters, in order of name. table chooses from the rows: filter, order,
// cursor and window. model is the state of the screen; update changes it by messages of bubbletea; view
// draws it. No part but the source reads the mirror, and no part but the view knows cells of the terminal.
//
// # Cost
//
// A look reads the visible rows with a page above and below, or all rows if the order is by their values.
// Unchanged entries are not read again. A look allocates nothing; drawing allocates for the visible cells.
// Of a large table only the visible window is sorted. A look that is not drawn (cellsPerSecond) only reads.
package top
