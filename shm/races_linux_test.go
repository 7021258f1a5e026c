package shm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// A hostile owner keeps changing words of the file while a reader opens and uses it. The reader
// must neither panic nor fault, because it copies the header once, checks the copy, and uses the copy.
func TestReaderSurvivesAHeaderThatKeepsChanging(t *testing.T) {
	opens := times.Of(t, "FLOWTALLY_HEADER_OPENS", 1e5, 2000)
	for _, tt := range []struct {
		name            string
		opens           int
		history         int
		blocks, records int // counters
		all             int // each all-th open calls every method, each fourth reads a counter
	}{
		{"many opens of a small file", opens, -1, 2, 0, 500},
		{"every method over two segments", max(opens/100, 500), 4, 70, 2, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := mirrorPath(t)
			w, err := Create(Options{Path: path, History: tt.history, CoolDown: -1})
			if err != nil {
				t.Fatal(err)
			}
			hs := append(addN(t, w, tt.blocks, false), addN(t, w, tt.records, true)...)
			publishAll(w, hs, func(Handle) Value { return patterned(1) }, func() { w.AppendHistory(hs[0], patterned(1)) })
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			l := startLiar(t, path)
			outcomes := make(map[string]int)
			raced := 0
			end := time.Now().Add(patience)
			enough := func() bool {
				return outcomes["opened"] > 0 && len(outcomes) > 1 && raced >= tt.opens/1000 && slices.Min(l.board[1:]) > 0
			}
			// More than asked for until that was seen: the liar may not have run yet.
			for n := 0; n < tt.opens || !enough() && time.Now().Before(end); n++ {
				before := l.told()
				r, err := OpenReader(path, ReaderOptions{})
				switch {
				case err != nil:
				case n%tt.all == 0:
					useAll(r, hs)
				case n%4 == 0:
					useSome(r, hs[0])
				default:
					useHeader(r)
				}
				outcomes[outcome(err)]++
				if l.told() != before {
					raced++
				}
				if err != nil {
					continue
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				r.v.unmap() // at once, and not when the garbage collector comes round
			}
			least := slices.Min(l.board[1:])
			t.Logf("%v; words changed during %d of them, each of %d words %d times or more", outcomes, raced, len(l.board)-1, least)
			if outcomes["opened"] == 0 || len(outcomes) == 1 {
				t.Error("every open had the same outcome")
			}
			runtime.KeepAlive(l.m)
			if raced < tt.opens/1000 || least == 0 {
				t.Error("too few opens beside a change, or a word that never changed")
			}
		})
	}
}

// outcome is the class of Open's result.
func outcome(err error) string {
	for _, class := range []error{ErrFormat, ErrNotReady, ErrTruncated} {
		if errors.Is(err, class) {
			return class.Error()
		}
	}
	if err != nil {
		return err.Error()
	}
	return "opened"
}

// A liar is a child process that changes words of a mirror without a writer, and makes them
// right again. It is a process of its own because each munmap interrupts the CPUs on which
// other threads of the same process run.
type liar struct {
	board []uint64 // shared with the child: how many lies it told, and of how many in each word
	m     *mapping // of board
}

// lyingWords returns the offsets of the words that opening loads, and of those that lead
// from there to a value.
func lyingWords(history uint32) []uint64 {
	at := []uint64{hdrGeneration, hdrHeartbeatPeriod, hdrState, hdrCycleDone, hdrPollPeriod, hdrCatalogueChanges, hdrSegments, hdrCounterLimit,
		hdrHistoryIntent, hdrHistoryTail, hdrReplaced, hdrDeviceGeneration, hdrDeviceLength, hdrTable, hdrTable + 8, hdrTable + 16}
	for i := uint64(0); i < fixedSize; i += 8 {
		at = append(at, i)
	}
	segment := segmentOffset(history, 0)
	for _, i := range []uint64{entIdentity, entBorn, entFlags, entName, entLabels, entSeq, entSlots, segSeq, segIntent, segCopy0 + cpyLive, segCopy1 + cpyEpoch} {
		at = append(at, segment+i)
	}
	return at
}

