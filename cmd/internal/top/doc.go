// Package top is the live table of flowtally top, on a terminal.
//
// # Parts
//
//   - source.go reads the mirror. It follows the entries, the history, and each new file of the mirror's name. Its rows
//     are the counters in order of name.
//   - table.go selects rows: the filter, the order, the cursor and the window on the screen.
//   - model.go is the state of the screen. update.go changes it by messages of bubbletea, and view.go draws it.
//
// Only the source reads the mirror, and only the view knows the cells of the terminal.
//
// # Cost
//
// Each interval the source takes a look at the mirror. A look must not allocate, and must cost little with 65,536 counters:
//   - It reads only the visible rows and a page above and below, or all rows if the order is by their values.
//   - It reads an entry again only after a change.
//   - It sorts only the visible window of a large table.
//   - Drawing costs more than reading, so a large screen is drawn less often (cellsPerSecond).
package top
