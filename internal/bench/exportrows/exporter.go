package exportrows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
)

// patience bounds the wait for an exporter to serve.
const patience = time.Minute

// exporter is a process `flowtally export`, and the clients that scrape it.
type exporter struct {
	address string
	pid     int
	client  *http.Client
}

// start makes a mirror with flows, and starts its exporter.
func start(ctx context.Context, open *bench.Closers, bin string, flows int) (*exporter, error) {
	program := filepath.Join(bin, "flowtally")
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("looking for the program that `make build` makes: %w", err)
	}
	mirror, err := newMirror(open, flows)
	if err != nil {
		return nil, err
	}

	said := newTalk()
	cmd := exec.Command(program, "export", "--mirror", mirror, "--listen", "127.0.0.1:0", "--label-keys", "team",
		"--log.level", "info", "--log.format", "json")
	cmd.Stderr = said
	ended := make(chan error, 1)
	started := make(chan error, 1)
	go func() { // not on the thread that measures, whose affinity the process would inherit
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting flowtally export: %w", err)
	}
	open.Add(func() error {
		err := cmd.Process.Kill()
		<-ended
		if errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
		return err
	})

	e := &exporter{
		pid:    cmd.Process.Pid,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: scrapers}},
	}
	open.Add(func() error {
		e.client.CloseIdleConnections()
		return nil
	})
	select {
	case e.address = <-said.address:
		return e, nil
	case err := <-ended:
		ended <- err
		return nil, fmt.Errorf("flowtally export ended before it served: %w: %s", errors.Join(err), said.all.String())
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for flowtally export to serve: %w", ctx.Err())
	case <-time.After(patience):
		return nil, fmt.Errorf("%w: flowtally export did not serve within %v", bench.ErrDisturbed, patience)
	}
}

// talk takes the log of an exporter, and finds the address in it.
type talk struct {
	all     bytes.Buffer
	address chan string // gets the address once
}

func newTalk() *talk { return &talk{address: make(chan string, 1)} }

func (t *talk) Write(p []byte) (int, error) {
	t.all.Write(p)
	for line := range bytes.Lines(t.all.Bytes()) {
		var message struct{ Msg, Address string }
		if json.Unmarshal(line, &message) == nil && message.Msg == "serving" {
			select {
			case t.address <- message.Address:
			default: // has it
			}
		}
	}
	return len(p), nil
}

// cost is the exporter's CPU time for each of the n scrapes that scrape makes.
func (e *exporter) cost(n int, scrape func(n int) error) (float64, error) {
	before, err := bench.CPUOf(e.pid)
	if err != nil {
		return 0, err
	}
	if err := scrape(n); err != nil {
		return 0, err
	}
	after, err := bench.CPUOf(e.pid)
	return float64(after-before) / float64(n), err
}

// inTurn makes n scrapes, one after the other.
func (e *exporter) inTurn(n int) error {
	for range n {
		if err := e.scrape(); err != nil {
			return err
		}
	}
	return nil
}

// atOnce makes n scrapes at a time.
func (e *exporter) atOnce(n int) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = e.scrape() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// The headers of a scrape, as Prometheus sends them.
const (
	accept   = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
	encoding = "gzip"
)

// scrape reads one response as Prometheus does, and leaves it compressed.
func (e *exporter) scrape() error { return e.get(encoding, io.Discard) }

// text returns one response that was not compressed.
func (e *exporter) text() ([]byte, error) {
	var b bytes.Buffer
	err := e.get("identity", &b)
	return b.Bytes(), err
}

// get copies one response to a writer.
func (e *exporter) get(encoding string, to io.Writer) error {
	r, err := http.NewRequest(http.MethodGet, "http://"+e.address+"/metrics", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", encoding)

	response, err := e.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(to, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("scraping: %s", response.Status)
	}
	return nil
}