// startLiar starts a liar over the mirror at path, and returns once it lies.
func startLiar(t *testing.T, path string) *liar {
	words := lyingWords(0)
	if err := os.WriteFile(path+".board", make([]byte, 8*(1+len(words))), 0o600); err != nil {
		t.Fatal(err)
	}
	m, board, err := mapWords(path + ".board")
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{board, m}
	cmd := child("liar", path, fmt.Sprintf("FLOWTALLY_SHM_LIAR=%d", seed.Uint64(t)))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopChild(cmd) })
	for end := time.Now().Add(patience); l.told() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the liar does not start")
		}
	}
	return l
}

func (l *liar) told() uint64 { return atomic.LoadUint64(&l.board[0]) }

// mapWords maps a file to write. The words last as long as the mapping.
func mapWords(path string) (*mapping, []uint64, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	m, err := mapFile(f, 0, uint64(st.Size()), true)
	if err != nil {
		return nil, nil, err
	}
	return m, overlay[uint64](m.b, 0, uint32(st.Size()/8)), nil
}

// lie is the liar's process.
func lie(path string, random uint64) error {
	m, file, err := mapWords(path)
	if err != nil {
		return err
	}
	b, board, err := mapWords(path + ".board")
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(b)
	h, err := overlayHeader(m.b)
	if err != nil {
		return err
	}
	rnd, honest, at := rand.New(rand.NewPCG(random, 1)), h.fixedMem, lyingWords(h.history)
	values := []uint64{0, 1, 2, 3, 64, 65, 1 << 10, maxSegments, maxSegments + 1, 1 << 28, 1 << 31, 1<<32 - 1}
	pause := func() {
		for n := rnd.IntN(500); n > 0; n-- {
		}
	}
	for ; ; pause() { // the truth, for as long as a lie
		value := values[rnd.IntN(len(values))]
		if rnd.IntN(8) == 0 { // another honest header: the checksum is right
			other := honest
			other.history = uint32(value)
			atomic.StoreUint64(&h.checksum, other.sum())
			atomic.StoreUint32(&h.history, other.history)
			atomic.AddUint64(&board[0], 1)
			pause()
			copyWords(wordsAt(&h.fixedMem), wordsAt(&honest))
			continue
		}
		i := rnd.IntN(len(at))
		word := &file[at[i]/8]
		good := *word
		lies := []uint64{good>>32<<32 | value, value<<32 | good<<32>>32, value<<32 | value, good ^ 1<<rnd.IntN(64)}
		atomic.StoreUint64(word, lies[rnd.IntN(len(lies))])
		atomic.AddUint64(&board[0], 1)
		atomic.AddUint64(&board[1+i], 1)
		pause()
		atomic.StoreUint64(word, good)
	}
}

func init() {
	children["liar"] = func() {
		random, err := strconv.ParseUint(os.Getenv("FLOWTALLY_SHM_LIAR"), 10, 64)
		if err == nil {
			err = lie(os.Getenv("FLOWTALLY_SHM_PATH"), random)
		}
		fmt.Fprintln(os.Stderr, "liar:", err)
	}
}

// useSome reads a counter by its name, as a program does first.
func useSome(r *Reader, h Handle) {
	if found, err := r.Lookup("cfalse-0"); err == nil {
		h = found
	}
	_ = Guard(func() error {
		c, err := r.Counter(h)
		if err == nil {
			_, err = c.Load()
		}
		return err
	})
	useHeader(r)
}

// useHeader maps no segment.
func useHeader(r *Reader) {
	_ = r.Status()
	if cur, err := r.History(); err == nil {
		cur.Rewind()
		_, _, _ = cur.Next(make([]Record, 1))
	}
}

// useAll calls every method of a reader.
func useAll(r *Reader, hs []Handle) {
	_, _ = r.Lookup("cfalse-3")
	_, _ = r.Entries()
	_, _ = r.Find("cfalse-3")
	_ = r.Status()
	ended, end := context.WithCancel(context.Background())
	end()
	var all Snapshot
	_ = r.Snapshot(&all)
	_ = r.SnapshotOf(new(Snapshot), hs)
	for _, h := range append(hs[:2:2], hs[len(hs)-1]) {
		_, _ = r.Entry(h)
		_, _ = all.Value(h)
		_, _ = r.Wait(ended, h, 1<<60)
		_ = Guard(func() error {
			c, err := r.Counter(h)
			if err == nil {
				_, err = c.Load()
			}
			return err
		})
	}
	if cur, err := r.History(); err == nil {
		cur.Rewind()
		_, _, _ = cur.Next(make([]Record, 8))
	}
}
