package wire

import (
	"context"
	"net"
	"path"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// GRPC has a client's messages counted by the name of their method, those of streams too. Round trips are
// of calls that are no streams.
func (t *Tally) GRPC() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithStatsHandler(&grpcHandler{tally: t}),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return &meteredConn{conn, &t.traffic}, nil
		}),
	}
}

// grpcHandler is one client's.
type grpcHandler struct {
	tally    *Tally
	underWay atomic.Int64 // calls
}

// grpcCall is one call, or one stream.
type grpcCall struct{ method []byte }

type grpcCallKey struct{}

// TagRPC implements stats.Handler.
func (h *grpcHandler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, grpcCallKey{}, &grpcCall{[]byte(path.Base(info.FullMethodName))})
}

// HandleRPC implements stats.Handler.
func (h *grpcHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	call, ok := ctx.Value(grpcCallKey{}).(*grpcCall)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.Begin:
		if s.IsClientStream || s.IsServerStream {
			call.method = append([]byte("stream "), call.method...)
		} else if h.underWay.Add(1) == 1 {
			h.tally.traffic.roundTrips.Add(1)
		}
	case *stats.OutPayload:
		h.tally.add(call.method)
	case *stats.End:
		if call.method[0] != 's' {
			h.underWay.Add(-1)
		}
	}
}

// TagConn implements stats.Handler.
func (h *grpcHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (h *grpcHandler) HandleConn(context.Context, stats.ConnStats) {}
