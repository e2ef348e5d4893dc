// Package servers reads the requests of package push by the servers' own definitions. It is a separate
// module: whoever imports ehasm gets none of their dependencies.
package servers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/profile/push"

	"connectrpc.com/connect"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pyroscope is a server made from Pyroscope's own definition of its interface.
type pyroscope struct {
	mu  sync.Mutex
	got []*pushv1.PushRequest
}

func (s *pyroscope) Push(_ context.Context,
	r *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, r.Msg)
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

func TestPyroscope(t *testing.T) {
	s := &pyroscope{}
	mux := http.NewServeMux()
	mux.Handle(pushv1connect.NewPusherServiceHandler(s))
	server := httptest.NewServer(mux)
	defer server.Close()
	protocol, err := push.ProtocolByName("pyroscope")
	require.NoError(t, err)
	p, err := push.New(push.Options{URL: server.URL, Protocol: protocol})
	require.NoError(t, err)
	want := sample(t)
	p.Push(want)
	assert.Equal(t, push.Counts{Sent: 1}, p.Close(time.Minute))
	require.Len(t, s.got, 1)
	require.Len(t, s.got[0].Series, 1)
	series := s.got[0].Series[0]
	labels := map[string]string{}
	for _, l := range series.Labels {
		labels[l.Name] = l.Value
	}
	assert.Equal(t, map[string]string{"__name__": "process_cpu", "service_name": "shop", "zone": "b"}, labels)
	require.Len(t, series.Samples, 1)
	assert.Equal(t, want.Pprof, series.Samples[0].RawProfile)
}
