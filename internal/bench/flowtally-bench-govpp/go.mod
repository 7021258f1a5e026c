module github.com/flowtally/flowtally/internal/bench/flowtally-bench-govpp

go 1.26.0

require (
	go.fd.io/govpp v0.13.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/fsnotify/fsnotify v1.9.0 // indirect
	github.com/ftrvxmtrx/fd v0.0.0-20150925145434-c6d800382fff // indirect
	github.com/sirupsen/logrus v1.9.3 // indirect
)
