package push

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// Profile is a profile to send.
type Profile struct {
	Pprof      []byte // a compressed profile.proto
	Start, End time.Time
	Name       string            // of the profiled service
	Labels     map[string]string // further labels
	Kind       string            // what it counts, such as "cpu"
}

// Protocol turns profiles into requests.
// As --push-as names it.
type Protocol struct {
	Name string
	// path is appended to a URL without a path.
	path        string
	contentType string // of the request's body
	encoding    string // of the body; "": none
	// query returns the query of the URL; nil: none.
	query func(p *Profile) url.Values
	body  func(p *Profile) ([]byte, error) // the bytes of the request
}

// protocols returns all; the first is the default.
func protocols() []*Protocol {
	return []*Protocol{
		{Name: "pyroscope", path: "/push.v1.PusherService/Push", contentType: "application/proto", body: pyroscopeBody},
		{Name: "otlp", path: "/v1development/profiles", contentType: "application/x-protobuf", encoding: "gzip",
			body: compressed(otlpBody)},
		{Name: "pprof", contentType: "application/octet-stream", query: pprofQuery,
			body: func(p *Profile) ([]byte, error) { return p.Pprof, nil }},
	}
}

// compressed returns a body that is compressed with gzip.
func compressed(body func(*Profile) ([]byte, error)) func(*Profile) ([]byte, error) {
	return func(p *Profile) ([]byte, error) {
		plain, err := body(p)
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Write(plain) // a bytes.Buffer never fails
		w.Close()
		return b.Bytes(), err
	}
}

// ProtocolByName returns the protocol of this name.
func ProtocolByName(name string) (*Protocol, error) {
	var names []string
	for _, p := range protocols() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("unknown protocol %q: want one of %s", name, strings.Join(names, ", "))
}

// pprofQuery returns what a pprof file lacks, name and time, as Pyroscope's older
// interface and others take it.
func pprofQuery(p *Profile) url.Values {
	q := url.Values{}
	q.Set("name", p.Name)
	// Unix time in seconds.
	q.Set("from", strconv.FormatInt(p.Start.Unix(), 10))
	q.Set("until", strconv.FormatInt(p.End.Unix(), 10))
	q.Set("format", "pprof")
	for k, v := range p.Labels {
		q.Set(k, v)
	}
	return q
}

// Names of labels with a meaning in Pyroscope.
const (
	labelMetric  = "__name__" // of the profile's kind
	labelService = "service_name"
)

// pyroscopeBody returns a push.v1.PushRequest with one series of one profile, for the Connect
// protocol's unary call: push/v1/push.proto and types/v1/types.proto of Pyroscope's API.
func pyroscopeBody(p *Profile) ([]byte, error) {
	kind := "process_" + p.Kind
	// The profile's labels win over these.
	labels := map[string]string{labelMetric: kind, labelService: p.Name}
	maps.Copy(labels, p.Labels)
	var series message
	// Sorted, so that equal profiles give equal bytes.
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		series = series.part(1, message(nil).text(1, k).text(2, labels[k])) // RawProfileSeries.labels
	}
	series = series.part(2, message(nil).part(1, p.Pprof)) // RawSample.raw_profile
	return message(nil).part(1, series), nil               // PushRequest.series
}

// parse reads a profile's pprof.
func (p *Profile) parse() (*profile.Profile, error) { return profile.Parse(bytes.NewReader(p.Pprof)) }
