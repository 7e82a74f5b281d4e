package mcp

import (
	"context"
	"net/url"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// whyPrefix begins the URI of one request's decisions.
const whyPrefix = "uma://why/"

// addResources declares the resources: the reports, which a client reads without a call.
func (s *Server) addResources() {
	for _, r := range []struct {
		name, description string
		read              func(ctx context.Context) ([]byte, error)
	}{
		{"info", "the model, the engine, the configuration and the memory of the daemon", s.asked(wire.KindInfo)},
		{"models", "the models that the daemon serves", s.listModels},
		{"why", "the scheduler's decisions about the newest requests", func(ctx context.Context) ([]byte, error) {
			return s.report(ctx, client.Question{Kind: wire.KindWhy, Why: wire.WhyQuestion{Last: defaultLast}})
		}},
		{"kv", "the contents of the KV cache", s.asked(wire.KindKV)},
	} {
		about := &sdk.Resource{URI: "uma://" + r.name, Name: r.name, Description: r.description, MIMEType: jsonType}
		s.sdk.AddResource(about, func(ctx context.Context, q *sdk.ReadResourceRequest) (*sdk.ReadResourceResult,
			error) {
			return contentsOf(ctx, q, r.read)
		})
	}
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: whyPrefix + "{request}", Name: "why-request",
		Description: "the scheduler's decisions about one request", MIMEType: jsonType},
		func(ctx context.Context, q *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			id, err := url.PathUnescape(strings.TrimPrefix(q.Params.URI, whyPrefix))
			if err != nil || id == "" {
				return nil, sdk.ResourceNotFoundError(q.Params.URI)
			}
			return contentsOf(ctx, q, func(ctx context.Context) ([]byte, error) {
				return s.report(ctx, client.Question{Kind: wire.KindWhy, Why: wire.WhyQuestion{Request: id}})
			})
		})
}

const jsonType = "application/json"

// asked returns a reader of a report without arguments.
func (s *Server) asked(kind wire.Kind) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return s.report(ctx, client.Question{Kind: kind}) }
}

// contentsOf reads a resource.
func contentsOf(ctx context.Context, q *sdk.ReadResourceRequest, read func(context.Context) ([]byte, error)) (
	*sdk.ReadResourceResult, error) {
	raw, err := read(ctx)
	if err != nil {
		return nil, err
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: q.Params.URI, MIMEType: jsonType,
		Text: string(raw)}}}, nil
}
