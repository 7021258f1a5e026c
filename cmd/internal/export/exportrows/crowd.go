package exportrows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/flowtally/flowtally/cmd/internal/export"
	"github.com/flowtally/flowtally/internal/bench"
)

func openCrowd(context.Context, bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(c *bench.Closers) (*bench.Sides, error) {
		e, err := exporter(c, crowdFlows)
		if err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- e.Serve(ctx, l, export.ServeOptions{}) }()
		c.Add(func() error {
			cancel()
			return <-served
		})
		d := &crowd{address: l.Addr().String(), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: scrapers}}}
		c.Add(func() error {
			d.leave()
			d.client.CloseIdleConnections()
			return nil
		})
		return &bench.Sides{
			Ours: func(_ context.Context, _ int) (float64, error) {
				if err := d.come(); err != nil {
					return 0, err
				}
				defer d.leave()
				return d.cost(scrapers)
			},
			Ref: func(context.Context, int) (float64, error) { return d.cost(1) },
			N:   1, MaxSpread: 0.5,
		}, nil
	})
}

// crowd is the clients of one exporter.
type crowd struct {
	address string
	client  *http.Client
	slow    []net.Conn
}

// come connects the clients that ask and do not read. It waits until each has a response.
func (d *crowd) come() error {
	for range readers {
		c, err := net.Dial("tcp", d.address)
		if err != nil {
			return err
		}
		d.slow = append(d.slow, c)
		if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			return err
		}
		if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
	}
	for _, c := range d.slow {
		if _, err := c.Read(make([]byte, 1)); err != nil {
			return fmt.Errorf("waiting for a response that is not read: %w", err)
		}
	}
	return nil
}

// leave closes the clients of come.
func (d *crowd) leave() {
	for _, c := range d.slow {
		_ = c.Close()
	}
	d.slow = nil
}

// cost is the CPU time of each of n scrapes at a time.
func (d *crowd) cost(n int) (float64, error) {
	start, err := bench.ProcessCPU()
	if err != nil {
		return 0, err
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = d.scrape() })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	end, err := bench.ProcessCPU()
	return float64(end-start) / float64(n), err
}

// scrape reads one response as Prometheus does, and leaves it compressed.
func (d *crowd) scrape() error {
	r, err := http.NewRequest(http.MethodGet, "http://"+d.address+"/metrics", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", encoding)
	response, err := d.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("scraping: %s", response.Status)
	}
	return nil
}
