package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// client sends requests to a collector.
type client interface {
	push(context.Context, *collector.ExportMetricsServiceRequest) (*collector.ExportMetricsServiceResponse, error)
	close() error
}

// ErrEndpoint: the URL does not name a collector of OTLP.
var ErrEndpoint = errors.New("not the URL of a collector")

// validateEndpoint returns ErrEndpoint with the reason if a Pusher cannot use the URL.
func validateEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrEndpoint, err)
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "grpc" && u.Scheme != "grpcs":
		return fmt.Errorf("%q: %w: it begins with http://, https://, grpc:// or grpcs://", endpoint, ErrEndpoint)
	case u.Host == "":
		return fmt.Errorf("%q: %w: it names no host", endpoint, ErrEndpoint)
	case strings.HasPrefix(u.Scheme, "grpc") && strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("%q: %w: gRPC has no path", endpoint, ErrEndpoint)
	}
	return nil
}

// withoutPassword returns a URL for the log, with any password replaced.
func withoutPassword(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "URL that cannot be read"
	}
	return u.Redacted()
}

func newClient(o PushOptions) (client, error) {
	if err := validateEndpoint(o.Endpoint); err != nil {
		return nil, err
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(u.Scheme, "http") {
		return newHTTPClient(u, o.Headers), nil
	}
	return newGRPCClient(u, o)
}

func newGRPCClient(u *url.URL, o PushOptions) (client, error) {
	security := insecure.NewCredentials()
	if u.Scheme == "grpcs" {
		security = credentials.NewTLS(nil)
	}
	host := u.Host
	if u.Port() == "" {
		host += ":4317"
	}
	conn, err := grpc.NewClient(host, grpc.WithTransportCredentials(security), grpc.WithDefaultCallOptions(grpc.UseCompressor(grpcgzip.Name)))
	if err != nil {
		return nil, fmt.Errorf("%s: making a gRPC client: %w", o.Endpoint, err)
	}
	return &grpcClient{conn, metadata.New(o.Headers)}, nil
}

type grpcClient struct {
	conn    *grpc.ClientConn
	headers metadata.MD
}

func (p *grpcClient) close() error { return p.conn.Close() }

func (p *grpcClient) push(ctx context.Context, r *collector.ExportMetricsServiceRequest) (*collector.ExportMetricsServiceResponse, error) {
	out := new(collector.ExportMetricsServiceResponse)
	ctx = metadata.NewOutgoingContext(ctx, p.headers)
	// We name the method ourselves: the module with the generated client also pulls in grpc-gateway.
	if err := p.conn.Invoke(ctx, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", r, out); err != nil {
		return nil, fmt.Errorf("calling the collector: %w", err)
	}
	return out, nil
}

func newHTTPClient(u *url.URL, headers map[string]string) *httpClient {
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/metrics"
	}
	return &httpClient{
		url:     u.String(),
		headers: headers,
		client: &http.Client{
			Transport: http.DefaultTransport.(*http.Transport).Clone(),
			// Follow no redirect. It would hand our authentication headers to another server. Or it would turn the POST
			// into a GET, whose success would count as a push.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

type httpClient struct {
	url     string
	headers map[string]string
	client  *http.Client
}

func (p *httpClient) close() error {
	p.client.CloseIdleConnections()
	return nil
}

// mostResponse is how many bytes of a response are read. The responses of a working collector have a few bytes.
const mostResponse = 64 << 10

func (p *httpClient) push(ctx context.Context, r *collector.ExportMetricsServiceRequest) (*collector.ExportMetricsServiceResponse, error) {
	body, err := packed(r)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, body)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	for k, v := range p.headers {
		request.Header.Set(k, v)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "gzip")

	response, err := p.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("calling the collector: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostResponse))
	if err != nil {
		return nil, fmt.Errorf("reading the collector's response: %w", err)
	}
	if response.StatusCode/100 != 2 {
		return nil, refusal(response)
	}

	out := new(collector.ExportMetricsServiceResponse)
	if err := proto.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("decoding the collector's response: %w", err)
	}
	return out, nil
}

// packed encodes a request as protobuf, compressed by gzip.
func packed(r *collector.ExportMetricsServiceRequest) (*bytes.Buffer, error) {
	message, err := proto.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	body := new(bytes.Buffer) // its writes never fail
	z := gzip.NewWriter(body)
	z.Write(message)
	z.Close()
	return body, nil
}

// refusal returns the error for a response with a status other than 2xx.
func refusal(r *http.Response) error {
	if to := r.Header.Get("Location"); r.StatusCode/100 == 3 && to != "" {
		return fmt.Errorf("the collector returned %s to %.200q: give --otlp the URL that it serves", r.Status, to)
	}
	return fmt.Errorf("the collector returned %s", r.Status)
}
