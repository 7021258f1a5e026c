package shm_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/flowtally/flowtally/shm"
)

// create returns the writer of a new mirror in a directory of its own, and its path.
func create() (w *shm.Writer, path string, remove func()) {
	dir, err := os.MkdirTemp("/dev/shm", "example-")
	if err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(dir, "example.mirror")
	if w, err = shm.Create(shm.Options{Path: path, History: 64}); err != nil {
		log.Fatal(err)
	}
	return w, path, func() {
		w.Close()
		os.RemoveAll(dir)
	}
}

// A writer adds two counters and publishes the values of one poll cycle. A reader copies both at one time.
func ExampleCreate() {
	w, path, remove := create()
	defer remove()
	web, err := w.Add(shm.Entry{Name: "web", Kind: "flow"})
	if err != nil {
		log.Fatal(err)
	}
	dns, err := w.Add(shm.Entry{Name: "dns", Kind: "flow"})
	if err != nil {
		log.Fatal(err)
	}
	var values shm.Block // both counters are in the first block
	now := shm.Now()
	values[web.Index] = shm.Value{Packets: 10, Bytes: 640, SampledAt: now}
	values[dns.Index] = shm.Value{Packets: 2, Bytes: 160, SampledAt: now}
	w.BeginCycle()
	w.PublishBlock(0, &values)
	w.EndCycle(now)

	r, err := shm.OpenReader(path)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	var s shm.Snapshot
	if err := r.SnapshotOf(&s, []shm.Handle{web, dns}); err != nil {
		log.Fatal(err)
	}
	for _, v := range s.List {
		fmt.Println(v.Packets, v.Bytes)
	}
	// Output:
	// 10 640
	// 2 160
}

// A reader looks a counter up once, and loads it in nanoseconds.
func ExampleOpenReader() {
	w, path, remove := create()
	defer remove()
	if _, err := w.Add(shm.Entry{Name: "web", Kind: "flow"}); err != nil {
		log.Fatal(err)
	}
	r, err := shm.OpenReader(path)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	h, err := r.Lookup("web")
	if err != nil {
		log.Fatal(err)
	}
	web, err := r.Counter(h)
	if err != nil {
		log.Fatal(err)
	}
	v, err := web.Load()
	fmt.Println("sampled:", v.SampledAt != 0, err) // absent is not zero
	_, err = r.Lookup("wep")
	fmt.Println("unknown:", errors.Is(err, shm.ErrNotFound))
	// Output:
	// sampled: false <nil>
	// unknown: true
}

// A reader follows the changes of all counters in order.
func ExampleReader_History() {
	w, path, remove := create()
	defer remove()
	web, err := w.Add(shm.Entry{Name: "web", Kind: "flow"})
	if err != nil {
		log.Fatal(err)
	}
	r, err := shm.OpenReader(path)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	changes, err := r.History()
	if err != nil {
		log.Fatal(err)
	}
	w.BeginCycle()
	w.AppendHistory(web, shm.Value{Packets: 10, Bytes: 640, SampledAt: shm.Now()})
	w.EndCycle(shm.Now())
	var records [16]shm.Record
	n, lost, err := changes.Next(records[:])
	fmt.Println(n, lost, err, records[0].Value.Packets)
	// Output: 1 0 <nil> 10
}
